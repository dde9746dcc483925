"""Fixed fleets, the baselines of all planners (policies.md §1).

``StaticPolicy`` holds one split, ``StaticFromRatio`` derives it from a number of GPUs, ``Schedule``
changes it at given times.
"""

import math
import warnings
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from aisim_gym.policies.budget import FleetBudget
from aisim_gym.policies.rounding import round_half_up
from aisim_gym.replay import FleetDescription, ScalingDecision, ScalingSnapshot
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.scalars import F64, Flag, Integer

Workers = Annotated[Integer, Field(ge=0)]


class StaticParameters(SpecModel):
    """Parameters of :class:`StaticPolicy`."""

    prefill: Workers | None = Field(default=None, description="Prefill workers")
    decode: Workers | None = Field(default=None, description="Decode workers")
    replicas: Workers | None = Field(default=None, description="Workers of an aggregated fleet")
    keep_ticking: Flag = Field(default=False, description="Ask for ticks that change nothing")

    @model_validator(mode="after")
    def _check_one_topology(self) -> Self:
        pair = (self.prefill, self.decode)
        if (self.replicas is None and None in pair) or (
            self.replicas is not None and pair != (None, None)
        ):
            raise ValueError(
                "expected either prefill and decode, or replicas for an aggregated fleet, got "
                f"prefill={self.prefill}, decode={self.decode}, replicas={self.replicas}"
            )
        return self


class StaticPolicy:
    """Scales once, at time 0.

    Source: policies.md §1. A split beyond the fleet's limits is clamped to them, with a warning.

    Example:
        >>> from aisim_gym.policies import StaticPolicy
        >>> StaticPolicy(prefill=2, decode=3).parameters.decode
        3
    """

    def __init__(self, **parameters: Any) -> None:
        """Build the policy from the fields of :class:`StaticParameters`."""
        self.parameters = StaticParameters(**parameters)

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Prepare for a run.

        Raises:
            ValueError: If the split is for the other topology.
        """
        split = self.parameters
        self._budget = FleetBudget.of(fleet)
        self._tick_ms = fleet.limits.tick_s * 1000.0
        self._targets: tuple[int, int]
        if fleet.mode == "agg":
            if split.replicas is None:
                raise ValueError("static: an aggregated fleet needs replicas, got prefill, decode")
            self._targets = (0, split.replicas)
        else:
            if split.prefill is None or split.decode is None:
                raise ValueError(
                    "static: a disaggregated fleet needs prefill, decode; got replicas"
                )
            self._targets = (split.prefill, split.decode)
        _warn_if_clamped("static", self._budget, self._targets)

    def initial_tick_ms(self) -> float:
        """Return 0: the split applies from the start, apart from startup times."""
        return 0.0

    def on_tick(self, snapshot: ScalingSnapshot) -> ScalingDecision:
        """Return the split."""
        next_ms = snapshot.now_ms + self._tick_ms if self.parameters.keep_ticking else None
        return self._budget.decide(snapshot, *self._targets, next_ms)


class RatioParameters(SpecModel):
    """Parameters of :class:`StaticFromRatio`."""

    total_gpus: Integer = Field(gt=0, description="GPUs of the whole fleet, > 0")
    prefill_share: F64 = Field(
        default=0.5, ge=0, le=1, description="Share of the GPUs for prefill, 0..1"
    )
    keep_ticking: Flag = Field(default=False, description="Ask for ticks that change nothing")


class StaticFromRatio:
    """Splits GPUs between prefill and decode, then behaves like ``StaticPolicy``.

    Source: policies.md §1. An aggregated fleet gets all the GPUs.
    """

    def __init__(self, **parameters: Any) -> None:
        """Build the policy from the fields of :class:`RatioParameters`."""
        self.parameters = RatioParameters(**parameters)

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Prepare for a run.

        Raises:
            ValueError: If there are too few GPUs for a worker per pool.
        """
        total, decode_gpus = self.parameters.total_gpus, fleet.decode.gpus_per_worker
        keep_ticking = self.parameters.keep_ticking
        needed = decode_gpus + (fleet.prefill.gpus_per_worker if fleet.prefill else 0)
        if total < needed:
            raise ValueError(
                f"total_gpus: got {total}, expected at least {needed} for one worker in every pool"
            )
        if fleet.prefill is None:
            self._split = StaticPolicy(replicas=total // decode_gpus, keep_ticking=keep_ticking)
        else:
            prefill_gpus = fleet.prefill.gpus_per_worker
            prefill = round_half_up(total * self.parameters.prefill_share / prefill_gpus)
            prefill = min(max(prefill, 1), (total - decode_gpus) // prefill_gpus)
            decode = (total - prefill * prefill_gpus) // decode_gpus
            self._split = StaticPolicy(prefill=prefill, decode=decode, keep_ticking=keep_ticking)
        self._split.reset(fleet, seed)

    def initial_tick_ms(self) -> float:
        """Return 0."""
        return self._split.initial_tick_ms()

    def on_tick(self, snapshot: ScalingSnapshot) -> ScalingDecision:
        """Return the split."""
        return self._split.on_tick(snapshot)


Entry = tuple[Annotated[F64, Field(ge=0)], Workers, Workers]


class ScheduleParameters(SpecModel):
    """Parameters of :class:`Schedule`."""

    entries: tuple[Entry, ...] = Field(
        min_length=1,
        description="(seconds, prefill workers, decode workers), times ascending; an aggregated "
        "fleet ignores the prefill workers",
    )

    @model_validator(mode="after")
    def _check_ascending(self) -> Self:
        times_s = [entry[0] for entry in self.entries]
        if any(after <= before for before, after in pairwise(times_s)):
            raise ValueError(f"entries: got times {times_s}, expected ascending ones")
        return self


class Schedule:
    """Changes the fleet at given times; an entry applies from the first tick at or after its time.

    Source: policies.md §1. Ticks come at the times of the entries and once per tick length.

    Example:
        >>> from aisim_gym.policies import Schedule
        >>> len(Schedule(entries=[(0.0, 1, 2), (600.0, 2, 4)]).parameters.entries)
        2
    """

    def __init__(self, **parameters: Any) -> None:
        """Build the policy from the fields of :class:`ScheduleParameters`."""
        self.parameters = ScheduleParameters(**parameters)

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Prepare for a run."""
        self._budget = FleetBudget.of(fleet)
        self._tick_ms = fleet.limits.tick_s * 1000.0
        for _, prefill, decode in self.parameters.entries:
            _warn_if_clamped("schedule", self._budget, (prefill, decode))

    def initial_tick_ms(self) -> float:
        """Return the time of the first entry, or one tick length if earlier."""
        return min(self.parameters.entries[0][0] * 1000.0, self._tick_ms)

    def on_tick(self, snapshot: ScalingSnapshot) -> ScalingDecision:
        """Return the current entry."""
        now_ms = snapshot.now_ms
        prefill: int | None = None
        decode: int | None = None
        entry_ms = math.inf  # time of the next entry
        for at_s, entry_prefill, entry_decode in self.parameters.entries:
            if at_s * 1000.0 > now_ms:
                entry_ms = at_s * 1000.0
                break
            prefill, decode = entry_prefill, entry_decode
        return self._budget.decide(snapshot, prefill, decode, min(entry_ms, now_ms + self._tick_ms))


def _warn_if_clamped(name: str, budget: FleetBudget, targets: tuple[int, int]) -> None:
    if budget.prefill_gpus is None:
        wanted: object = targets[1]
        clamped: object = budget.clamp_single(targets[1])
    else:
        wanted, clamped = targets, budget.clamp_pair(*targets)
    if clamped != wanted:
        warnings.warn(
            f"{name}: {wanted} workers are outside the fleet's limits ({budget.limits}); "
            f"{clamped} are used",
            UserWarning,
            stacklevel=3,
        )

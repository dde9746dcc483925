"""A replay: run a workload through a fleet, tick by tick."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aisim_gym.replay.build import build_world
from aisim_gym.replay.decision import ScalingDecision, checked_time_ms
from aisim_gym.replay.failure import no_tick_waits
from aisim_gym.replay.planner_loop import first_tick_ms, follow_policy
from aisim_gym.replay.policy import ScalingLimits, ScalingPolicy
from aisim_gym.replay.requests import requests_of
from aisim_gym.replay.run import Run, ShowProgress, StepEnd
from aisim_gym.replay.run_view import RunView
from aisim_gym.replay.saving import SavedReplay, read_replay, write_replay
from aisim_gym.replay.settle import STATUS_TICK
from aisim_gym.replay.snapshot import ScalingSnapshot
from aisim_gym.replay.telemetry import Sample
from aisim_gym.spec import ReplaySpec, load_spec
from aisim_gym.workload import RequestTable


@dataclass(init=False, eq=False)
class Replay(RunView):
    """Run a workload through a fleet with exactly the results of the reference.

    A replay starts paused before time 0. :meth:`advance_to_tick` runs to the next scaling tick and
    returns the planner's snapshot; :meth:`apply` answers it. Without ticks, one call runs to the
    end. Read the results with :func:`aisim_gym.report.summarize`.

    Example:
        >>> from aisim_gym import Replay, requests_from_arrays
        >>> requests = requests_from_arrays([0.0, 5.0], [100, 200], [3, 4])
        >>> replay = Replay({"fleet": {"kind": "agg"}}, requests)
        >>> replay.advance_to_tick() is None, replay.is_done
        (True, True)

    Attributes:
        spec: The spec with all defaults filled in.
        session_ids: Names of the workload's sessions, empty without sessions.
    """

    spec: ReplaySpec
    session_ids: tuple[str, ...] = field(repr=False)

    def __init__(
        self,
        spec: ReplaySpec | Mapping[str, Any] | str | Path,
        requests: RequestTable | None = None,
        *,
        initial_tick_ms: float | None = None,
        fast_forward: bool = True,
    ) -> None:
        """Create a replay, paused before time 0.

        Args:
            spec: A spec, a mapping, or the path of a TOML or JSON file.
            requests: The workload; by default the one named by ``spec.workload``.
            initial_tick_ms: Time of the first tick, overriding ``spec.ticks.initial_tick_ms``.
            fast_forward: Whether to run many passes of steady decode as one event. False is several
                times slower, with the same results.

        Raises:
            SpecError, WorkloadError: If the spec or the workload is invalid.
            UnsupportedError: If this version does not support a setting of the spec.
        """
        self.spec = spec if isinstance(spec, ReplaySpec) else load_spec(spec)
        requests = requests_of(self.spec, requests)
        given_ms = self.spec.ticks.initial_tick_ms if initial_tick_ms is None else initial_tick_ms
        first_ms = math.inf if given_ms is None else checked_time_ms(given_ms)
        state = build_world(self.spec, requests, first_ms)
        state.world.options.fast_forwards = fast_forward
        self.session_ids = requests.session_ids
        self.current_run = Run(state, records_ticks=self.spec.capture_planner_details)

    def advance_to_tick(self, on_progress: ShowProgress | None = None) -> ScalingSnapshot | None:
        """Run to the next tick.

        Args:
            on_progress: Called periodically during a long run.

        Returns:
            The planner's snapshot at the tick; None at the end of the workload or the time limit.

        Raises:
            ReplayError: If a request can never run, no worker is active for an arrival, or the last
                tick is not answered with :meth:`apply`.
        """
        self.run_to_tick(on_progress)
        return self.snapshot

    def run_to_tick(self, on_progress: ShowProgress | None = None) -> bool:
        """Advance to the next tick without building a snapshot.

        Args:
            on_progress: As for :meth:`advance_to_tick`.

        Returns:
            Whether a tick waits for a decision; :attr:`snapshot` then returns the planner's view.

        Raises:
            ReplayError: As :meth:`advance_to_tick`.
        """
        return self.current_run.advance(on_progress) == STATUS_TICK

    def step(self) -> StepEnd:
        """Settle one instant: first time 0, then the time of the next event.

        Telemetry samples in between are published. Calls of this method and of
        :meth:`advance_to_tick` may be mixed.

        Returns:
            How the step ended; at the end or the time limit, further steps have no effect.

        Raises:
            ReplayError: As :meth:`advance_to_tick`.
        """
        return StepEnd.of(self.current_run.advance(one_instant=True))

    def apply(self, decision: ScalingDecision | Mapping[str, Any]) -> None:
        """Answer the tick that :meth:`advance_to_tick` returned.

        Args:
            decision: Targets and next tick; a mapping must have all three keys.

        Raises:
            ReplayError: If no tick waits for a decision.
            KeyError, TypeError, OverflowError: As :meth:`ScalingDecision.of`.
        """
        if not self.is_waiting:
            raise no_tick_waits(self.state, "apply")
        self.answer(*ScalingDecision.of(decision).as_numbers())

    def answer(self, target_prefill: int, target_decode: int, next_tick_ms: float) -> None:
        """Answer the tick with plain numbers that are not validated.

        Args:
            target_prefill: Target number of active + starting prefill workers, at most
                ``MAX_WORKERS``, or -1 to keep the current number; ignored by an aggregated fleet.
            target_decode: Likewise for decode workers, or for the workers of an aggregated fleet.
            next_tick_ms: Absolute time of the next tick; ticks end unless it is finite and later.

        Raises:
            ReplayError: If no tick waits for a decision.
        """
        if not self.current_run.answer(target_prefill, target_decode, next_tick_ms):
            raise no_tick_waits(self.state, "answer")

    @classmethod
    def run(
        cls,
        spec: ReplaySpec | Mapping[str, Any] | str | Path,
        policy: ScalingPolicy | None = None,
        requests: RequestTable | None = None,
        *,
        limits: ScalingLimits | None = None,
        seed: int | None = None,
        on_progress: ShowProgress | None = None,
        on_sample: Callable[[Sample], None] | None = None,
    ) -> Self:
        """Return a finished replay with ``policy`` deciding at every tick.

        Args:
            spec: As for the constructor.
            policy: The planner; None disables ticks.
            requests: As for the constructor.
            limits: Passed to the policy in the fleet description.
            seed: Passed to the policy.
            on_progress: Called periodically.
            on_sample: Called with every telemetry sample.

        Raises:
            AisimError: As the constructor and :meth:`advance_to_tick`; exceptions of the policy
                propagate unchanged.
        """
        replay = cls.prepare(spec, policy, requests, limits=limits, seed=seed)
        replay.on_sample = on_sample
        replay.follow(policy, on_progress)
        return replay

    @classmethod
    def prepare(
        cls,
        spec: ReplaySpec | Mapping[str, Any] | str | Path,
        policy: ScalingPolicy | None,
        requests: RequestTable | None = None,
        *,
        limits: ScalingLimits | None = None,
        seed: int | None = None,
    ) -> Self:
        """Return a new replay ready to :meth:`follow` ``policy``; arguments as for :meth:`run`.

        The first tick is ``spec.ticks.initial_tick_ms`` if set, otherwise the policy's.

        Raises:
            AttributeError: If ``policy`` lacks a method of a planner.
            ValueError: If the spec sets a first tick and there is no policy.
        """
        spec = spec if isinstance(spec, ReplaySpec) else load_spec(spec)
        return cls(spec, requests, initial_tick_ms=first_tick_ms(spec, policy, limits, seed))

    def follow(
        self,
        policy: ScalingPolicy | None,
        on_progress: ShowProgress | None = None,
        give_up: Callable[[Self], bool] | None = None,
    ) -> None:
        """Run to the end with ``policy`` deciding at every tick.

        Args:
            policy: The planner; may be None only without ticks.
            on_progress: Called periodically.
            give_up: Called at every tick before the policy; if True, the replay stops at the tick.

        Raises:
            AisimError: As :meth:`advance_to_tick`; exceptions of the policy propagate unchanged.
        """
        follow_policy(self, policy, on_progress, give_up)

    def stand_still(self, until_ms: float) -> None:
        """Advance the clock of a stuck run: its workers are paid for, its requests wait.

        Raises:
            ReplayError: If the run is not stuck.
        """
        self.current_run.stand_still(until_ms)

    def fork(self) -> Self:
        """Return an independent copy that continues from the same state."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, current_run=self.current_run.copy())
        return copy

    def save(self, path: str | Path) -> None:
        """Write the complete state to a ``.npz`` file; continue it with :meth:`load`."""
        write_replay(path, SavedReplay(self.spec, self.session_ids, self.current_run))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return a replay saved by :meth:`save`.

        Raises:
            ReplayError: If the file is not a saved replay of this version.
        """
        replay = object.__new__(cls)
        replay.spec, replay.session_ids, replay.current_run = read_replay(path)
        return replay

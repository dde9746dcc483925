"""The planner interface, and the fleet description it gets before a run (policies.md §0.1)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from aisim_gym.replay.decision import ScalingDecision
from aisim_gym.replay.snapshot import ScalingSnapshot
from aisim_gym.spec import AggregatedFleet, LaunchSpec, ReplaySpec
from aisim_gym.spec.argument_checks import check_integer, check_number
from aisim_gym.spec.wording import closest

DEFAULT_MAX_BATCHED_TOKENS = 8192
DEFAULT_MAX_SEQS = 512

SHORTEST_TICK_S = 0.001
"""Minimum tick interval in seconds; with far shorter ticks a run takes excessively long."""

Pool = Literal["prefill", "decode"]
"""Name of a pool; the only pool of an aggregated fleet is ``decode``."""


@dataclass(frozen=True)
class RoleDescription:
    """Capacity of a worker of one role.

    Attributes:
        startup_s: Seconds from a decision to an active worker.
        gpus_per_worker: Tensor-parallel size times data-parallel size.
        dp_size: Ranks per worker, each with its own scheduler and share of the KV capacity.
        max_batched_tokens: Token budget of a pass.
        max_seqs: Maximum running requests per rank.
        max_kv_tokens: KV capacity of the worker, all ranks together, tokens.
        context_length: Maximum prompt + output length in tokens, or None.
        block_size: Tokens per KV block.
    """

    startup_s: float
    gpus_per_worker: int
    dp_size: int
    max_batched_tokens: int
    max_seqs: int
    max_kv_tokens: int
    context_length: int | None
    block_size: int


@dataclass(frozen=True)
class ScalingLimits:
    """Limits on the size of a fleet, and the tick interval.

    Attributes:
        tick_s: Seconds between ticks, >= 0.001 and finite.
        min_workers: Minimum workers per pool, >= 0, or a mapping with ``prefill`` and ``decode``.
        max_workers: Maximum workers per pool, None for no limit, or such a mapping.
        max_gpus: Maximum GPUs of the whole fleet, >= 1, None for no limit.

    Example:
        >>> limits = ScalingLimits(min_workers=1, max_workers={"prefill": 4, "decode": None})
        >>> limits.of_pool("prefill"), limits.of_pool("decode")
        ((1, 4), (1, None))
    """

    tick_s: float = 30.0
    min_workers: int | Mapping[str, int] = 1
    max_workers: int | Mapping[str, int | None] | None = None
    max_gpus: int | None = None

    def __post_init__(self) -> None:
        """Reject limits that have a wrong type, are out of range or contradict each other."""
        allowed = f">= {SHORTEST_TICK_S:g} and finite"
        tick_s = check_number("tick_s", self.tick_s, allowed)
        if not (math.isfinite(tick_s) and tick_s >= SHORTEST_TICK_S):
            raise ValueError(f"tick_s: got {self.tick_s}, expected {allowed}")
        least = _by_pool("min_workers", self.min_workers)
        for name, count in least:
            _check_count(name, count, 0, ">= 0")
        most = _by_pool("max_workers", self.max_workers)
        for (name, count), (_, low) in zip(most, least, strict=True):
            if count is not None:
                _check_count(name, count, low, f">= min_workers ({low}), or None")
        if self.max_gpus is not None:
            _check_count("max_gpus", self.max_gpus, 1, ">= 1, or None")

    def of_pool(self, pool: Pool) -> tuple[int, int | None]:
        """Return minimum and maximum workers of a pool; the maximum is None if unlimited."""
        least, most = self.min_workers, self.max_workers
        return (
            int(least[pool] if isinstance(least, Mapping) else least),
            most[pool] if isinstance(most, Mapping) else most,
        )


def _by_pool(name: str, given: Any) -> list[tuple[str, Any]]:
    """Return (name for messages, value) of a limit for each pool, prefill first.

    Raises:
        ValueError: If the keys of a mapping are not exactly the two pools.
    """
    pools = get_args(Pool)
    if not isinstance(given, Mapping):
        return [(name, given)] * len(pools)
    for pool in given:
        if pool not in pools:
            raise ValueError(
                f"{name}: got the key {pool!r}, expected prefill and decode"
                f"{closest(str(pool), pools)}"
            )
    for pool in pools:
        if pool not in given:
            raise ValueError(f"{name}: got no {pool!r}, expected both prefill and decode")
    return [(f"{name}.{pool}", given[pool]) for pool in pools]


def _check_count(name: str, value: object, least: int, allowed: str) -> None:
    if check_integer(name, value, allowed) < least:
        raise ValueError(f"{name}: got {value}, expected {allowed}")


@dataclass(frozen=True)
class FleetDescription:
    """Fleet information available to a planner before the first tick.

    An aggregated fleet has only ``decode``.
    """

    mode: Literal["agg", "disagg"]
    decode: RoleDescription
    prefill: RoleDescription | None = None
    limits: ScalingLimits = ScalingLimits()
    ttft_slo_ms: float | None = None
    itl_slo_ms: float | None = None


class ScalingPolicy(Protocol):
    """A planner: three methods, which may depend only on their arguments.

    Example: add a decode worker whenever requests queue for one.

        >>> from aisim_gym.replay.decision import ScalingDecision
        >>> class AddWhenQueued:
        ...     def reset(self, fleet, seed=None):
        ...         self.tick_ms = fleet.limits.tick_s * 1000.0
        ...     def initial_tick_ms(self):
        ...         return self.tick_ms
        ...     def on_tick(self, snapshot):
        ...         queued = sum(fpm.num_queued_decode for fpm in snapshot.decode.fpms)
        ...         target = snapshot.decode.num_non_draining + (queued > 0)
        ...         return ScalingDecision(None, target, snapshot.now_ms + self.tick_ms)
    """

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Prepare for a new run."""
        ...

    def initial_tick_ms(self) -> float:
        """Return the time of the first tick in ms; +inf for none."""
        ...

    def on_tick(self, snapshot: ScalingSnapshot) -> ScalingDecision | Mapping[str, Any]:
        """Return targets and the time of the next tick."""
        ...


def describe_fleet(spec: ReplaySpec, limits: ScalingLimits | None = None) -> FleetDescription:
    """Return the fleet description of ``spec`` for a planner."""
    fleet = spec.fleet
    decode, prefill = (
        (fleet.engine, None)
        if isinstance(fleet, AggregatedFleet)
        else (fleet.decode, fleet.prefill)
    )
    return FleetDescription(
        mode=fleet.kind,
        decode=_describe_role(decode),
        prefill=None if prefill is None else _describe_role(prefill),
        limits=limits or ScalingLimits(),
        ttft_slo_ms=spec.sla.ttft_ms,
        itl_slo_ms=spec.sla.itl_ms,
    )


def _describe_role(launch: LaunchSpec) -> RoleDescription:
    engine = launch.engine
    return RoleDescription(
        startup_s=launch.startup_time or 0.0,
        gpus_per_worker=launch.gpus_per_worker,
        dp_size=launch.dp_size,
        max_batched_tokens=engine.max_num_batched_tokens or DEFAULT_MAX_BATCHED_TOKENS,
        max_seqs=engine.max_num_seqs or DEFAULT_MAX_SEQS,
        max_kv_tokens=engine.num_gpu_blocks * engine.block_size * launch.dp_size,
        context_length=engine.max_model_len,
        block_size=engine.block_size,
    )

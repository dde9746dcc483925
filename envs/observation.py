"""Observations: from a snapshot to what an agent sees.

An observation object has two methods, ``space()`` and ``observe(snapshot, episode)``. The
environment casts what it returns to the space, clips it (``info["obs_clipped"]`` counts) and
refuses NaN. An object may also have the quicker :meth:`WorldObservation.observe_world`, and
``begin_episode()`` if it remembers anything. The named ones are listed in
:mod:`aisim_gym.envs.observer`.

Example: two queue lengths instead of the default vector.

    >>> import gymnasium
    >>> import numpy as np
    >>> from gymnasium.spaces import Box
    >>> import aisim_gym.envs
    >>> class QueueLengths:
    ...     def space(self):
    ...         return Box(0.0, 1000.0, (2,), np.float32)
    ...     def observe(self, snapshot, episode):
    ...         prefill = sum(fpm.num_queued_prefill for fpm in snapshot.prefill.fpms)
    ...         decode = sum(fpm.num_queued_decode for fpm in snapshot.decode.fpms)
    ...         return [prefill, decode]
    >>> env = gymnasium.make("aisim_gym/Disaggregated-v0", observation=QueueLengths())
    >>> observation, info = env.reset(seed=1)
    >>> observation.shape, observation.dtype
    ((2,), dtype('float32'))
    >>> env.close()
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aisim_gym.envs.metrics_entries import (
    EpisodeNow,
    PoolSums,
    TrafficSums,
    fleet_entries,
    pool_entries,
    write_summary,
)
from aisim_gym.envs.pool_scales import pool_scales, pools_of, scale_table
from aisim_gym.envs.step_outcome import StepOutcome
from aisim_gym.fleet.tables import PREFILL
from aisim_gym.fleet.world import World
from aisim_gym.replay import FleetDescription, PoolSnapshot, ScalingSnapshot

POOL_ENTRIES = (
    ("active", "workers / max_workers"),
    ("starting", "workers / max_workers"),
    ("draining", "workers / max_workers"),
    ("queued_requests", "log scale to 10 000"),
    ("queued_tokens", "log scale to 10^8"),
    ("running_requests", "log scale to 10 000"),
    ("batch_tokens", "prompt tokens / token budget"),
    ("kv_used", "KV tokens / KV capacity"),
    ("pass_time", "seconds / 0.5"),
)
"""Name and unit of the entries of a pool. Engine entries are sums over the latest pass of every
worker that reported one, shares and times are means over them, 0 if none did."""

FLEET_ENTRIES = (
    ("request_rate", "requests/s, log scale to 1000"),
    ("completion_rate", "requests/s, log scale to 1000"),
    ("in_flight", "requests, log scale to 10 000"),
    ("overdue", "requests, log scale to 10 000"),
    ("bad", "share of the requests that ended"),
    ("mean_input", "tokens, log scale to 10^6"),
    ("mean_output", "tokens, log scale to 10^6"),
    ("ttft", "mean / limit / 4"),
    ("itl", "mean / limit / 4"),
    ("gpus", "share of the most GPUs"),
    ("time", "share of the horizon"),
)
"""Name and unit of the entries behind the pools. Lengths and latencies are means over completed
requests, 0 if none completed; what arrived and is in flight shows also when none does."""


class Observation(Protocol):
    """What an environment needs from its observation object."""

    def space(self) -> spaces.Space[Any]:
        """Return the observation space."""
        ...

    def observe(self, snapshot: ScalingSnapshot, episode: EpisodeNow) -> Any:
        """Return what the agent sees.

        Args:
            snapshot: The fleet at the tick, or at the end of the episode.
            episode: What the snapshot does not say.
        """
        ...


class WorldObservation(Observation, Protocol):
    """An observation object that can do without a snapshot."""

    def observe_world(self, world: World, horizon_ms: float, step: StepOutcome) -> tuple[Any, int]:
        """Return what the agent sees, read from the tables of the replay.

        Args:
            world: The tables at a tick, or at the end of the episode; only to be read.
            horizon_ms: Length of the episode.
            step: What happened in the last step.

        Returns:
            A new element of the space, the same as from ``observe``; how many of its entries had to
            be clipped.
        """
        ...


class SummaryObservation:
    """Workers, forward-pass metrics and traffic as one vector of numbers in 0..1.

    The entries of :data:`POOL_ENTRIES` for each pool (prefill first), then those of
    :data:`FLEET_ENTRIES`. A log scale to ``m`` is ``log(1 + x) / log(1 + m)``. Active and starting
    workers together are the current target of a pool.

    Attributes:
        names: Name of each entry, e.g. ``decode_kv_used``.
        units: Unit of each entry.
    """

    def __init__(self, fleet: FleetDescription) -> None:
        """Build the observation for a fleet with limits and service levels."""
        assert fleet.ttft_slo_ms is not None
        assert fleet.itl_slo_ms is not None
        self._scales = pool_scales(fleet)
        self._scale_table = scale_table(self._scales)
        self._ttft_slo_ms = float(fleet.ttft_slo_ms)
        self._itl_slo_ms = float(fleet.itl_slo_ms)
        self.names = tuple(f"{pool}_{name}" for pool in pools_of(fleet) for name, _ in POOL_ENTRIES)
        self.names += tuple(name for name, _ in FLEET_ENTRIES)
        self.units = tuple(unit for _, unit in POOL_ENTRIES) * len(self._scales)
        self.units += tuple(unit for _, unit in FLEET_ENTRIES)

    def space(self) -> spaces.Box:
        """Return the unit box."""
        return spaces.Box(0.0, 1.0, (len(self.names),), np.float32)

    def observe(self, snapshot: ScalingSnapshot, episode: EpisodeNow) -> list[float]:
        """Return the entries, not clipped."""
        values: list[float] = []
        gpu_frac = 0.0
        for scale in self._scales:
            pool = snapshot.prefill if scale.pool_id == PREFILL else snapshot.decode
            values += pool_entries(_pool_sums(pool), scale)
            gpu_frac += pool.num_non_draining * scale.gpu_frac
        traffic = snapshot.traffic
        sums = TrafficSums(
            traffic.duration_s,
            traffic.num_req,
            traffic.shape_count,
            traffic.avg_isl,
            traffic.avg_osl,
            traffic.avg_ttft_ms / self._ttft_slo_ms,
            traffic.avg_itl_ms / self._itl_slo_ms,
        )
        return [*values, *fleet_entries(sums, episode, gpu_frac)]

    def observe_world(
        self, world: World, horizon_ms: float, step: StepOutcome
    ) -> tuple[NDArray[np.float32], int]:
        """Return the entries, clipped, and how many had to be; see :class:`WorldObservation`."""
        values = np.empty(len(self.names), np.float32)
        num_clipped = write_summary(
            world,
            self._scale_table,
            self._ttft_slo_ms,
            self._itl_slo_ms,
            step.mean_overdue,
            step.bad_frac,
            horizon_ms,
            values,
        )
        return values, num_clipped


def _pool_sums(pool: PoolSnapshot) -> PoolSums:
    fpms = pool.fpms
    wall_s = 0.0
    for fpm in fpms:  # sum() would round differently from Python 3.12 on
        wall_s += fpm.wall_time
    return PoolSums(
        active=len(pool.active_ids),
        starting=len(pool.starting_ids),
        draining=len(pool.draining_ids),
        records=len(fpms),
        workers=len({fpm.worker_id for fpm in fpms}),
        queued=sum(fpm.num_queued_prefill + fpm.num_queued_decode for fpm in fpms),
        queued_tokens=sum(
            fpm.sum_queued_prefill_tokens + fpm.sum_queued_decode_kv_tokens for fpm in fpms
        ),
        running=sum(fpm.num_prefill_requests + fpm.num_decode_requests for fpm in fpms),
        batch_tokens=sum(fpm.sum_prefill_tokens for fpm in fpms),
        kv_tokens=sum(
            fpm.sum_prefill_tokens + fpm.sum_prefill_kv_tokens + fpm.sum_decode_kv_tokens
            for fpm in fpms
        ),
        wall_s=wall_s,
    )


def begin_episode(observation: Observation) -> None:
    """Let an observation object that remembers anything forget the last episode."""
    begin = getattr(observation, "begin_episode", None)
    if begin is not None:
        begin()


def fit_to_space(
    values: Any, space: spaces.Space[Any], name: str = "observation"
) -> tuple[Any, int]:
    """Return ``values`` as a fresh element of a space, and how many entries had to be clipped.

    Boxes are cast and clipped, masks are cast, ``Dict`` spaces part by part; elements of other
    spaces are returned as they are.

    Args:
        values: What an observation object returned.
        space: The space that it should belong to.
        name: Of the observation, for messages.

    Raises:
        ValueError: If an entry is NaN, a shape is wrong or a key is missing or unknown.
    """
    if isinstance(space, spaces.Dict):
        return _fit_parts(values, space, name)
    if isinstance(space, spaces.MultiBinary):
        return np.array(values, space.dtype), 0
    if not isinstance(space, spaces.Box):
        return values, 0
    given: NDArray[Any] = np.asarray(values, np.float64)
    if given.shape != space.shape:
        raise ValueError(f"{name}: got shape {given.shape}, expected {space.shape}")
    if np.isnan(given).any():
        raise ValueError(f"{name}: entry {int(np.argmax(np.isnan(given)))} is NaN")
    fitted = np.clip(given.astype(space.dtype), space.low, space.high)
    num_clipped = np.count_nonzero((given < space.low) | (given > space.high))
    return fitted, int(num_clipped)


def _fit_parts(values: Any, space: spaces.Dict, name: str) -> tuple[dict[str, Any], int]:
    keys = list(values) if isinstance(values, Mapping) else values
    if not isinstance(values, Mapping) or set(values) != set(space):
        raise ValueError(f"{name}: got {keys!r}, expected a mapping with {', '.join(space)}")
    fitted, num_clipped = {}, 0
    for key, part in space.items():
        fitted[key], clipped = fit_to_space(values[key], part, f"{name}[{key!r}]")
        num_clipped += clipped
    return fitted, num_clipped

"""Observations: from a snapshot to what an agent sees.

An observation object has two methods, ``space()`` and ``observe(snapshot, time_frac)``. The
environment casts what it returns to a box, clips it (``info["obs_clipped"]`` counts) and refuses
NaN. An object may also have the quicker :meth:`WorldObservation.observe_world`. Histories are a
matter of ``gymnasium.wrappers.FrameStackObservation``.

Example: two queue lengths instead of the default vector.

    >>> import gymnasium
    >>> import numpy as np
    >>> from gymnasium.spaces import Box
    >>> import aisim_gym.envs
    >>> class QueueLengths:
    ...     def space(self):
    ...         return Box(0.0, 1000.0, (2,), np.float32)
    ...     def observe(self, snapshot, time_frac):
    ...         prefill = sum(fpm.num_queued_prefill for fpm in snapshot.prefill.fpms)
    ...         decode = sum(fpm.num_queued_decode for fpm in snapshot.decode.fpms)
    ...         return [prefill, decode]
    >>> env = gymnasium.make("aisim_gym/Disaggregated-v0", observation=QueueLengths())
    >>> observation, info = env.reset(seed=1)
    >>> observation.shape, observation.dtype
    ((2,), dtype('float32'))
    >>> env.close()
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aisim_gym.envs.metrics_entries import (
    PoolScale,
    PoolSums,
    pool_entries,
    traffic_entries,
    write_metrics,
)
from aisim_gym.fleet.tables import DECODE, PREFILL
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

TRAFFIC_ENTRIES = (
    ("request_rate", "requests/s, log scale to 1000"),
    ("completion_rate", "requests/s, log scale to 1000"),
    ("mean_input", "tokens, log scale to 10^6"),
    ("mean_output", "tokens, log scale to 10^6"),
    ("ttft", "mean / limit / 4"),
    ("itl", "mean / limit / 4"),
    ("time", "share of the horizon"),
)
"""Name and unit of the entries behind the pools; means are 0 if no request completed."""


class Observation(Protocol):
    """What an environment needs from its observation object."""

    def space(self) -> spaces.Space[Any]:
        """Return the observation space."""
        ...

    def observe(self, snapshot: ScalingSnapshot, time_frac: float) -> Any:
        """Return what the agent sees.

        Args:
            snapshot: The fleet at the tick, or at the end of the episode.
            time_frac: Simulated time as a share of the horizon, 0..1.
        """
        ...


class WorldObservation(Observation, Protocol):
    """An observation object that can do without a snapshot."""

    def observe_world(self, world: World, horizon_ms: float) -> tuple[Any, int]:
        """Return what the agent sees, read from the tables of the replay.

        Args:
            world: The tables at a tick, or at the end of the episode; only to be read.
            horizon_ms: Length of the episode.

        Returns:
            A new element of the space, the same as from ``observe``; how many of its entries had to
            be clipped.
        """
        ...


class MetricsObservation:
    """Workers, forward-pass metrics and traffic as one vector of numbers in 0..1.

    The entries of :data:`POOL_ENTRIES` for each pool (prefill first), then those of
    :data:`TRAFFIC_ENTRIES`. A log scale to ``m`` is ``log(1 + x) / log(1 + m)``.

    Attributes:
        names: Name of each entry, e.g. ``decode_kv_used``.
    """

    def __init__(self, fleet: FleetDescription) -> None:
        """Build the observation for a fleet with limits and service levels."""
        pools = {"workers": (DECODE, fleet.decode)}
        if fleet.prefill is not None:
            pools = {"prefill": (PREFILL, fleet.prefill), "decode": (DECODE, fleet.decode)}
        assert fleet.limits.max_workers is not None
        assert fleet.ttft_slo_ms is not None
        assert fleet.itl_slo_ms is not None
        self._scales = [
            PoolScale(
                pool_id,
                float(fleet.limits.max_workers),
                float(role.max_batched_tokens),
                float(role.max_kv_tokens),
            )
            for pool_id, role in pools.values()
        ]
        self._pool_scales = np.array(self._scales, np.float64)
        self._ttft_slo_ms = float(fleet.ttft_slo_ms)
        self._itl_slo_ms = float(fleet.itl_slo_ms)
        self.names = tuple(f"{pool}_{name}" for pool in pools for name, _ in POOL_ENTRIES)
        self.names += tuple(name for name, _ in TRAFFIC_ENTRIES)

    def space(self) -> spaces.Box:
        """Return the unit box."""
        return spaces.Box(0.0, 1.0, (len(self.names),), np.float32)

    def observe(self, snapshot: ScalingSnapshot, time_frac: float) -> list[float]:
        """Return the entries, not clipped."""
        values: list[float] = []
        for scale in self._scales:
            pool = snapshot.prefill if scale.pool_id == PREFILL else snapshot.decode
            values += pool_entries(_pool_sums(pool), scale)
        traffic = snapshot.traffic
        values += traffic_entries(
            traffic.duration_s,
            traffic.num_req,
            traffic.shape_count,
            traffic.avg_isl,
            traffic.avg_osl,
            traffic.avg_ttft_ms / self._ttft_slo_ms,
            traffic.avg_itl_ms / self._itl_slo_ms,
        )
        return [*values, time_frac]

    def observe_world(self, world: World, horizon_ms: float) -> tuple[NDArray[np.float32], int]:
        """Return the entries, clipped, and how many had to be; see :class:`WorldObservation`."""
        values = np.empty(len(self.names), np.float32)
        num_clipped = write_metrics(
            world, self._pool_scales, self._ttft_slo_ms, self._itl_slo_ms, horizon_ms, values
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


OBSERVATIONS: Mapping[str, Callable[..., Observation]] = {"summary": MetricsObservation}
"""Class of each named observation."""


def fit_to_space(values: Any, space: spaces.Space[Any]) -> tuple[Any, int]:
    """Return ``values`` as a fresh element of a box, and how many entries had to be clipped.

    Elements of other spaces are returned as they are.

    Raises:
        ValueError: If an entry is NaN or the shape is wrong.
    """
    if not isinstance(space, spaces.Box):
        return values, 0
    given: NDArray[Any] = np.asarray(values, np.float64)
    if given.shape != space.shape:
        raise ValueError(f"observation: got shape {given.shape}, expected {space.shape}")
    if np.isnan(given).any():
        raise ValueError(f"observation: entry {int(np.argmax(np.isnan(given)))} is NaN")
    fitted = np.clip(given.astype(space.dtype), space.low, space.high)
    num_clipped = np.count_nonzero((given < space.low) | (given > space.high))
    return fitted, int(num_clipped)

"""Observations: from a snapshot to what an agent sees.

An observation object has two methods, ``space()`` and ``observe(snapshot, time_frac)``. The
environment casts what it returns to a box, clips it (``info["obs_clipped"]`` counts) and refuses
NaN. Histories are a matter of ``gymnasium.wrappers.FrameStackObservation``.

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

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aisim_gym.replay import FleetDescription, PoolSnapshot, RoleDescription, ScalingSnapshot

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

MOST_REQUESTS, MOST_TOKENS, MOST_RPS, MOST_LENGTH = 1e4, 1e8, 1e3, 1e6
LONGEST_PASS_S = 0.5
HIGHEST_SLO_RATIO = 4.0


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


class MetricsObservation:
    """Workers, forward-pass metrics and traffic as one vector of numbers in 0..1.

    The entries of :data:`POOL_ENTRIES` for each pool (prefill first), then those of
    :data:`TRAFFIC_ENTRIES`. A log scale to ``m`` is ``log(1 + x) / log(1 + m)``.

    Attributes:
        names: Name of each entry, e.g. ``decode_kv_used``.
    """

    def __init__(self, fleet: FleetDescription) -> None:
        """Build the observation for a fleet with limits and service levels."""
        pools = {"workers": fleet.decode}
        if fleet.prefill is not None:
            pools = {"prefill": fleet.prefill, "decode": fleet.decode}
        assert fleet.limits.max_workers is not None
        assert fleet.ttft_slo_ms is not None
        assert fleet.itl_slo_ms is not None
        self._pools = pools
        self._max_workers = fleet.limits.max_workers
        self._ttft_slo_ms = fleet.ttft_slo_ms
        self._itl_slo_ms = fleet.itl_slo_ms
        self.names = tuple(f"{pool}_{name}" for pool in pools for name, _ in POOL_ENTRIES)
        self.names += tuple(name for name, _ in TRAFFIC_ENTRIES)

    def space(self) -> spaces.Box:
        """Return the unit box."""
        return spaces.Box(0.0, 1.0, (len(self.names),), np.float32)

    def observe(self, snapshot: ScalingSnapshot, time_frac: float) -> list[float]:
        """Return the entries, not clipped."""
        values: list[float] = []
        for name, role in self._pools.items():
            pool = snapshot.prefill if name == "prefill" else snapshot.decode
            values += self._pool_entries(pool, role)
        traffic = snapshot.traffic
        per_s = 1.0 / traffic.duration_s if traffic.duration_s > 0.0 else 0.0
        values += [
            _log_scale(traffic.num_req * per_s, MOST_RPS),
            _log_scale(traffic.shape_count * per_s, MOST_RPS),
            _log_scale(traffic.avg_isl, MOST_LENGTH),
            _log_scale(traffic.avg_osl, MOST_LENGTH),
            traffic.avg_ttft_ms / self._ttft_slo_ms / HIGHEST_SLO_RATIO,
            traffic.avg_itl_ms / self._itl_slo_ms / HIGHEST_SLO_RATIO,
            time_frac,
        ]
        return values

    def _pool_entries(self, pool: PoolSnapshot, role: RoleDescription) -> list[float]:
        queued = queued_tokens = running = batch_tokens = kv_tokens = 0
        wall_s = 0.0
        for fpm in pool.fpms:
            queued += fpm.num_queued_prefill + fpm.num_queued_decode
            queued_tokens += fpm.sum_queued_prefill_tokens + fpm.sum_queued_decode_kv_tokens
            running += fpm.num_prefill_requests + fpm.num_decode_requests
            batch_tokens += fpm.sum_prefill_tokens
            kv_tokens += fpm.sum_prefill_tokens + fpm.sum_prefill_kv_tokens
            kv_tokens += fpm.sum_decode_kv_tokens
            wall_s += fpm.wall_time
        num_records = max(1, len(pool.fpms))
        num_workers = max(1, len({fpm.worker_id for fpm in pool.fpms}))
        return [
            len(pool.active_ids) / self._max_workers,
            len(pool.starting_ids) / self._max_workers,
            len(pool.draining_ids) / self._max_workers,
            _log_scale(queued, MOST_REQUESTS),
            _log_scale(queued_tokens, MOST_TOKENS),
            _log_scale(running, MOST_REQUESTS),
            batch_tokens / (num_records * role.max_batched_tokens),
            kv_tokens / (num_workers * role.max_kv_tokens),
            wall_s / num_records / LONGEST_PASS_S,
        ]


OBSERVATIONS: Mapping[str, Callable[..., Observation]] = {"metrics": MetricsObservation}
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


def _log_scale(value: float, most: float) -> float:
    return math.log1p(value) / math.log1p(most)

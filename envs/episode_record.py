"""Recorded numbers per tick for rendering an episode.

Latencies are means over the requests that completed since the previous tick. Queues and KV use come
from each rank's latest pass, as for planners.
"""

import copy
from collections.abc import Iterator
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from aisim_gym.envs.episode_account import Paid
from aisim_gym.envs.outcomes import Outcomes
from aisim_gym.envs.targets import Targets
from aisim_gym.fleet.readings import kv_frac, kv_tokens
from aisim_gym.replay import FleetDescription, PoolSnapshot, RoleDescription, ScalingSnapshot

POOL_TICK_DTYPE = np.dtype(
    [
        ("active", np.int64),
        ("starting", np.int64),
        ("draining", np.int64),
        ("target", np.int64),  # in force up to this tick
        ("queued", np.int64),  # requests
        ("kv_frac", np.float64),
    ]
)

FIRST_CAPACITY = 64


class PoolLoad(NamedTuple):
    """Load of the active workers of a pool.

    Attributes:
        running: Requests in a batch.
        queued: Requests that wait for a batch.
        kv_frac: KV tokens of the batches, as a share of the capacity of the workers that report.
    """

    running: int
    queued: int
    kv_frac: float


def pool_load(pool: PoolSnapshot, role: RoleDescription) -> PoolLoad:
    """Return the load of a pool according to its latest passes."""
    running = sum(fpm.num_prefill_requests + fpm.num_decode_requests for fpm in pool.fpms)
    queued = sum(fpm.num_queued_prefill + fpm.num_queued_decode for fpm in pool.fpms)
    held_tokens = sum(map(kv_tokens, pool.fpms))
    num_workers = len({fpm.worker_id for fpm in pool.fpms})
    return PoolLoad(running, queued, kv_frac(held_tokens, num_workers, role.max_kv_tokens))


class EpisodeRecord:
    """The ticks of one episode, in a growing table.

    Attributes:
        fleet: Fleet of the episode.
        horizon_s: Time at which it is truncated.
    """

    def __init__(self, fleet: FleetDescription, horizon_s: float) -> None:
        """Create an empty record."""
        self.fleet = fleet
        self.horizon_s = horizon_s
        self._count = 0
        num_pools = len(self.pool_names)
        dtype = [
            ("end_s", np.float64),
            ("arrived", np.int64),
            ("completed", np.int64),
            ("ttft_ms", np.float64),  # NaN if no request completed
            ("itl_ms", np.float64),
            ("in_flight", np.int64),
            ("gpu_hours", np.float64),  # of the episode so far
            ("gpu_usd", np.float64),  # likewise
            ("good", np.int64),  # of the steps so far
            ("ended", np.int64),  # likewise, completed or rejected
            ("pools", POOL_TICK_DTYPE, (num_pools,)),
        ]
        self._table = np.zeros(FIRST_CAPACITY, dtype)

    @property
    def pool_names(self) -> tuple[str, ...]:
        """The pools in the order of their columns."""
        return ("workers",) if self.fleet.prefill is None else ("prefill", "decode")

    def __len__(self) -> int:
        """Return the number of ticks."""
        return self._count

    def copy(self) -> Self:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin._table = self._table.copy()
        return twin

    def add(
        self,
        snapshot: ScalingSnapshot,
        targets: Targets,
        in_flight: int,
        paid: Paid,
        totals: Outcomes,
    ) -> None:
        """Append a tick.

        Args:
            snapshot: The current fleet, and its traffic since the previous tick.
            targets: Targets in force since the previous tick.
            in_flight: Requests that arrived and have not ended.
            paid: Cost of the episode so far.
            totals: Outcomes of the steps so far.
        """
        if self._count == len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        traffic, row = snapshot.traffic, self._table[self._count]
        row["end_s"] = snapshot.now_ms / 1000.0
        row["arrived"] = traffic.num_req
        row["completed"] = traffic.shape_count
        row["ttft_ms"] = traffic.avg_ttft_ms if traffic.ttft_count else np.nan
        row["itl_ms"] = traffic.avg_itl_ms if traffic.itl_count else np.nan
        row["in_flight"] = in_flight
        row["gpu_hours"], row["gpu_usd"] = paid
        row["good"] = totals.good
        row["ended"] = totals.completed + totals.rejected
        for i, (pool, role, target) in enumerate(self._pools(snapshot, targets)):
            load = pool_load(pool, role)
            row["pools"][i] = (
                len(pool.active_ids),
                len(pool.starting_ids),
                len(pool.draining_ids),
                target,
                load.queued,
                load.kv_frac,
            )
        self._count += 1

    def _pools(
        self, snapshot: ScalingSnapshot, targets: Targets
    ) -> Iterator[tuple[PoolSnapshot, RoleDescription, int]]:
        if self.fleet.prefill is not None:
            assert targets.prefill is not None
            yield snapshot.prefill, self.fleet.prefill, targets.prefill
        yield snapshot.decode, self.fleet.decode, targets.decode

    def edges_s(self) -> NDArray[np.float64]:
        """Return 0 followed by the times of the ticks; shape (ticks + 1,)."""
        return np.concatenate([[0.0], self._table["end_s"][: self._count]])

    def column(self, name: str) -> NDArray[np.float64]:
        """Return a column of the table, shape (ticks,)."""
        return self._table[name][: self._count].astype(np.float64)

    def pool_column(self, pool: int, name: str) -> NDArray[np.float64]:
        """Return a column of a pool, shape (ticks,)."""
        return self._table["pools"][name][: self._count, pool].astype(np.float64)

    def rate_rps(self, name: str) -> NDArray[np.float64]:
        """Return ``arrived`` or ``completed`` per second; NaN for an empty interval."""
        duration_s = np.diff(self.edges_s())
        rates = np.full(self._count, np.nan)
        np.divide(self.column(name), duration_s, out=rates, where=duration_s > 0.0)
        return rates

"""The named observations, defined from a snapshot: what compiled code must read from the tables."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aisim_gym.envs.pool_scales import pool_scales, pools_of
from aisim_gym.fleet.entries import (
    EpisodeNow,
    TrafficSums,
    fleet_entries,
    pool_entries,
    rank_entries,
)
from aisim_gym.fleet.readings import PoolScale, PoolSums
from aisim_gym.fleet.tables import PREFILL
from aisim_gym.replay import FleetDescription, PoolSnapshot, ScalingSnapshot

SILENT = (0.0,) * 10
"""Entries of a rank without a report."""


def summary(fleet: FleetDescription, snapshot: ScalingSnapshot, episode: EpisodeNow) -> list[float]:
    """Return the entries of ``summary``, not clipped."""
    assert fleet.ttft_slo_ms is not None
    assert fleet.itl_slo_ms is not None
    values: list[float] = []
    gpu_frac = 0.0
    for scale in pool_scales(fleet):
        pool = _pool(snapshot, scale)
        values += pool_entries(pool_sums(pool), scale)
        gpu_frac += pool.num_non_draining * scale.gpu_frac
    traffic = snapshot.traffic
    sums = TrafficSums(
        traffic.duration_s,
        traffic.num_req,
        traffic.shape_count,
        traffic.avg_isl,
        traffic.avg_osl,
        traffic.avg_ttft_ms / fleet.ttft_slo_ms,
        traffic.avg_itl_ms / fleet.itl_slo_ms,
    )
    return [*values, *fleet_entries(sums, episode, gpu_frac)]


def per_rank(
    fleet: FleetDescription, snapshot: ScalingSnapshot, episode: EpisodeNow
) -> dict[str, Any]:
    """Return vector, tables and masks of ``per_rank``, not clipped."""
    seen: dict[str, Any] = {"fleet": summary(fleet, snapshot, episode)}
    for (name, (pool, _)), scale in zip(pools_of(fleet).items(), pool_scales(fleet), strict=True):
        most = fleet.limits.of_pool(pool)[1]
        assert most is not None
        ranks = rank_rows(_pool(snapshot, scale), scale)
        table = np.zeros((most * int(scale.dp_size), len(SILENT)))
        table[: len(ranks)] = ranks
        seen[name] = table.reshape(-1)
        seen[f"{name}_mask"] = np.arange(len(table)) < len(ranks)
    return seen


class History:
    """The last four summaries, by definition."""

    def __init__(self) -> None:
        self._past: list[list[float]] = []

    def __call__(
        self, fleet: FleetDescription, snapshot: ScalingSnapshot, episode: EpisodeNow
    ) -> NDArray[np.float64]:
        """Return them with the present one, the oldest first."""
        now = summary(fleet, snapshot, episode)
        self._past = [*(self._past or [now] * 3), now][-4:]
        return np.concatenate(self._past)


def pool_sums(pool: PoolSnapshot) -> PoolSums:
    """Return the sums over the records of a pool."""
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


def rank_rows(pool: PoolSnapshot, scale: PoolScale) -> list[tuple[float, ...]]:
    """Return the entries of each rank of the active workers."""
    reports: dict[Any, Any] = {(fpm.worker_id, fpm.dp_rank): fpm for fpm in pool.fpms}
    return [
        rank_entries(reports[key], scale) if key in reports else SILENT
        for key in ((w, r) for w in pool.active_ids for r in range(int(scale.dp_size)))
    ]


def _pool(snapshot: ScalingSnapshot, scale: PoolScale) -> PoolSnapshot:
    return snapshot.prefill if scale.pool_id == PREFILL else snapshot.decode

"""Builders: a fleet description and snapshots of it, with only what a test is about spelt out."""

from collections.abc import Callable
from typing import Any

import pytest

from aisim_gym.replay import (
    FleetDescription,
    ForwardPassMetrics,
    PoolSnapshot,
    RoleDescription,
    ScalingLimits,
    ScalingSnapshot,
    TrafficStatistics,
)

ROLE = RoleDescription(
    startup_s=20.0,
    gpus_per_worker=1,
    dp_size=1,
    max_batched_tokens=8192,
    max_seqs=256,
    max_kv_tokens=131_072,
    context_length=None,
    block_size=64,
)

PoolBuilder = Callable[..., PoolSnapshot]
SnapshotBuilder = Callable[..., ScalingSnapshot]
FleetBuilder = Callable[..., FleetDescription]


@pytest.fixture
def make_record() -> Callable[..., ForwardPassMetrics]:
    """Return a builder of records that are zero apart from what is given."""

    def build(worker_id: int = 0, dp_rank: int = 0, **metrics: float) -> ForwardPassMetrics:
        values: dict[str, Any] = dict.fromkeys(ForwardPassMetrics._fields, 0)
        values |= {"wall_time": 0.05, **metrics, "worker_id": worker_id, "dp_rank": dp_rank}
        return ForwardPassMetrics(**values)

    return build


@pytest.fixture
def make_pool(make_record: Callable[..., ForwardPassMetrics]) -> PoolBuilder:
    """Return a builder of pools: decode requests running on each active worker, None = silent."""

    def build(
        conc: list[int | None], starting: int = 0, draining: int = 0, **metrics: float
    ) -> PoolSnapshot:
        ids = range(len(conc))
        after = len(conc)
        return PoolSnapshot(
            active_ids=tuple(ids),
            starting_ids=tuple(range(after, after + starting)),
            draining_ids=tuple(range(after + starting, after + starting + draining)),
            fpms=tuple(
                make_record(worker_id, num_decode_requests=requests, **metrics)
                for worker_id, requests in zip(ids, conc, strict=True)
                if requests is not None
            ),
        )

    return build


@pytest.fixture
def make_snapshot() -> SnapshotBuilder:
    """Return a builder of snapshots."""

    def build(
        now_s: float,
        decode: PoolSnapshot,
        prefill: PoolSnapshot | None = None,
        **traffic: float,
    ) -> ScalingSnapshot:
        values: dict[str, Any] = dict.fromkeys(TrafficStatistics._fields, 0)
        values |= {"duration_s": 15.0, "avg_accept_length": None, **traffic}
        return ScalingSnapshot(
            tick_ordinal=0,
            now_ms=now_s * 1000.0,
            prefill=prefill or PoolSnapshot(),
            decode=decode,
            traffic=TrafficStatistics(**values),
        )

    return build


@pytest.fixture
def make_fleet() -> FleetBuilder:
    """Return a builder of fleets of one-GPU workers."""

    def build(mode: str = "agg", **limits: Any) -> FleetDescription:
        bounds = ScalingLimits(**{"tick_s": 15.0, **limits})
        if mode == "agg":
            return FleetDescription("agg", ROLE, limits=bounds)
        return FleetDescription("disagg", ROLE, ROLE, limits=bounds)

    return build

"""What planners read from forward-pass metrics (policies.md §0.2, §0.3)."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from aisim_gym.policies.length_memory import LengthMemory
from aisim_gym.policies.role_view import Role, RoleObserver, target_without_active_workers
from aisim_gym.replay import (
    FleetDescription,
    ForwardPassMetrics,
    PoolSnapshot,
    ScalingSnapshot,
    TrafficStatistics,
)

Snapshots = Callable[..., ScalingSnapshot]
Records = Callable[..., ForwardPassMetrics]
Pools = Callable[..., PoolSnapshot]
Fleets = Callable[..., FleetDescription]


@pytest.mark.parametrize(
    ("role", "signals"),
    [
        ("prefill", (3, 5, 700, 0.375, 0.375, 32_768 / 0.5, 8.0)),
        ("decode", (4, 8, 13_107.2, 0.5, 0.6, 32_768 / 0.5, 8.0)),
        ("agg", (7, 13, 700, 0.875, 0.6 + 700 / 131_072, 32_768 / 0.5, 8.0)),
    ],
)
def test_signals_of_a_record(
    role: Role,
    signals: tuple[float, ...],
    make_record: Records,
    make_snapshot: Snapshots,
    make_fleet: Fleets,
) -> None:
    record = make_record(
        wall_time=0.5,
        num_prefill_requests=2,
        sum_prefill_tokens=32_768,
        sum_prefill_kv_tokens=16_384,
        num_decode_requests=4,
        sum_decode_kv_tokens=65_536,
        num_queued_prefill=3,
        sum_queued_prefill_tokens=700,
        num_queued_decode=4,
        sum_queued_decode_kv_tokens=13_107.2,
    )
    pool = PoolSnapshot(active_ids=(0,), fpms=(record,))
    snapshot = make_snapshot(1.0, pool, prefill=pool)
    view = RoleObserver(role, make_fleet().decode).observe(snapshot, LengthMemory())
    assert view.workers[0] == pytest.approx(signals)


def test_record_is_carried_forward_until_its_worker_leaves(
    make_pool: Pools, make_snapshot: Snapshots, make_fleet: Fleets
) -> None:
    observer, lengths = RoleObserver("decode", make_fleet().decode), LengthMemory()
    observer.observe(make_snapshot(1.0, make_pool([5, 7])), lengths)
    silent = observer.observe(make_snapshot(2.0, make_pool([None, 9])), lengths)
    assert [worker.conc for worker in silent.workers] == [5, 9]
    left = observer.observe(make_snapshot(3.0, PoolSnapshot(active_ids=(1,))), lengths)
    assert [worker.conc for worker in left.workers] == [9]
    back = observer.observe(make_snapshot(4.0, make_pool([None, None])), lengths)
    assert (len(back.workers), back.num_silent) == (1, 1)


def test_record_that_is_not_finite_counts_as_missing(
    make_pool: Pools, make_snapshot: Snapshots, make_fleet: Fleets
) -> None:
    pool = make_pool([5], sum_decode_kv_tokens=math.nan)
    view = RoleObserver("decode", make_fleet().decode).observe(
        make_snapshot(1.0, pool), LengthMemory()
    )
    assert view.num_silent == 1


def test_ranks_of_a_worker_are_summed_but_its_fullest_one_sets_the_kv_share(
    make_record: Records, make_snapshot: Snapshots, make_fleet: Fleets
) -> None:
    records = (
        make_record(0, 0, num_decode_requests=3, sum_decode_kv_tokens=65_536),
        make_record(0, 1, num_decode_requests=1, sum_decode_kv_tokens=6_554),
    )
    pool = PoolSnapshot(active_ids=(0,), fpms=records)
    role = replace(make_fleet().decode, dp_size=2)
    view = RoleObserver("decode", role).observe(make_snapshot(1.0, pool), LengthMemory())
    assert view.workers[0].conc == 4
    assert view.workers[0].kv == 1.0  # of the 65 536 tokens that each of the two ranks has


def test_number_of_ranks_does_not_wait_for_their_records(
    make_record: Records, make_snapshot: Snapshots, make_fleet: Fleets
) -> None:
    record = make_record(0, 0, sum_decode_kv_tokens=32_768)
    pool = PoolSnapshot(active_ids=(0,), fpms=(record,))
    snapshot = make_snapshot(1.0, pool, prefill=pool)
    role = replace(make_fleet().decode, dp_size=2, max_seqs=16)
    views = [
        RoleObserver(name, role).observe(snapshot, LengthMemory()) for name in ("prefill", "decode")
    ]
    assert views[1].workers[0].kv == 0.5
    assert [view.slots for view in views] == [16.0, 32.0]


@pytest.mark.parametrize(("role", "slots"), [("prefill", 8.0), ("decode", 131_072 / 1088)])
def test_slots_before_the_first_completion_use_preset_lengths(
    role: Role, slots: float, make_pool: Pools, make_snapshot: Snapshots, make_fleet: Fleets
) -> None:
    snapshot = make_snapshot(1.0, make_pool([1]), prefill=make_pool([1]))
    view = RoleObserver(role, make_fleet().decode).observe(snapshot, LengthMemory())
    assert view.slots == pytest.approx(slots)


def test_lengths_are_kept_through_windows_without_completions(make_snapshot: Snapshots) -> None:
    lengths = LengthMemory()
    pool = PoolSnapshot()
    windows = [
        {"shape_count": 0, "avg_isl": 0.0},
        {"shape_count": 2, "avg_isl": 500.0, "avg_osl": 40.0},
        {"shape_count": 0, "avg_isl": 0.0},
    ]
    seen = []
    for window in windows:
        traffic: TrafficStatistics = make_snapshot(1.0, pool, **window).traffic
        lengths.update(traffic)
        seen.append((lengths.input_tokens, lengths.output_tokens))
    assert seen == [(1024.0, 128.0), (500.0, 40.0), (500.0, 40.0)]


@pytest.mark.parametrize(
    ("starting", "min_workers", "num_req", "expected"),
    [(0, 1, 0, 1), (1, 1, 9, None), (0, 0, 9, 1), (0, 0, 0, None), (1, 3, 0, 3)],
)
def test_role_without_active_workers(
    starting: int,
    min_workers: int,
    num_req: int,
    expected: int | None,
    make_pool: Pools,
    make_snapshot: Snapshots,
    make_fleet: Fleets,
) -> None:
    snapshot = make_snapshot(1.0, make_pool([], starting=starting), num_req=num_req)
    view = RoleObserver("decode", make_fleet().decode).observe(snapshot, LengthMemory())
    assert target_without_active_workers(view, min_workers, snapshot) == expected

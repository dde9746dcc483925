"""Fixed fleets and schedules (policies.md §1)."""

from collections.abc import Callable
from typing import Any

import pytest

from aisim_gym.policies import Schedule, StaticFromRatio, StaticPolicy
from aisim_gym.replay import FleetDescription, PoolSnapshot, ScalingDecision, ScalingSnapshot

Snapshots = Callable[..., ScalingSnapshot]
Pools = Callable[..., PoolSnapshot]
Fleets = Callable[..., FleetDescription]


def test_split_is_emitted_where_it_differs_and_ticks_stop(
    make_fleet: Fleets, make_snapshot: Snapshots, make_pool: Pools
) -> None:
    policy = StaticPolicy(prefill=2, decode=3)
    policy.reset(make_fleet("disagg"))
    assert policy.initial_tick_ms() == 0.0
    snapshot = make_snapshot(0.0, make_pool([None]), prefill=make_pool([None], starting=1))
    assert policy.on_tick(snapshot) == ScalingDecision(None, 3, None)


def test_keep_ticking_asks_for_the_next_tick(
    make_fleet: Fleets, make_snapshot: Snapshots, make_pool: Pools
) -> None:
    policy = StaticPolicy(replicas=1, keep_ticking=True)
    policy.reset(make_fleet("agg", tick_s=5.0))
    decision = policy.on_tick(make_snapshot(10.0, make_pool([None])))
    assert decision == ScalingDecision(None, None, 15_000.0)


@pytest.mark.parametrize(
    ("total", "share", "expected"),
    [(8, 0.25, (2, 6)), (9, 0.5, (5, 4)), (8, 0.0, (1, 7)), (8, 1.0, (7, 1))],
)
def test_ratio_is_rounded_half_up_and_leaves_a_worker_for_each_pool(
    total: int,
    share: float,
    expected: tuple[int, int],
    make_fleet: Fleets,
    make_snapshot: Snapshots,
    make_pool: Pools,
) -> None:
    policy = StaticFromRatio(total_gpus=total, prefill_share=share)
    policy.reset(make_fleet("disagg"))
    snapshot = make_snapshot(0.0, make_pool([]), prefill=make_pool([]))
    assert policy.on_tick(snapshot) == ScalingDecision(*expected, None)


def test_schedule_changes_at_the_first_tick_at_or_after_each_entry(
    make_fleet: Fleets, make_snapshot: Snapshots, make_pool: Pools
) -> None:
    policy = Schedule(entries=[(0.0, 1, 1), (20.0, 1, 3), (100.0, 2, 1)])
    policy.reset(make_fleet("disagg", tick_s=15.0))
    assert policy.initial_tick_ms() == 0.0
    one = make_pool([None])
    decisions = [
        policy.on_tick(make_snapshot(s, one, prefill=one)) for s in (0.0, 15.0, 20.0, 101.0)
    ]
    assert decisions == [
        ScalingDecision(None, None, 15_000.0),
        ScalingDecision(None, None, 20_000.0),
        ScalingDecision(None, 3, 35_000.0),
        ScalingDecision(2, None, 116_000.0),
    ]


def test_split_beyond_the_limits_is_clamped_with_a_warning(make_fleet: Fleets) -> None:
    policy = StaticPolicy(prefill=2, decode=12)
    with pytest.warns(UserWarning, match=r"static: \(2, 12\) .* \(1, 7\) are used"):
        policy.reset(make_fleet("disagg", max_gpus=8))


@pytest.mark.parametrize(
    ("parameters", "mode", "message"),
    [
        ({"replicas": 2}, "disagg", "a disaggregated fleet needs prefill, decode"),
        ({"prefill": 1, "decode": 1}, "agg", "an aggregated fleet needs replicas"),
    ],
)
def test_split_for_the_other_topology_is_refused(
    parameters: dict[str, Any], mode: str, message: str, make_fleet: Fleets
) -> None:
    with pytest.raises(ValueError, match=message):
        StaticPolicy(**parameters).reset(make_fleet(mode))


@pytest.mark.parametrize(
    "parameters", [{}, {"prefill": 1}, {"replicas": 1, "decode": 1}, {"replicas": -1}]
)
def test_incomplete_split_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"replicas|prefill"):
        StaticPolicy(**parameters)


def test_schedule_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="ascending"):
        Schedule(entries=[(5.0, 1, 1), (5.0, 1, 2)])

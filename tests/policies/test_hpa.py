"""The HPA policy as a whole: targets, windows, rates, budget (policies.md §3, §19)."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from aisim_gym.envs import ENTRY_POINTS, ScalingEnv
from aisim_gym.metrics.request_times import REQUEST_COMPLETED
from aisim_gym.policies import EnvPolicy, HpaPolicy
from aisim_gym.replay import FleetDescription, PoolSnapshot, ScalingDecision, ScalingSnapshot
from aisim_gym.workload import RequestTable, requests_from_arrays

Snapshots = Callable[..., ScalingSnapshot]
Pools = Callable[..., PoolSnapshot]
Fleets = Callable[..., FleetDescription]

TARGET_10: dict[str, Any] = {"metrics": [{"name": "conc", "decode_target": 10.0}]}


@pytest.fixture
def decide(make_fleet: Fleets, make_snapshot: Snapshots) -> Callable[..., int | None]:
    """Return a function that asks a policy about an aggregated pool."""

    def ask(policy: HpaPolicy, now_s: float, pool: PoolSnapshot, **traffic: float) -> int | None:
        if now_s == 15.0:
            policy.reset(make_fleet("agg"))
        decision = policy.on_tick(make_snapshot(now_s, pool, **traffic))
        target = decision.target_decode
        return None if target is None else int(target)

    return ask


Ask = Callable[..., int | None]


def test_known_answers_of_the_specification(decide: Ask, make_pool: Pools) -> None:
    assert decide(HpaPolicy(**TARGET_10), 15.0, make_pool([16] * 4)) == 7
    assert decide(HpaPolicy(**TARGET_10), 15.0, make_pool([10, 11, 11, 11])) is None
    assert decide(HpaPolicy(**TARGET_10), 15.0, make_pool([12] * 3, starting=1)) is None


def test_rate_limits_a_large_rise(decide: Ask, make_pool: Pools) -> None:
    assert decide(HpaPolicy(**TARGET_10), 15.0, make_pool([90])) == 5


def test_fleet_shrinks_only_after_the_stabilisation_window(decide: Ask, make_pool: Pools) -> None:
    policy, pool = HpaPolicy(**TARGET_10), make_pool([2] * 4)
    targets = {15.0 * i: decide(policy, 15.0 * i, pool) for i in range(1, 24)}
    assert [at_s for at_s, target in targets.items() if target is not None] == [330.0, 345.0]
    assert targets[330.0] == 1


def test_starting_workers_may_be_ignored_when_scaling_down(decide: Ask, make_pool: Pools) -> None:
    options = {**TARGET_10, "down_stabilization_s": 0.0}
    pool = make_pool([5, 5], starting=2)
    assert decide(HpaPolicy(**options), 15.0, pool) == 3  # 30/40 with both on target
    assert decide(HpaPolicy(**options, starting_as="ignored"), 15.0, pool) == 1


def test_largest_recommendation_of_several_metrics_counts(decide: Ask, make_pool: Pools) -> None:
    metrics = [{"decode_target": 10.0}, {"name": "kv", "decode_target": 0.5}]
    pool = make_pool([10, 10], sum_decode_kv_tokens=131_072)
    assert decide(HpaPolicy(metrics=metrics), 15.0, pool) == 4  # kv 1.0 / 0.5


def test_request_rate_as_a_metric_of_the_whole_fleet(decide: Ask, make_pool: Pools) -> None:
    policy = HpaPolicy(metrics=[{"name": "lam", "decode_target": 2.0}])
    assert decide(policy, 15.0, make_pool([1, 1]), num_req=105) == 4  # 7/s over 2/s


@pytest.mark.parametrize(
    ("name", "metric", "value", "expected"),
    [
        ("conc", "num_queued_decode", 53, None),  # 0.4 * 131 072 / 1088 = 48.2: ratio 1.0998
        ("conc", "num_queued_decode", 54, 2),
        ("queue", "num_queued_decode", 6, 3),
        ("kv", "sum_decode_kv_tokens", 131_072, 2),
        ("qtok", "sum_queued_prefill_tokens", 4096, 2),
    ],
)
def test_preset_targets(
    name: str, metric: str, value: float, expected: int | None, decide: Ask, make_pool: Pools
) -> None:
    policy = HpaPolicy(metrics=[{"name": name}])
    assert decide(policy, 15.0, make_pool([0], **{metric: value})) == expected


def test_without_records_the_fleet_is_held(decide: Ask, make_pool: Pools) -> None:
    assert decide(HpaPolicy(), 15.0, make_pool([None, None])) is None


def test_ticks_between_evaluations_are_held(
    make_fleet: Fleets, make_snapshot: Snapshots, make_pool: Pools
) -> None:
    policy = HpaPolicy(**TARGET_10)
    policy.reset(make_fleet("agg", tick_s=5.0))
    assert policy.initial_tick_ms() == 15_000.0
    seen = [policy.on_tick(make_snapshot(s, make_pool([20]))) for s in (5.0, 10.0, 15.0, 20.0)]
    assert [decision.target_decode for decision in seen] == [2, None, None, 2]
    assert [decision.next_tick_ms for decision in seen] == [20_000.0] * 3 + [35_000.0]


def test_both_pools_share_the_gpus(
    make_fleet: Fleets, make_snapshot: Snapshots, make_pool: Pools
) -> None:
    metrics = [{"prefill_target": 10.0, "decode_target": 10.0}]
    policy = HpaPolicy(metrics=metrics)
    policy.reset(make_fleet("disagg", max_gpus=8))
    prefill = make_pool([0, 0], num_queued_prefill=20)  # wants 4
    decision = policy.on_tick(make_snapshot(15.0, make_pool([30] * 4), prefill=prefill))
    # (4, 8) wanted after the rate limit, of 8 GPUs: floor(4 * 8/12) = 2 prefill, 6 decode.
    assert decision == ScalingDecision(None, 6, 30_000.0)


# In a fleet


@pytest.mark.parametrize("env_id", ENTRY_POINTS)
def test_fleet_is_at_its_minimum_a_window_after_the_traffic_has_stopped(env_id: str) -> None:
    """F57: a minute of traffic, then silence; idle workers report that they are idle."""
    at_ms = [*np.linspace(0.0, 60_000.0, 1200), 1_800_000.0]
    requests = requests_from_arrays(at_ms, [1000] * 1201, [200] * 1201)
    metrics = [{"prefill_target": 2.0, "decode_target": 10.0}]
    env, planner = begin(env_id, HpaPolicy(metrics=metrics, down_stabilization_s=120.0), requests)
    workers = []
    for _ in range(30):
        pools = (env.snapshot.prefill, env.snapshot.decode)
        workers.append(sum(pool.num_non_draining for pool in pools))
        observation, *_ = env.step(planner.act())
        assert np.isfinite(observation).all()
    fewest = 1 if env.kind == "agg" else 2
    assert max(workers) > 2 * fewest
    assert set(workers[240 // 15 :]) == {fewest}  # a minute for the rates and for what still runs


@pytest.mark.parametrize("env_id", ENTRY_POINTS)
def test_burst_raises_the_fleet_before_anything_completes(env_id: str) -> None:
    """F58, F59: prompts of 32,000 tokens are seen while they queue, not when they end."""
    requests = requests_from_arrays([10_000.0] * 60, [32_000] * 60, [500] * 60)
    env, planner = begin(env_id, HpaPolicy(metrics=[{"name": "qtok"}]), requests)
    assert not (np.asarray(env.replay.state.world.requests)["status"] == REQUEST_COMPLETED).any()
    *_, info = env.step(planner.act())
    assert info["churn"] > 0


def begin(env_id: str, policy: HpaPolicy, requests: RequestTable) -> tuple[ScalingEnv, EnvPolicy]:
    """Return an environment at its first tick, and the policy that chooses its actions."""
    env = gymnasium.make(env_id, requests=requests, tick_s=15.0).unwrapped
    assert isinstance(env, ScalingEnv)
    env.reset(seed=1)
    planner = EnvPolicy(env, policy)
    planner.reset()
    return env, planner

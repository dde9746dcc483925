"""Policies and fixed fleets on the same episodes."""

from typing import Any

import gymnasium
import pytest
from support.rl_runs import smoke_config

from aisim_gym.policies import HpaPolicy
from aisim_gym.policies.env_runner import EnvPolicy, unwrap
from aisim_gym.policies.rl.evaluation import (
    StaticFleet,
    evaluate,
    evaluate_static_fleets,
    static_fleets,
)
from aisim_gym.policies.rl.training_config import EpisodeSet
from aisim_gym.policies.rl.training_envs import make_env

EPISODES = EpisodeSet(episodes=2, first=9)


def smoke_env(env_id: str = "aisim_gym/Disaggregated-v0", **changes: Any) -> Any:
    return make_env(env_id, {**smoke_config().env.kwargs, **changes})


def test_fixed_fleets_are_all_within_the_limits_with_a_worker_in_each_pool() -> None:
    env = unwrap(smoke_env(max_workers=2, max_gpus=3, min_workers=0))
    assert list(static_fleets(env)) == [
        StaticFleet((1, 1), 2),
        StaticFleet((1, 2), 3),
        StaticFleet((2, 1), 3),
    ]
    env = unwrap(smoke_env(max_workers={"prefill": 1, "decode": 3}, min_workers=1))
    assert [fleet.workers for fleet in static_fleets(env)] == [(1, 1), (1, 2), (1, 3)]
    aggregated = unwrap(smoke_env("aisim_gym/Aggregated-v0"))
    assert [fleet.workers for fleet in static_fleets(aggregated)] == [(1,), (2,), (3,)]


@pytest.mark.parametrize("action", ["deltas", "targets"])
def test_fixed_fleet_has_its_size_from_the_first_moment_to_the_last(action: str) -> None:
    told: list[tuple[int, int]] = []
    results = evaluate_static_fleets(
        smoke_env(max_workers=2, action=action), EPISODES, lambda *progress: told.append(progress)
    )
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4)]
    for fleet, episodes in results.items():
        assert [metrics.mean_gpus for metrics in episodes] == pytest.approx([fleet.gpus] * 2)


def test_everybody_plays_the_same_requests() -> None:
    env = smoke_env()
    actor = EnvPolicy(env, HpaPolicy())
    first, second = (evaluate(env, actor, EPISODES) for _ in range(2))
    assert first == second
    assert first[0].arrived != first[1].arrived
    fixed = evaluate_static_fleets(env, EPISODES, lambda *progress: None)
    for episodes in fixed.values():
        assert [each.arrived for each in episodes] == [each.arrived for each in first]


def test_other_environments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"expected an environment of aisim_gym\.envs"):
        unwrap(gymnasium.make("CartPole-v1"))

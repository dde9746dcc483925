"""Planners against environments decide as they do in a replay."""

from typing import Any

import gymnasium
import numpy as np
import pytest

import aisim_gym.envs  # noqa: F401
from aisim_gym.envs import ScalingEnv
from aisim_gym.envs.fleet_choice import Kind, choose_fleet
from aisim_gym.policies import POLICIES, EnvPolicy, make_policy, run_policy_in_env
from aisim_gym.replay import Replay, ScalingLimits
from aisim_gym.spec import GeneratorSpec, ReplaySpec
from aisim_gym.workload import generate_requests

TRAFFIC: dict[str, Any] = {
    "duration_s": 120.0,
    "base_rate_rps": 2.0,
    "peak_rate_rps": 12.0,
    "period_s": 120.0,
    "spike_at_s": None,
    "seed": 3,
}
FLEETS: dict[str, Kind] = {
    "aisim_gym/Aggregated-v0": "agg",
    "aisim_gym/Disaggregated-v0": "disagg",
}
PARAMETERS: dict[str, dict[str, Any]] = {
    "static aisim_gym/Aggregated-v0": {"replicas": 2},
    "static aisim_gym/Disaggregated-v0": {"prefill": 2, "decode": 1},
    "static-from-ratio": {"total_gpus": 4},
    "schedule": {"entries": [(30.0, 2, 3), (60.0, 1, 1)]},
}
CASES = [(name, env_id) for name in POLICIES for env_id in FLEETS]


@pytest.mark.parametrize("env_id", FLEETS)
def test_hpa_decides_in_the_environment_as_in_a_replay(env_id: str) -> None:
    policy = make_policy("hpa", metrics=[{"prefill_target": 1.0, "decode_target": 4.0}])
    env = gymnasium.make(env_id, workload=TRAFFIC, tick_s=15.0)
    result = run_policy_in_env(env, policy)

    spec = ReplaySpec.from_data(
        {"fleet": choose_fleet(FLEETS[env_id]), "sla": {"ttft_ms": 500.0, "itl_ms": 30.0}}
    )
    requests = generate_requests(GeneratorSpec(**TRAFFIC))
    limits = ScalingLimits(tick_s=15.0, max_workers=8)
    replay = Replay.run(spec, policy, requests, limits=limits)
    assert any(tick.target_decode is not None for tick in replay.ticks)
    assert isinstance(env.unwrapped, ScalingEnv)
    mine = np.asarray(env.unwrapped.replay.state.world.requests)
    others = np.asarray(replay.state.world.requests)
    for column in ("first_token_ms", "terminal_ms", "emitted_tokens"):
        assert np.array_equal(mine[column], others[column], equal_nan=True), column
    assert env.unwrapped.replay.now_ms == replay.now_ms
    assert result.terminated


@pytest.mark.parametrize(("name", "env_id"), CASES)
def test_every_policy_plays_an_episode(name: str, env_id: str) -> None:
    parameters = PARAMETERS.get(name, PARAMETERS.get(f"{name} {env_id}", {}))
    env = gymnasium.make(env_id, workload=TRAFFIC, tick_s=15.0)
    first, second = (run_policy_in_env(env, make_policy(name, **parameters)) for _ in range(2))
    assert first == second
    assert first.terminated
    assert np.isfinite(first.total_reward)


def test_static_policy_is_not_asked_again_and_its_fleet_stays() -> None:
    env = gymnasium.make("aisim_gym/Disaggregated-v0", workload=TRAFFIC, tick_s=15.0)
    run_policy_in_env(env, make_policy("static", prefill=2, decode=1))
    assert isinstance(env.unwrapped, ScalingEnv)
    snapshot = env.unwrapped.snapshot
    assert (snapshot.prefill.num_non_draining, snapshot.decode.num_non_draining) == (2, 1)


def test_delta_actions_move_towards_the_target() -> None:
    env = gymnasium.make("aisim_gym/Aggregated-v0", workload=TRAFFIC, tick_s=15.0, action="deltas")
    run_policy_in_env(env, make_policy("static", replicas=5))
    assert isinstance(env.unwrapped, ScalingEnv)
    assert env.unwrapped.snapshot.decode.num_non_draining == 5  # from 3, one per step


def test_other_environments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"expected an environment of aisim_gym\.envs"):
        EnvPolicy(gymnasium.make("CartPole-v1"), make_policy("hpa"))

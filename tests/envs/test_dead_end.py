"""F52: an episode in which nothing can move any more ends, and its open requests are paid for.

Each request fits, so building the environment cannot refuse it; together they hold memory that each
other waits for. A replay stops with an error there, like the reference.
"""

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import SyncVectorEnv

from aisim_gym.envs import ScalingEnv
from aisim_gym.errors import ReplayError
from aisim_gym.workload import requests_from_arrays

ID = "aisim_gym/Disaggregated-v0"
DEAD_END: dict[str, Any] = {
    "engine": {"backend": "sglang", "num_gpu_blocks": 100, "block_size": 16},
    "initial_workers": 1,
    "requests": requests_from_arrays([0.0] * 3, [342, 796, 786], [4, 494, 333]),
    "tick_s": 1.0,
}


def play(env: Any) -> tuple[list[float], dict[str, Any]]:
    """Keep the fleet until the episode ends; return the rewards and the last info."""
    env.reset(seed=1)
    rewards = []
    while True:
        _, reward, terminated, truncated, info = env.step([0, 0])
        rewards.append(reward)
        if terminated or truncated:
            assert (terminated, truncated) == (False, True)
            return rewards, info


def test_dead_end_truncates_the_episode_as_if_all_stood_still_until_the_horizon(
    make_env: Callable[..., ScalingEnv],
) -> None:
    env = make_env(ID, **DEAD_END, ttft_slo_ms=60_000.0, itl_slo_ms=10_000.0)
    rewards, info = play(env)
    assert info["is_stuck"] == 1
    assert info["now_s"] == 300.0
    assert info["total_gpu_hours"] == pytest.approx(2 * 300.0 / 3600.0)
    assert (info["total_arrived"], info["total_completed"]) == (3, 1)
    assert info["violations"] == 2.0
    assert info["is_success"] is False
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step([0, 0])
    with pytest.raises(ReplayError, match="2 in-flight requests remaining"):
        env.replay.run_to_tick()
    assert play(env) == (rewards, info)


def test_requests_that_cannot_arrive_any_more_count_as_violations(
    make_env: Callable[..., ScalingEnv],
) -> None:
    later = requests_from_arrays(
        [0.0, 0.0, 0.0, 5000.0, 6000.0], [342, 796, 786, 10, 10], [4, 494, 333, 2, 2]
    )
    limits = {"ttft_slo_ms": 60_000.0, "itl_slo_ms": 10_000.0}
    _, info = play(make_env(ID, **{**DEAD_END, **limits, "requests": later}))
    assert info["is_stuck"] == 1
    assert (info["total_arrived"], info["total_completed"]) == (5, 1)
    assert info["violations"] == 4.0


def test_only_a_run_that_is_stuck_can_stand_still(make_env: Callable[..., ScalingEnv]) -> None:
    env = make_env(ID)
    env.reset(seed=1)
    with pytest.raises(ReplayError, match="is not stuck"):
        env.replay.stand_still(1e6)


def test_dead_end_before_the_first_tick_ends_the_first_step(
    make_env: Callable[..., ScalingEnv],
) -> None:
    env = make_env(ID, **{**DEAD_END, "tick_s": 600.0}, horizon_s=1200.0)
    _, info = env.reset(seed=1)
    rewards, last = play(env)
    assert len(rewards) == 1
    assert (info["is_stuck"], last["is_stuck"]) == (1, 1)


def test_dead_end_of_one_environment_leaves_the_others_going() -> None:
    ours = gymnasium.make_vec(ID, num_envs=3, **DEAD_END)
    theirs = SyncVectorEnv([lambda: gymnasium.make(ID, **DEAD_END)] * 3)
    for envs in (ours, theirs):
        envs.reset(seed=1)
    for step in range(40):
        actions = [[0, 0], [0, step % 3], [0, 7]]
        mine, other = ours.step(actions), theirs.step(actions)
        assert (mine[0] == other[0]).all()
        assert [x.tolist() for x in mine[1:4]] == [x.tolist() for x in other[1:4]]
        assert mine[4]["is_stuck"].tolist() == other[4]["is_stuck"].tolist()
    ours.close()
    theirs.close()

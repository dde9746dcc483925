"""Wrappers of this package."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from aisim_gym.envs import ScalingEnv
from aisim_gym.envs.action import ACTIONS
from aisim_gym.envs.wrappers import ActionCooldown

EnvBuilder = Callable[..., ScalingEnv]

AGG, DISAGG = "aisim_gym/Aggregated-v0", "aisim_gym/Disaggregated-v0"


def targets(env: gymnasium.Env[Any, Any]) -> tuple[int, int]:
    base = env.unwrapped
    assert isinstance(base, ScalingEnv)
    return base.snapshot.prefill.num_non_draining, base.snapshot.decode.num_non_draining


@pytest.mark.parametrize("name", ACTIONS)
def test_targets_stay_for_some_ticks_after_a_change(
    env_id: str, name: str, make_env: EnvBuilder
) -> None:
    env = ActionCooldown(make_env(env_id, action=name), num_ticks=3)
    env.reset(seed=1)
    env.action_space.seed(1)
    since_change, held = 99, []
    before = targets(env)
    for _ in range(8):
        *_, terminated, truncated, info = env.step(env.action_space.sample())
        if terminated or truncated:
            break
        held.append(info["action_held"])
        assert info["action_held"] == (since_change < 3)
        since_change = 0 if targets(env) != before else since_change + 1
        before = targets(env)
    assert 0 < sum(held) < len(held)


@pytest.mark.parametrize("name", ["targets", "deltas", "split"])
def test_mask_leaves_only_the_action_that_holds(
    env_id: str, name: str, make_env: EnvBuilder
) -> None:
    env = ActionCooldown(make_env(env_id, action=name), num_ticks=1)
    env.reset(seed=1)
    assert env.action_masks().all()
    env.action_space.seed(3)
    while env.step(env.action_space.sample())[-1]["churn"] == 0:
        pass
    before, mask = targets(env), env.action_masks()
    nvec = getattr(env.action_space, "nvec", np.array([len(mask)]))
    choices = [int(np.flatnonzero(part)[0]) for part in np.split(mask, np.cumsum(nvec)[:-1])]
    assert mask.sum() == len(nvec)
    env.unwrapped.step(np.int64(choices[0]) if len(choices) == 1 else np.array(choices))
    assert targets(env) == before
    env.reset(seed=1)  # the first action of an episode is free
    assert env.action_masks().all()


def test_wrapped_environment_is_described_by_its_spec(make_env: EnvBuilder) -> None:
    env = ActionCooldown(gymnasium.make(AGG), num_ticks=2)
    assert env.spec is not None
    assert env.spec.additional_wrappers[-1].kwargs == {"num_ticks": 2}


def test_what_cannot_be_wrapped_is_refused(make_env: EnvBuilder) -> None:
    with pytest.raises(ValueError, match="num_ticks: got 0, expected >= 1"):
        ActionCooldown(make_env(AGG), num_ticks=0)
    with pytest.raises(TypeError, match=r"env: got .*, expected an environment of aisim_gym"):
        ActionCooldown(gymnasium.make("CartPole-v1"), num_ticks=1)

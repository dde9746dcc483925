"""The vector environment is Gymnasium's ``SyncVectorEnv``, number for number (F21, F23)."""

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from aisim_gym.envs.vector_env import ScalingVectorEnv

TRAFFIC: dict[str, Any] = {
    "duration_s": 50.0,
    "base_rate_rps": 2.0,
    "peak_rate_rps": {"uniform": [4.0, 12.0]},
    "period_s": 40.0,
    "mean_input_tokens": 300.0,
    "mean_output_tokens": 40.0,
}
ARGUMENTS: dict[str, Any] = {"tick_s": 10.0, "workload": TRAFFIC, "startup_s": 5.0}
NUM_ENVS = 3


def make_both(env_id: str, mode: str, **arguments: Any) -> tuple[SyncVectorEnv, ScalingVectorEnv]:
    """Return Gymnasium's vector environment and ours."""
    arguments = {**ARGUMENTS, **arguments}
    theirs = gymnasium.make_vec(
        env_id,
        num_envs=NUM_ENVS,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        **arguments,
    )
    ours = gymnasium.make_vec(env_id, num_envs=NUM_ENVS, autoreset_mode=mode, **arguments)
    assert isinstance(theirs, SyncVectorEnv)
    assert isinstance(ours, ScalingVectorEnv)
    return theirs, ours


def assert_same(one: Any, other: Any) -> None:
    """Compare observations, arrays, or infos with arrays and objects in them."""
    if isinstance(one, dict):
        assert isinstance(other, dict)
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, tuple):
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif isinstance(one, np.ndarray) and one.dtype == object:
        assert other.dtype == object
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize("max_episode_steps", [None, 4])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_native_vector_environment_equals_gymnasiums(
    env_id: str, mode: str, max_episode_steps: int | None
) -> None:
    limit = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
    theirs, ours = make_both(env_id, mode, **limit)
    assert ours.metadata["autoreset_mode"] is AutoresetMode(mode)
    assert ours.action_space == theirs.action_space
    assert ours.observation_space == theirs.observation_space
    assert_same(ours.reset(seed=5), theirs.reset(seed=5))
    theirs.action_space.seed(1)
    ends = np.zeros(NUM_ENVS, np.int64)
    while ends.min() < 3:
        actions = theirs.action_space.sample()
        mine, expected = ours.step(actions), theirs.step(actions)
        for one, other in zip(mine, expected, strict=True):
            assert_same(one, other)
        ended = mine[2] | mine[3]
        ends += ended
        if ended.any() and mode == "SameStep":
            assert {"final_obs", "final_info"} <= mine[4].keys()
    for envs in (theirs, ours):
        envs.close()


@pytest.mark.parametrize(
    "arguments",
    [
        {"observation": {"name": "per_rank", "flat": False}, "action": "box"},
        {"observation": {"name": "history", "length": 2}, "action": "deltas", "reward": "cmdp"},
    ],
    ids=["per_rank and box", "history and deltas"],
)
def test_native_vector_environment_equals_gymnasiums_with_other_parts(
    env_id: str, arguments: dict[str, Any]
) -> None:
    theirs, ours = make_both(env_id, "SameStep", max_episode_steps=3, **arguments)
    assert_same(ours.reset(seed=5), theirs.reset(seed=5))
    theirs.action_space.seed(1)
    for _ in range(7):
        actions = theirs.action_space.sample()
        for one, other in zip(ours.step(actions), theirs.step(actions), strict=True):
            assert_same(one, other)
    for envs in (theirs, ours):
        envs.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_processes_of_gymnasium_give_the_same_numbers(env_id: str, context: str) -> None:
    """F33: a process that is spawned registers the environments by itself."""
    arguments: dict[str, Any] = {**ARGUMENTS, "num_envs": 2}
    processes = gymnasium.make_vec(
        env_id,
        vectorization_mode=gymnasium.VectorizeMode.ASYNC,
        vector_kwargs={"context": context},
        **arguments,
    )
    ours = gymnasium.make_vec(env_id, **arguments)
    try:
        assert_same(ours.reset(seed=5), processes.reset(seed=5))
        ours.action_space.seed(1)
        for _ in range(3):
            actions = ours.action_space.sample()
            for one, other in zip(ours.step(actions), processes.step(actions), strict=True):
                assert_same(one, other)
    finally:
        processes.close()
        ours.close()


def test_action_after_an_end_is_ignored_and_earns_nothing(env_id: str) -> None:
    _, ours = make_both(env_id, "NextStep", max_episode_steps=2)
    ours.reset(seed=1)
    ours.action_space.seed(1)
    ours.step(ours.action_space.sample())
    *_, truncations, _ = ours.step(ours.action_space.sample())
    assert truncations.all()
    _, rewards, terminations, truncations, infos = ours.step(ours.action_space.sample())
    assert not rewards.any()
    assert not (terminations | truncations).any()
    assert not infos["total_arrived"].any()
    ours.close()


def test_final_observation_is_no_view_of_the_next_one(env_id: str) -> None:
    _, ours = make_both(env_id, "SameStep", max_episode_steps=1)
    ours.reset(seed=1)
    observations, *_, infos = ours.step(ours.action_space.sample())
    final = infos["final_obs"][0].copy()
    observations[:] = 0.0
    ours.step(ours.action_space.sample())
    assert np.array_equal(infos["final_obs"][0], final)
    ours.close()


def test_some_environments_can_be_reset_alone(env_id: str) -> None:
    theirs, ours = make_both(env_id, "Disabled")
    mask = np.array([False, True, True])
    for envs in (theirs, ours):
        envs.reset(seed=2)
        envs.action_space.seed(3)
        envs.step(envs.action_space.sample())
    results = [
        envs.reset(seed=[7, 8, 9], options={"reset_mask": mask.copy(), "duration_s": 20.0})
        for envs in (theirs, ours)
    ]
    assert_same(*results)
    steps = [envs.step(envs.action_space.sample()) for envs in (theirs, ours)]
    assert_same(*(step[0] for step in steps))
    assert_same(*(step[4] for step in steps))


def test_without_seeds_the_environments_are_not_alike(env_id: str) -> None:
    _, ours = make_both(env_id, "NextStep")
    ours.reset()
    arrivals = {
        tuple(np.asarray(ours.get_attr("replay")[i].state.world.requests)["arrival_ms"].tolist())
        for i in range(NUM_ENVS)
    }
    assert len(arrivals) == NUM_ENVS
    ours.close()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda envs: pickle.loads(pickle.dumps(envs))])
def test_copy_of_the_vector_environment_goes_on_by_itself(
    env_id: str, copied: Callable[[ScalingVectorEnv], ScalingVectorEnv]
) -> None:
    _, ours = make_both(env_id, "NextStep")
    ours.reset(seed=3)
    ours.action_space.seed(1)
    ours.step(ours.action_space.sample())
    again = copied(ours)
    assert again.envs[0] is not ours.envs[0]
    ends = 0
    while ends < 4:
        actions = ours.action_space.sample()
        mine, theirs = ours.step(actions), again.step(actions)
        for one, other in zip(mine, theirs, strict=True):
            assert_same(one, other)
        ends += int((mine[2] | mine[3]).sum())
    for envs in (ours, again):
        envs.close()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_environments_are_as_before_after_an_action_outside_the_space(
    env_id: str, mode: str
) -> None:
    _, ours = make_both(env_id, mode)
    untouched = copy.deepcopy(ours)
    for envs in (ours, untouched):
        envs.reset(seed=3)
    ours.action_space.seed(1)
    actions = ours.action_space.sample()
    wrong = actions.copy()
    wrong[1] = 99
    with pytest.raises(ValueError, match=r"^actions\[1\]: got .*99.*, expected an element of"):
        ours.step(wrong)
    with pytest.raises(ValueError, match=r"^actions: got 2 of them, expected 3 \(num_envs\)"):
        ours.step(actions[:2])
    for one, other in zip(ours.step(actions), untouched.step(actions), strict=True):
        assert_same(one, other)
    for envs in (ours, untouched):
        envs.close()


def test_environments_are_as_before_after_an_episode_that_is_not_there(env_id: str) -> None:
    _, ours = make_both(env_id, "NextStep", split="test")
    with pytest.raises(ValueError, match=r"options.start_s: got 1000.0, expected less than"):
        ours.reset(seed=3, options={"start_s": 1000.0})
    ours.reset(seed=3)
    untouched = copy.deepcopy(ours)
    with pytest.raises(ValueError, match=r"options.episode: got 100, expected 0 to 99"):
        ours.reset(options={"episode": 100})
    actions = ours.action_space.sample()
    for one, other in zip(ours.step(actions), untouched.step(actions), strict=True):
        assert_same(one, other)
    for envs in (ours, untouched):
        envs.close()


@pytest.mark.parametrize("max_episode_steps", [None, 1])
def test_step_after_an_end_that_is_not_reset_names_the_environments(
    env_id: str, max_episode_steps: int | None
) -> None:
    limit = {} if max_episode_steps is None else {"max_episode_steps": max_episode_steps}
    _, ours = make_both(env_id, "Disabled", **limit)
    ours.reset(seed=1)
    ours.action_space.seed(1)
    ended = np.zeros(NUM_ENVS, np.bool_)
    while not ended.any():
        _, _, terminations, truncations, _ = ours.step(ours.action_space.sample())
        ended = terminations | truncations
    over = re.escape(str(np.flatnonzero(ended).tolist()))
    with pytest.raises(ResetNeeded, match=rf"the episodes of environments {over} are over"):
        ours.step(ours.action_space.sample())
    ours.reset(options={"reset_mask": ended})
    ours.step(ours.action_space.sample())
    ours.close()


def test_spec_of_the_vector_environment_makes_it_again(env_id: str) -> None:
    ours = gymnasium.make_vec(env_id, num_envs=2, autoreset_mode="SameStep", **ARGUMENTS)
    assert ours.spec is not None
    again = gymnasium.make_vec(EnvSpec.from_json(ours.spec.to_json()))
    assert isinstance(again, ScalingVectorEnv)
    assert again.num_envs == 2
    assert_same(again.reset(seed=4), ours.reset(seed=4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_envs": 0}, "num_envs: got 0, expected >= 1"),
        ({"autoreset_mode": "samestep"}, "did you mean `SameStep`"),
        ({"max_episode_steps": 0}, "max_episode_steps: got 0, expected >= 1, or None"),
    ],
)
def test_bad_argument_is_refused(env_id: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gymnasium.make_vec(env_id, **{"num_envs": 1, **arguments})


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        ([True, False, True], TypeError, "expected an array of bool"),
        (np.zeros(NUM_ENVS, np.bool_), ValueError, "with at least one True"),
        (np.ones(2, np.bool_), ValueError, r"expected shape \(3,\)"),
    ],
)
def test_bad_reset_mask_is_refused(
    env_id: str, mask: Any, error: type[Exception], message: str
) -> None:
    _, ours = make_both(env_id, "NextStep")
    with pytest.raises(error, match=message):
        ours.reset(options={"reset_mask": mask})
    with pytest.raises(ValueError, match=r"seed: got 2 seeds, expected 3"):
        ours.reset(seed=[1, 2])

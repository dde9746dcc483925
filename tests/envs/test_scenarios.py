"""What holds for every registered scenario (env-checklist.md 1-7, 9, 16, 19-21, 32).

Most tests play the first two minutes of a scenario, which keeps its fleet, spaces, ranges and
limits; the slow ones play whole episodes.
"""

import copy
import json
import pickle
import re
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from support.audit import check_arrivals, check_requests
from support.effort import cpu_loops

from aisim_gym.envs import ENTRY_POINTS, SCENARIOS, ScalingEnv, Scenario
from aisim_gym.envs.scenario_page import scenario_page
from aisim_gym.envs.time_blocks import SPLITS

SHORT_S = 120.0
"""Length of the traffic that most tests play."""

SPARSE = {"aisim_gym/CodeBursts-v0": 900.0}
"""Length where so short a part may be without a request."""

MOST_LOOPS = 1000
"""CPU time of a whole episode with a fixed fleet, as ``cpu_loops`` counts; usual are 2 to 100."""

Duplicate = Callable[[ScalingEnv], ScalingEnv]

IDS = [scenario.id for scenario in SCENARIOS]

each_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=IDS)


def short_arguments(scenario: Scenario) -> dict[str, Any]:
    """Return the keywords that shorten a scenario and change nothing else."""
    duration_s = SPARSE.get(scenario.id, SHORT_S)
    if "episode_s" in scenario.arguments:  # a window of a fixed workload
        return {"episode_s": SHORT_S}
    if '"at_s"' in json.dumps(scenario.arguments["workload"]):  # something happens later
        return {"horizon_s": SHORT_S}
    return {"workload": {**scenario.arguments["workload"], "duration_s": duration_s}}


def make_short(scenario: Scenario, **arguments: Any) -> ScalingEnv:
    """Return a scenario, shortened, without Gymnasium's wrappers."""
    env = gymnasium.make(scenario.id, **{**short_arguments(scenario), **arguments}).unwrapped
    assert isinstance(env, ScalingEnv)
    return env


def play(env: ScalingEnv, num_steps: int = 3, **reset: Any) -> list[Any]:
    """Return all that a reset and some random steps show."""
    observation, info = env.reset(**reset)
    env.action_space.seed(5)
    return [(observation.tolist(), info), *go_on(env, num_steps)]


def go_on(env: ScalingEnv, num_steps: int) -> list[Any]:
    """Return all that some random steps show."""
    seen = []
    for _ in range(num_steps):
        observation, *rest = env.step(env.action_space.sample())
        seen.append((observation.tolist(), *rest))
        if rest[1] or rest[2]:
            break
    return seen


def arrivals(env: ScalingEnv) -> tuple[tuple[float, int, int], ...]:
    """Return time and lengths of every request of the episode."""
    requests = np.asarray(env.replay.state.world.requests)
    return tuple(requests[["arrival_ms", "input_tokens", "output_tokens"]].tolist())


# The suite


def test_suite_has_versioned_ids_of_its_own() -> None:
    assert len(SCENARIOS) >= 12
    assert len({*IDS, *ENTRY_POINTS}) == len(IDS) + len(ENTRY_POINTS)
    for env_id in IDS:
        assert re.fullmatch(r"aisim_gym/[A-Z][A-Za-z]+-v\d+", env_id)
        assert env_id in gymnasium.registry


def test_suite_spans_topologies_sizes_and_start_up_times() -> None:
    assert {scenario.kind for scenario in SCENARIOS} == {"agg", "disagg"}
    startups_s = [scenario.arguments["startup_s"] for scenario in SCENARIOS]
    assert min(startups_s) <= 10.0
    assert max(startups_s) >= 300.0
    assert any(scenario.arguments["max_workers"] == 64 for scenario in SCENARIOS)
    summaries = {scenario.summary for scenario in SCENARIOS}
    assert len(summaries) == len(SCENARIOS)


@each_scenario
def test_page_names_the_scenario(scenario: Scenario) -> None:
    page = scenario_page(scenario, None)
    assert page.startswith(f"# {scenario.id.split('/')[1]}\n")
    assert f'gymnasium.make("aisim_gym.envs:{scenario.id}")' in page
    assert scenario.summary in page
    assert scenario.challenge in page


@each_scenario
def test_registered_arguments_are_json_and_play_training_traffic(scenario: Scenario) -> None:
    kwargs = gymnasium.spec(scenario.id).kwargs
    assert kwargs == {"split": "train", **scenario.arguments}
    assert json.loads(json.dumps(kwargs, allow_nan=False)) == kwargs


# Checkers


@each_scenario
def test_gymnasium_checker_has_nothing_to_say(scenario: Scenario) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make_short(scenario), skip_render_check=True)


@each_scenario
def test_stable_baselines3_checker_has_nothing_to_say(scenario: Scenario) -> None:
    checker = pytest.importorskip(
        "stable_baselines3.common.env_checker", reason="stable_baselines3 is not installed"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(make_short(scenario), warn=True)


# The same again


@each_scenario
def test_seed_starts_a_sequence_of_episodes(scenario: Scenario) -> None:
    """F02."""
    env = make_short(scenario)
    first, second, third, fourth = (play(env, seed=seed) for seed in (123, None, 123, None))
    assert first == third
    assert second == fourth
    env.reset(seed=123)
    traffic = [arrivals(env)]
    env.reset()
    traffic.append(arrivals(env))
    assert traffic[0] != traffic[1]
    assert play(make_short(scenario), seed=123) == first


@each_scenario
def test_spec_in_json_makes_the_same_environment(scenario: Scenario) -> None:
    """F17."""
    env = make_short(scenario)
    assert env.spec is not None
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json())).unwrapped
    assert isinstance(again, ScalingEnv)
    assert play(again, seed=3) == play(env, seed=3)


@pytest.mark.parametrize(
    "duplicate",
    [lambda env: pickle.loads(pickle.dumps(env)), copy.deepcopy],
    ids=["pickle", "deepcopy"],
)
@each_scenario
def test_copy_in_mid_episode_continues_alike(scenario: Scenario, duplicate: Duplicate) -> None:
    env = make_short(scenario)
    play(env, 2, seed=3)
    twin = duplicate(env)
    assert go_on(twin, 3) == go_on(env, 3)


@each_scenario
def test_native_vector_environment_equals_gymnasiums(scenario: Scenario) -> None:
    """F23: over the end of an episode."""
    arguments: dict[str, Any] = {**short_arguments(scenario), "max_episode_steps": 2}
    ours = gymnasium.make_vec(scenario.id, num_envs=2, **arguments)
    theirs = gymnasium.make_vec(
        scenario.id, num_envs=2, vectorization_mode="sync", vector_kwargs={}, **arguments
    )
    assert ours.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert ours.action_space == theirs.action_space
    observations = [envs.reset(seed=5)[0] for envs in (ours, theirs)]
    assert np.array_equal(*observations)
    theirs.action_space.seed(1)
    ended = False
    for _ in range(4):
        action = theirs.action_space.sample()
        mine, expected = ours.step(action), theirs.step(action)
        for one, other in zip(mine[:4], expected[:4], strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
        ended |= bool(mine[3].all())
    assert ended
    ours.close()
    theirs.close()


# What steps return


@each_scenario
def test_steps_return_plain_values_and_lose_no_request(scenario: Scenario) -> None:
    """F09, F13, F51: types, bounds, JSON; every request is in one place at every tick."""
    env = make_short(scenario)
    observation, info = env.reset(seed=1)
    env.action_space.seed(1)
    keys: set[str] | None = None
    ended = False
    while not ended:
        assert observation.dtype == np.float32
        assert observation in env.observation_space
        json.dumps(info, allow_nan=False)
        check_requests(env.replay.state)
        check_arrivals(env.replay.state)
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        assert {type(value) for value in info.values()} <= {int, float, bool}
        keys = keys or set(info)
        assert set(info) == keys
        ended = terminated or truncated
    requests = np.asarray(env.replay.state.world.requests)
    assert info["total_arrived"] == (requests["is_arrived"] == 1).sum() > 0


# Splits


@each_scenario
def test_splits_share_no_episode_and_held_out_ones_have_numbers(scenario: Scenario) -> None:
    """Making each split also checks that no request of it is larger than a worker."""
    seen: dict[str, set[Any]] = {}
    for split in SPLITS:
        env = make_short(scenario, split=split)
        env.reset(seed=1)
        seen[split] = {arrivals(env)}
        if split == "train":
            assert env.num_episodes is None
            continue
        assert env.num_episodes is not None
        for number in (0, env.num_episodes - 1):
            env.reset(seed=number, options={"episode": number})
            first = arrivals(env)
            env.reset(seed=99, options={"episode": number})
            assert arrivals(env) == first
            seen[split].add(first)
    for one, other in (("train", "validation"), ("train", "test"), ("validation", "test")):
        assert not seen[one] & seen[other]


@pytest.mark.slow
@each_scenario
def test_whole_episode_ends_within_seconds(scenario: Scenario) -> None:
    """F20: with the fleet of the start, whatever the traffic does."""
    env = gymnasium.make(scenario.id, split="validation", action="deltas").unwrapped
    assert isinstance(env, ScalingEnv)
    hold = np.ones(env.action_space.shape or (), np.int64)
    infos = []

    def hold_to_the_end() -> None:
        env.reset(options={"episode": 0})
        ended = False
        while not ended:
            *_, terminated, truncated, info = env.step(hold)
            infos.append(info)
            ended = terminated or truncated

    assert cpu_loops(hold_to_the_end) < MOST_LOOPS
    assert all(info["churn"] == 0 for info in infos)
    assert infos[-1]["total_arrived"] > 1000

"""What Gymnasium, Stable-Baselines3 and their users check."""

import copy
import gc
import json
import os
import pickle
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import FlattenObservation, FrameStackObservation
from support.source_tree import ROOT

from aisim_gym.envs import ScalingEnv
from aisim_gym.envs.reward import REWARDS

EnvBuilder = Callable[..., ScalingEnv]

VARIANTS: list[dict[str, Any]] = [
    {},
    {"action": "deltas"},
    {"action": {"name": "deltas", "max_delta": 3}, "max_gpus": 6},
    {"reward": {"name": "cost_slo", "overdue_weight": 0.1}, "horizon_s": 45.0},
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_gymnasium_checker_has_nothing_to_say(
    env_id: str, variant: dict[str, Any], make_env: EnvBuilder
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make_env(env_id, **variant))


@pytest.mark.parametrize("variant", VARIANTS)
def test_stable_baselines3_checker_has_nothing_to_say(
    env_id: str, variant: dict[str, Any], make_env: EnvBuilder
) -> None:
    """F13."""
    checker = pytest.importorskip(
        "stable_baselines3.common.env_checker", reason="stable_baselines3 is not installed"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(make_env(env_id, **variant), warn=True)


@pytest.mark.parametrize("reward", REWARDS)
def test_checkers_accept_every_reward(env_id: str, reward: str, make_env: EnvBuilder) -> None:
    """F13."""
    checker = pytest.importorskip(
        "stable_baselines3.common.env_checker", reason="stable_baselines3 is not installed"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make_env(env_id, reward=reward), skip_render_check=True)
        checker.check_env(make_env(env_id, reward=reward), warn=True)


def test_id_can_name_its_module(env_id: str) -> None:
    assert isinstance(gymnasium.make(f"aisim_gym.envs:{env_id}").unwrapped, ScalingEnv)


def test_fresh_process_needs_the_module_name_only(env_id: str, tmp_path: Path) -> None:
    """F34."""
    code = f"import gymnasium; print(gymnasium.make('aisim_gym.envs:{env_id}').spec.id)"
    command = [sys.executable, "-W", "error", "-c", code]
    # In a folder with an envs package of its own, which must not win.
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "__init__.py").write_text("raise ImportError('the wrong envs')")
    found = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == env_id


@pytest.mark.parametrize("variant", VARIANTS)
def test_spec_round_trips_through_json(
    env_id: str, variant: dict[str, Any], make_env: EnvBuilder
) -> None:
    env = make_env(env_id, **variant)
    assert env.spec is not None
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    assert _play(env, 3) == _play(again, 3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")  # Minari's folder
def test_minari_records_and_gives_the_episodes_back(
    env_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F17: a data set holds the spec, and its environment plays the recorded actions alike."""
    minari = pytest.importorskip("minari", reason="minari is not installed")
    pytest.importorskip("jax", reason="minari records with jax, which is not installed")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    arguments: dict[str, Any] = {"tick_s": 10.0, "workload": {"duration_s": 60.0}}
    env = minari.DataCollector(gymnasium.make(env_id, **arguments), data_format="arrow")
    for seed in range(3):
        env.reset(seed=seed)
        ended = False
        while not ended:
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            ended = terminated or truncated
    env.create_dataset(
        "scaling/random-v0",
        eval_env=env_id,
        algorithm_name="random",
        author="nobody",
        author_email="nobody@example.com",
        code_permalink="https://example.com",
        description="Random targets.",
    )
    env.close()
    del env
    gc.collect()
    data = minari.load_dataset("scaling/random-v0")
    assert len(data) == 3
    again = data.recover_environment()
    assert again.spec.kwargs == arguments
    for seed, episode in enumerate(data.iterate_episodes()):
        assert np.array_equal(again.reset(seed=seed)[0], episode.observations[0])
        for i, action in enumerate(episode.actions):
            observation, reward, *flags, _ = again.step(action)
            assert np.array_equal(observation, episode.observations[i + 1])
            assert reward == episode.rewards[i]
            assert flags == [episode.terminations[i], episode.truncations[i]]


OFFLINE = """
import socket

def refuse(*arguments, **keywords):
    raise AssertionError(f"the network was asked for: {arguments}")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
"""


def test_nothing_needs_the_network(tmp_path: Path) -> None:
    """F35: import, make, reset, step, a scenario, a planner and the README's code."""
    readme = (ROOT / "README.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    played = """
import gymnasium, aisim_gym.policies
for env_id in ("Aggregated-v0", "Disaggregated-v0", "FlashCrowd-v0"):
    env = gymnasium.make(f"aisim_gym.envs:aisim_gym/{env_id}")
    env.reset(seed=1)
    env.step(env.action_space.sample())
aisim_gym.policies.make_policy("hpa")
"""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([OFFLINE, played, *blocks])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MPLBACKEND": "agg"},
    )
    assert done.returncode == 0, done.stderr
    check = subprocess.run(
        [sys.executable, "-c", f"{OFFLINE}\nsocket.create_connection(('localhost', 9))"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "the network was asked for" in check.stderr


def test_vector_environment_steps_like_single_ones(env_id: str, make_env: EnvBuilder) -> None:
    arguments: dict[str, Any] = {"tick_s": 10.0, "workload": {"duration_s": 60.0}}
    vector = gymnasium.make_vec(env_id, num_envs=2, vectorization_mode="sync", **arguments)
    observations, _ = vector.reset(seed=5)
    vector.action_space.seed(1)
    actions = [vector.action_space.sample() for _ in range(3)]
    for i in range(2):
        env = make_env(env_id, **arguments)
        assert np.array_equal(env.reset(seed=5 + i)[0], observations[i])
    steps = [vector.step(action) for action in actions]
    for i in range(2):
        env = make_env(env_id, **arguments)
        env.reset(seed=5 + i)
        for action, step in zip(actions, steps, strict=True):
            observation, reward, *_ = env.step(action[i])
            assert np.array_equal(observation, step[0][i])
            assert reward == step[1][i]
    vector.close()


def test_rewards_and_flags_are_plain_and_info_is_json(env_id: str, make_env: EnvBuilder) -> None:
    """F13."""
    env = make_env(env_id)
    _, info = env.reset(seed=1)
    keys: set[str] | None = None
    ended = False
    while not ended:
        json.dumps(info, allow_nan=False)
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        assert {type(value) for value in info.values()} <= {int, float, bool}
        ended = terminated or truncated
        keys = keys or set(info)
        assert set(info) == keys
    assert type(info["is_success"]) is bool


@pytest.mark.parametrize(
    "wrap", [lambda env: FrameStackObservation(env, 3), FlattenObservation], ids=["stack", "flat"]
)
def test_wrapped_observations_keep_their_type(
    env_id: str, wrap: Callable[[ScalingEnv], gymnasium.Env[Any, Any]], make_env: EnvBuilder
) -> None:
    """F11, F12."""
    env = wrap(make_env(env_id))
    observation, _ = env.reset(seed=1)
    for _ in range(4):
        assert observation.dtype == np.float32
        assert observation in env.observation_space
        observation, *_ = env.step(env.action_space.sample())


@pytest.mark.parametrize(
    "duplicate",
    [lambda env: pickle.loads(pickle.dumps(env)), copy.deepcopy, lambda env: env.fork()],
    ids=["pickle", "deepcopy", "fork"],
)
def test_copy_in_mid_episode_continues_alike_and_apart(
    env_id: str, duplicate: Callable[[ScalingEnv], ScalingEnv], make_env: EnvBuilder
) -> None:
    env = make_env(env_id)
    env.reset(seed=3)
    env.action_space.seed(0)
    for _ in range(2):
        env.step(env.action_space.sample())
    before = env.snapshot
    twin = duplicate(env)
    theirs = _play(twin, 10)
    assert env.snapshot == before
    assert _play(env, 10) == theirs


def _play(env: gymnasium.Env[Any, Any], num_steps: int) -> list[Any]:
    """Return all that some steps show; without an episode one is begun."""
    seen: list[Any] = []
    if getattr(env.unwrapped, "_episode", None) is None:
        observation, info = env.reset(seed=3)
        seen += [observation.tolist(), info]
        env.action_space.seed(0)
    for _ in range(num_steps):
        action = env.action_space.sample()
        observation, reward, terminated, truncated, info = env.step(action)
        seen.append((np.asarray(action).tolist(), observation.tolist(), reward, info))
        if terminated or truncated:
            break
    return seen

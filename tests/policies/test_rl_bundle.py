"""Policy bundles: complete, refused where they do not fit, the same everywhere (F63, F64)."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from support.rl_runs import train_smoke

from aisim_gym.policies.env_runner import unwrap
from aisim_gym.policies.rl import load_policy
from aisim_gym.policies.rl.checkpoint import load_learner
from aisim_gym.policies.rl.evaluation import LearnedActor, evaluate
from aisim_gym.policies.rl.evaluation_run import choose_episodes, compare
from aisim_gym.policies.rl.policy_bundle import describe_space, read_bundle
from aisim_gym.policies.rl.training_run import TrainingRun

pytest.importorskip("sb3_contrib")

PRINT_CARD_REWARD = """
import sys
from aisim_gym.policies.rl import load_policy
from aisim_gym.policies.env_runner import unwrap
from aisim_gym.policies.rl.evaluation import LearnedActor, evaluate

policy = load_policy(sys.argv[1])
episodes = policy.description.splits["validation"]
env = policy.make_env(**episodes.kwargs)
results = evaluate(env, LearnedActor(unwrap(env), policy), episodes)
print([metrics.reward for metrics in results])
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    return train_smoke(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def bundle(run: TrainingRun, tmp_path: Path) -> Path:
    """Return a copy of the bundle that a test may spoil."""
    return Path(shutil.copytree(run.policy, tmp_path / "policy"))


def rewards(path: Path) -> list[float]:
    """Return the rewards of a bundle on its validation episodes."""
    policy = load_policy(path)
    episodes = policy.description.splits["validation"]
    env = policy.make_env(**episodes.kwargs)
    results = evaluate(env, LearnedActor(unwrap(env), policy), episodes)
    return [metrics.reward for metrics in results]


def change(bundle: Path, **fields: Any) -> None:
    """Change fields of a bundle's description."""
    path = bundle / "policy.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}), "utf-8")


@pytest.mark.slow
def test_fresh_process_gets_the_rewards_of_the_card(run: TrainingRun) -> None:
    """Field case F63, bit for bit."""
    command = [sys.executable, "-c", PRINT_CARD_REWARD, str(run.policy)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    fresh = json.loads(printed)
    assert fresh == rewards(run.policy)
    card = read_bundle(run.policy).description.evaluation
    assert float(np.mean(fresh)) == card["metrics"]["reward"]["mean"]
    assert f"| reward | {np.mean(fresh):.6g} |" in (run.policy / "README.md").read_text("utf-8")


def test_run_folder_and_zip_file_load_like_the_bundle(run: TrainingRun, tmp_path: Path) -> None:
    zipped = Path(shutil.make_archive(str(tmp_path / "bundle"), "zip", run.policy))
    assert rewards(run.policy) == rewards(run.folder) == rewards(zipped)


def test_statistics_normalise_as_those_of_the_training(run: TrainingRun) -> None:
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv

    def make() -> gymnasium.Env[Any, Any]:
        return load_policy(run.policy).make_env()

    model = load_learner(run.checkpoints / "best", PPO, DummyVecEnv([make]))
    envs, statistics = model.get_vec_normalize_env(), read_bundle(run.policy).statistics
    assert envs is not None
    assert statistics is not None
    size = statistics.mean.shape[0]
    shown = np.random.default_rng(1).uniform(0.0, 1.0, (100, size)).astype(np.float32)
    assert np.array_equal(statistics.normalize(shown), np.asarray(envs.normalize_obs(shown)))


def test_evaluators_of_stable_baselines_accept_a_policy(run: TrainingRun) -> None:
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    policy = load_policy(run.policy)
    env = Monitor(
        policy.make_env(workload={**policy.description.env.kwargs["workload"], "seed": 5})
    )
    told, _ = evaluate_policy(policy, env, n_eval_episodes=1)
    actor = LearnedActor(unwrap(env), policy)
    (first, _) = evaluate(
        env, actor, policy.description.splits["validation"].model_copy(update={"episodes": 2})
    )
    assert told == pytest.approx(first.reward, abs=1e-6)


def test_recurrent_policy_forgets_between_episodes(tmp_path: Path) -> None:
    run = train_smoke(tmp_path, algorithm="recurrent_ppo", total_steps=128)
    policy = load_policy(run.folder)
    shown = np.full(policy.make_env().observation_space.shape or (), 0.5, np.float32)
    first = policy.predict(shown)[1]
    policy.reset()
    policy.act(shown)
    later = policy.predict(shown, policy._states, np.array([False]))[1]
    policy.reset()
    assert policy._states is None
    again = policy.predict(shown)[1]
    assert first is not None
    assert again is not None
    assert later is not None
    assert np.array_equal(first[0], again[0])
    assert not np.array_equal(first[0], later[0])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("statistics.npz", r"statistics\.npz: missing; the policy was trained on normalised"),
        ("weights.npz", r"weights\.npz: missing"),
        ("policy.json", r"no policy\.json; expected a policy bundle"),
    ],
)
def test_incomplete_bundle_is_refused(bundle: Path, name: str, message: str) -> None:
    """Field cases F63 and F64."""
    (bundle / name).unlink()
    with pytest.raises(FileNotFoundError, match=message):
        load_policy(bundle)


def test_bundle_of_another_environment_version_is_refused(bundle: Path) -> None:
    """Field case F64."""
    env = read_bundle(bundle).description.env.model_dump()
    change(bundle, env={**env, "id": "aisim_gym/Disaggregated-v99"})
    with pytest.raises(ValueError, match=r"trained in .*-v99, but installed is .*-v\d") as refused:
        load_policy(bundle)
    assert "train again" in str(refused.value)


def test_environment_of_another_kind_is_refused(bundle: Path) -> None:
    env = gymnasium.make("aisim_gym/Aggregated-v0")
    with pytest.raises(ValueError, match=r"env: got aisim_gym/Aggregated-v0, expected aisim_gym/D"):
        load_policy(bundle, env)


def test_environment_with_other_spaces_is_refused(bundle: Path) -> None:
    env = gymnasium.make("aisim_gym/Disaggregated-v0", action="targets", max_workers=7)
    message = r"action_space: got MultiDiscrete\(\[7, 7\]\), expected MultiDiscrete\(\[3, 3\]\)"
    with pytest.raises(ValueError, match=message):
        load_policy(bundle, env)


def test_spaces_of_the_description_are_those_of_its_environment(bundle: Path) -> None:
    change(
        bundle, observation_space={"kind": "Box", "low": [0.0], "high": [1.0], "dtype": "float32"}
    )
    with pytest.raises(ValueError, match=r"observation_space: got .* expected Box of shape \(1,\)"):
        load_policy(bundle)


def test_weights_of_another_network_are_refused(bundle: Path) -> None:
    change(bundle, network={"hidden": [8, 8]})
    with pytest.raises(ValueError, match="weights and network do not fit together"):
        load_policy(bundle)


def test_bundle_of_another_format_is_refused(bundle: Path) -> None:
    change(bundle, format=2)
    with pytest.raises(ValueError, match="format: got 2, expected 1"):
        load_policy(bundle)


def test_path_without_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not there; expected a policy bundle"):
        load_policy(tmp_path / "nothing")
    (tmp_path / "file").write_text("text")
    with pytest.raises(FileNotFoundError, match="neither a folder nor a zip file"):
        load_policy(tmp_path / "file")


def test_bundle_holds_no_pickle(run: TrainingRun) -> None:
    for name in ("weights.npz", "statistics.npz"):
        with np.load(run.policy / name, allow_pickle=False) as arrays:
            assert all(arrays[key].dtype.kind == "f" for key in arrays.files)


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32),
        gymnasium.spaces.Discrete(3),
        gymnasium.spaces.MultiDiscrete([3, 4]),
    ],
)
def test_description_of_a_space_survives_json(space: gymnasium.Space[Any]) -> None:
    description = describe_space(space)
    assert json.loads(json.dumps(description)) == description
    with pytest.raises(ValueError, match="expected Box, Discrete or MultiDiscrete"):
        describe_space(gymnasium.spaces.Text(3))


def test_evaluation_refuses_what_cannot_be_compared(run: TrainingRun, bundle: Path) -> None:
    policy = load_policy(run.policy)
    with pytest.raises(ValueError, match="episodes: got 1, expected at least 2"):
        choose_episodes([policy], "test", 1)
    episodes = choose_episodes([policy], "test", 2)
    assert (episodes.first, episodes.episodes) == (2_000_000, 2)
    with pytest.raises(ValueError, match="unknown planner 'hpaa'; did you mean `hpa`"):
        compare([policy], episodes, ["hpaa"], lambda *progress: None)
    with pytest.raises(ValueError, match="expected each training seed once"):
        compare([policy, policy], episodes, ["static"], lambda *progress: None)
    env = read_bundle(bundle).description.env.model_dump()
    change(bundle, env={**env, "kwargs": {**env["kwargs"], "tick_s": 20.0}})
    with pytest.raises(ValueError, match="has another environment or test split"):
        choose_episodes([policy, load_policy(bundle)], "test", None)

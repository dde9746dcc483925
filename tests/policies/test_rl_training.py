"""Training end to end: what a run leaves, interruption and resumption, every learner."""

import csv
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.progress import Progress
from support.rl_runs import silent_bars, smoke_config, train_smoke
from support.source_tree import ROOT

from aisim_gym.policies.rl import load_policy
from aisim_gym.policies.rl.atomic_folder import replace_folder
from aisim_gym.policies.rl.checkpoint import load_learner, read_state
from aisim_gym.policies.rl.run_manifest import read_manifest
from aisim_gym.policies.rl.step_rows import append_rows, read_rows, start_rows
from aisim_gym.policies.rl.training_envs import make_training_envs
from aisim_gym.policies.rl.training_run import TrainingRun, new_run, resumed_run, train

pytest.importorskip("sb3_contrib")

ROLLOUT_STEPS = 64
TOTAL_STEPS = 256


class Interrupting(Progress):
    """Bars that send this process a signal after a number of steps."""

    def __init__(self, number: signal.Signals, at_steps: int) -> None:
        super().__init__(disable=True)
        self.number, self.at_steps = number, at_steps
        self.is_sent = False

    def update(self, *arguments: Any, completed: float | None = None, **fields: Any) -> None:
        if not self.is_sent and completed is not None and completed >= self.at_steps:
            self.is_sent = True
            os.kill(os.getpid(), self.number)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    return train_smoke(tmp_path_factory.mktemp("runs"))


def interrupted(out: Path, number: signal.Signals = signal.SIGTERM) -> TrainingRun:
    """Return a run that got a signal in its third rollout."""
    run = new_run(smoke_config(), 3, out, source=ROOT)
    assert train(run, Interrupting(number, 2 * ROLLOUT_STEPS + 10)) is None
    return run


def weights(run: TrainingRun) -> dict[str, Any]:
    from stable_baselines3 import PPO

    envs = make_training_envs(run.config)
    model = load_learner(run.checkpoints / f"step-{TOTAL_STEPS}", PPO, envs)
    envs.close()
    return {name: value.numpy() for name, value in model.policy.state_dict().items()}


def test_complete_run_says_what_it_was(run: TrainingRun) -> None:
    manifest = read_manifest(run.folder)
    assert manifest["ended"] is not None
    assert manifest["seed"] == 3
    assert manifest["config_sha256"] == run.config.sha256()
    assert manifest["config"] == run.config.model_dump(mode="json")
    assert {"python", "aisim-gym", "torch", "stable-baselines3"} <= manifest["versions"].keys()
    assert {"commit", "is_dirty", "command", "started"} <= manifest.keys()


def test_summary_and_checkpoints_tell_all_steps(run: TrainingRun) -> None:
    summary = json.loads((run.folder / "summary.json").read_text("utf-8"))
    assert summary["steps"] == TOTAL_STEPS
    assert read_state(run.checkpoints / f"step-{TOTAL_STEPS}").steps == TOTAL_STEPS
    best = read_state(run.checkpoints / "best")
    rows = read_rows(run.folder / "validations.csv")
    assert best.best_reward == max(row["mean_reward"] for row in rows)
    assert best.best_steps in [row["steps"] for row in rows]


def test_validation_reward_is_that_of_the_card(run: TrainingRun) -> None:
    summary = json.loads((run.folder / "summary.json").read_text("utf-8"))
    # Monitor rounds episode rewards to six digits.
    card = summary["validation"]["metrics"]["reward"]["mean"]
    assert card == pytest.approx(summary["best_reward"], abs=1e-6)


def test_episodes_add_up(run: TrainingRun) -> None:
    rows = read_rows(run.folder / "episodes.csv")
    num_envs = run.config.num_envs
    assert sum(row["num_steps"] for row in rows) <= TOTAL_STEPS
    assert sum(row["num_steps"] for row in rows) > TOTAL_STEPS - num_envs * 20
    for row in rows:
        assert row["good"] + row["violations"] == row["arrived"]
        assert row["attainment_frac"] == row["good"] / row["arrived"]


def test_tensorboard_has_the_usual_names_and_ours(run: TrainingRun) -> None:
    """env-checklist.md 23."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    usual = {
        "rollout/ep_rew_mean",
        "rollout/ep_len_mean",
        "rollout/success_rate",
        "time/fps",
        "train/loss",
        "eval/mean_reward",
        "eval/success_rate",
    }
    ours = {"gpu_hours", "goodput_rps", "attainment_frac", "cost", "violations", "mean_gpus"}
    assert usual | {f"serving/{name}" for name in ours} <= tags


def test_picture_of_the_training_is_drawn(run: TrainingRun) -> None:
    pytest.importorskip("matplotlib")
    picture = run.folder / "plots" / "training.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_same_seed_learns_the_same(run: TrainingRun, tmp_path: Path) -> None:
    again = weights(train_smoke(tmp_path))
    for name, value in weights(run).items():
        assert np.array_equal(value, again[name]), name


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["maskable_ppo", "recurrent_ppo"])
def test_every_learner_trains_and_its_policy_acts(algorithm: str, tmp_path: Path) -> None:
    run = train_smoke(tmp_path, algorithm=algorithm, total_steps=128)
    policy = load_policy(run.folder)
    env = policy.make_env()
    observation, _ = env.reset(seed=1)
    policy.reset()
    assert env.action_space.contains(policy.act(observation))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_run_is_partial_and_goes_on_to_the_same_total(
    number: signal.Signals, tmp_path: Path
) -> None:
    run = interrupted(tmp_path, number)
    assert read_manifest(run.folder)["ended"] is None
    assert read_state(run.checkpoints / f"step-{2 * ROLLOUT_STEPS}").steps == 2 * ROLLOUT_STEPS

    resumed = resumed_run(run.folder)
    assert (resumed.config, resumed.seed) == (run.config, run.seed)
    state = train(resumed, silent_bars())
    assert state is not None
    assert state.steps == TOTAL_STEPS
    (note,) = read_manifest(run.folder)["resumed"]
    assert note["from_steps"] == 2 * ROLLOUT_STEPS
    steps = [row["steps"] for row in read_rows(run.folder / "episodes.csv")]
    assert steps == sorted(steps)
    assert steps[-1] <= TOTAL_STEPS


def test_resuming_twice_from_a_checkpoint_learns_the_same(tmp_path: Path) -> None:
    first = interrupted(tmp_path / "a")
    second = tmp_path / "b"
    shutil.copytree(first.folder, second)
    learned = []
    for folder in (first.folder, second):
        resumed = resumed_run(folder)
        assert train(resumed, silent_bars()) is not None
        learned.append(weights(resumed))
    for name, value in learned[0].items():
        assert np.array_equal(value, learned[1][name]), name


def test_run_that_is_there_is_not_overwritten(run: TrainingRun) -> None:
    with pytest.raises(FileExistsError, match=r"the run already exists; use --resume"):
        new_run(run.config, run.seed, run.folder.parents[1], source=ROOT)


def test_complete_run_is_not_resumed(run: TrainingRun) -> None:
    with pytest.raises(ValueError, match="the run is complete"):
        resumed_run(run.folder)


def test_run_without_checkpoint_is_not_resumed(tmp_path: Path) -> None:
    run = new_run(smoke_config(), 1, tmp_path, source=ROOT)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        resumed_run(run.folder)
    with pytest.raises(FileNotFoundError, match=r"not a run folder, it has no manifest\.json"):
        resumed_run(tmp_path)


def test_negative_seed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seed: got -1, expected >= 0"):
        new_run(smoke_config(), -1, tmp_path, source=ROOT)


def test_folder_stays_as_it_was_if_writing_fails(tmp_path: Path) -> None:
    target = tmp_path / "checkpoint"
    with replace_folder(target) as temporary:
        (temporary / "a").write_text("1")

    def fail() -> None:
        with replace_folder(target) as temporary:
            (temporary / "a").write_text("2")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert (target / "a").read_text() == "1"
    with replace_folder(target) as temporary:
        (temporary / "b").write_text("3")
    assert [path.name for path in tmp_path.rglob("*")] == ["checkpoint", "b"]


def test_rows_of_a_lost_part_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    start_rows(path, ("steps", "reward"), 0)
    append_rows(path, [(64, 1.0), (128, 2.0)])
    start_rows(path, ("steps", "reward"), 100)
    append_rows(path, [(128, 3.0)])
    with path.open(newline="") as file:
        assert list(csv.reader(file)) == [["steps", "reward"], ["64", "1.0"], ["128", "3.0"]]

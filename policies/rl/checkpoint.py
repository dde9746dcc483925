"""Checkpoints of a training run: complete or not there.

A checkpoint is a folder ``step-<n>`` with the learner (``model.zip``), the statistics of
VecNormalize (``vecnormalize.pkl``) and ``state.json``. It holds what was learned from whole
rollouts: steps of a rollout that was interrupted are played again. No random state is kept: a run
that goes on draws from its seed and the step
(:func:`~aisim_gym.policies.rl.training_envs.env_seed`).
"""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aisim_gym.policies.rl.atomic_folder import replace_folder

if TYPE_CHECKING:
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.vec_env import VecEnv

MODEL, STATISTICS, STATE = "model.zip", "vecnormalize.pkl", "state.json"
KEPT = 2


class TrainingState(NamedTuple):
    """Where a run is.

    Attributes:
        steps: Environment steps learned from.
        best_reward: Best mean reward of a validation so far, None before the first.
        best_steps: Steps that the best learner had learned from.
        wall_s: Time spent in training.
    """

    steps: int = 0
    best_reward: float | None = None
    best_steps: int = 0
    wall_s: float = 0.0


def save_checkpoint(
    folder: Path, name: str, model: "OnPolicyAlgorithm", state: TrainingState
) -> Path:
    """Write a checkpoint; it appears complete, under its name, or not at all.

    Args:
        folder: Of all checkpoints of the run.
        name: Of this one; an older one of that name is replaced.
        model: Learner, in an environment with VecNormalize.
        state: Its ``steps`` are written into the learner.

    Returns:
        The checkpoint's folder.
    """
    envs = model.get_vec_normalize_env()
    assert envs is not None
    target = folder / name
    steps_now = model.num_timesteps
    with replace_folder(target) as temporary:
        model.num_timesteps = state.steps
        try:
            model.save(temporary / MODEL)
        finally:
            model.num_timesteps = steps_now
        envs.save(str(temporary / STATISTICS))
        (temporary / STATE).write_text(json.dumps(state._asdict()) + "\n", "utf-8")
    return target


def read_state(checkpoint: Path) -> TrainingState:
    """Return where a run was at a checkpoint."""
    return TrainingState(**json.loads((checkpoint / STATE).read_text("utf-8")))


def load_learner(
    checkpoint: Path, learner: "type[OnPolicyAlgorithm]", envs: "VecEnv"
) -> "OnPolicyAlgorithm":
    """Return the learner of a checkpoint, in ``envs`` with the statistics of the checkpoint.

    Args:
        checkpoint: Folder.
        learner: Class of the learner.
        envs: Environments to learn in, not normalised.
    """
    from stable_baselines3.common.vec_env import VecNormalize

    loaded = VecNormalize.load(str(checkpoint / STATISTICS), envs)
    return learner.load(checkpoint / MODEL, env=loaded, device="cpu")


def latest_checkpoint(folder: Path) -> Path:
    """Return the checkpoint with the most steps.

    Raises:
        FileNotFoundError: If there is none.
    """
    found = _by_steps(folder)
    if not found:
        raise FileNotFoundError(
            f"{folder}: no checkpoint; the run ended before its first one, start it anew"
        )
    return found[-1]


def remove_old_checkpoints(folder: Path) -> None:
    """Remove all but the last few."""
    for old in _by_steps(folder)[:-KEPT]:
        shutil.rmtree(old)


def checkpoint_name(steps: int) -> str:
    """Return the folder name of a checkpoint."""
    return f"step-{steps}"


def _by_steps(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), key=lambda path: int(path.name.partition("-")[2]))

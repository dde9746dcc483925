"""Checkpoints of a training run, written atomically.

A checkpoint is a folder ``step-<n>`` with the learner (``model.zip``), the statistics of
VecNormalize (``vecnormalize.pkl``) and ``state.json``. It contains the learning of whole rollouts:
steps of an interrupted rollout are repeated. No random state is saved: a resumed run draws from its
seed and the step (:func:`~aisim_gym.policies.rl.training_envs.env_seed`).
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
    """Progress of a run.

    Attributes:
        steps: Environment steps used for learning.
        best_reward: Best mean validation reward so far, None before the first.
        best_steps: Steps used by the best learner.
        wall_s: Training time in seconds.
    """

    steps: int = 0
    best_reward: float | None = None
    best_steps: int = 0
    wall_s: float = 0.0


def save_checkpoint(
    folder: Path, name: str, model: "OnPolicyAlgorithm", state: TrainingState
) -> Path:
    """Write a checkpoint atomically.

    Args:
        folder: Folder of all checkpoints of the run.
        name: Name of the checkpoint; an older one of that name is replaced.
        model: Learner, in an environment with VecNormalize.
        state: Progress; ``steps`` are written to the learner.

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
    """Return the progress of a run at a checkpoint."""
    return TrainingState(**json.loads((checkpoint / STATE).read_text("utf-8")))


def load_learner(
    checkpoint: Path, learner: "type[OnPolicyAlgorithm]", envs: "VecEnv"
) -> "OnPolicyAlgorithm":
    """Return the learner of a checkpoint in ``envs``, normalised with its statistics.

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
            f"{folder}: no checkpoint; the run ended before its first one, start a new run"
        )
    return found[-1]


def remove_old_checkpoints(folder: Path) -> None:
    """Remove all but the latest checkpoints."""
    for old in _by_steps(folder)[:-KEPT]:
        shutil.rmtree(old)


def checkpoint_name(steps: int) -> str:
    """Return the folder name of a checkpoint."""
    return f"step-{steps}"


def _by_steps(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), key=lambda path: int(path.name.partition("-")[2]))

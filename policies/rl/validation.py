"""Validation during training on fixed episodes, which keeps the best learner."""

from pathlib import Path
from typing import TYPE_CHECKING

from aisim_gym.policies.rl.algorithms import MASKABLE
from aisim_gym.policies.rl.observers import Checkpoints
from aisim_gym.policies.rl.step_rows import append_rows, start_rows
from aisim_gym.policies.rl.training_config import TrainingConfig
from aisim_gym.policies.rl.training_envs import make_validation_env, normalize

if TYPE_CHECKING:
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

VALIDATION_COLUMNS = ("steps", "mean_reward")


class Validations:
    """Logs every validation to a CSV file and keeps the best learner."""

    def __init__(self, path: Path, checkpoints: Checkpoints) -> None:
        """Continue a file from the current step, or create it."""
        self._path = path
        self._checkpoints = checkpoints
        start_rows(path, VALIDATION_COLUMNS, checkpoints.state.steps)

    def note(self, model: "OnPolicyAlgorithm", mean_reward: float) -> None:
        """Record a validation."""
        append_rows(self._path, [(self._checkpoints.state.steps, mean_reward)])
        self._checkpoints.note_validation(model, mean_reward)


def validation_callback(config: TrainingConfig, validations: Validations) -> "EvalCallback":
    """Return the callback that validates every ``validation_steps`` and calls ``validations``."""
    from sb3_contrib.common.maskable.callbacks import MaskableEvalCallback
    from stable_baselines3.common.callbacks import BaseCallback, EvalCallback

    class ValidationCallback(BaseCallback):
        def _on_step(self) -> bool:
            assert isinstance(self.parent, EvalCallback)
            validations.note(self.model, self.parent.last_mean_reward)  # type: ignore[arg-type]
            return True

    callback = MaskableEvalCallback if config.algorithm == MASKABLE else EvalCallback
    return callback(
        normalize(config, make_validation_env(config), is_training=False),
        callback_after_eval=ValidationCallback(),
        n_eval_episodes=config.splits["validation"].episodes,
        eval_freq=max(config.validation_steps // config.num_envs, 1),
        verbose=0,
    )

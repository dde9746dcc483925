"""Reinforcement learning: training runs, policy bundles, learned policies, their evaluation.

Needs the extra ``rl``, which is imported on first use. ``docs/training.md`` gives an overview; the
scripts are in ``experiments/``.
"""

from aisim_gym.policies.rl.learned_policy import LearnedPolicy, load_policy
from aisim_gym.policies.rl.training_config import TrainingConfig, load_config

__all__ = ["LearnedPolicy", "TrainingConfig", "load_config", "load_policy"]

"""Reinforcement learning: training runs, policy bundles, learned policies, their evaluation.

Needs the extra ``rl``; nothing of it is imported before it is used. How it fits together is told in
``docs/training.md``; the scripts are in ``experiments/``.
"""

from aisim_gym.policies.rl.learned_policy import LearnedPolicy, load_policy
from aisim_gym.policies.rl.training_config import TrainingConfig, load_config

__all__ = ["LearnedPolicy", "TrainingConfig", "load_config", "load_policy"]

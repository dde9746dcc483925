"""Learners: PPO of Stable-Baselines3, and maskable and recurrent PPO of sb3-contrib."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aisim_gym.policies.rl.training_config import AlgorithmName, Network, TrainingConfig

if TYPE_CHECKING:
    from gymnasium import spaces
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.vec_env import VecNormalize

NEEDS = "learned policies need Stable-Baselines3: pip install 'aisim-gym[rl]'"

MASKABLE: AlgorithmName = "maskable_ppo"
RECURRENT: AlgorithmName = "recurrent_ppo"


def algorithm_class(name: AlgorithmName) -> "type[OnPolicyAlgorithm]":
    """Return the class of a learner.

    Raises:
        ImportError: If the extra ``rl`` is not installed.
    """
    try:
        import sb3_contrib
        import stable_baselines3
    except ImportError as error:
        raise ImportError(f"{NEEDS} ({error})") from error
    classes: dict[str, type[OnPolicyAlgorithm]] = {
        "ppo": stable_baselines3.PPO,
        MASKABLE: sb3_contrib.MaskablePPO,
        RECURRENT: sb3_contrib.RecurrentPPO,
    }
    return classes[name]


def build_learner(config: TrainingConfig, envs: "VecNormalize", seed: int) -> "OnPolicyAlgorithm":
    """Return an untrained learner.

    Args:
        config: Configuration of the run.
        envs: Training environments.
        seed: Seed of weights and random choices.

    Raises:
        ImportError: If the extra ``rl`` is not installed.
        ValueError: If observations are not a box.
    """
    check_observations(envs.observation_space)
    hyperparameters = config.hyperparameters.model_dump()
    schedule, rate = hyperparameters.pop("schedule"), hyperparameters.pop("learning_rate")
    learner: Callable[..., OnPolicyAlgorithm] = algorithm_class(config.algorithm)
    return learner(
        "MlpLstmPolicy" if config.algorithm == RECURRENT else "MlpPolicy",
        envs,
        learning_rate=rate if schedule == "constant" else LinearSchedule(rate),
        policy_kwargs=network_arguments(config.algorithm, config.network),
        seed=seed,
        device="cpu",
        **hyperparameters,
    )


def build_policy(
    algorithm: AlgorithmName,
    network: Network,
    observation_space: "spaces.Space[Any]",
    action_space: "spaces.Space[Any]",
) -> "ActorCriticPolicy":
    """Return the network of a learner, with random weights.

    Raises:
        ImportError: If the extra ``rl`` is not installed.
        ValueError: If observations are not a box.
    """
    check_observations(observation_space)
    alias = "MlpLstmPolicy" if algorithm == RECURRENT else "MlpPolicy"
    policy: Callable[..., Any] = algorithm_class(algorithm).policy_aliases[alias]
    return policy(  # type: ignore[no-any-return]
        observation_space,
        action_space,
        LinearSchedule(0.0),
        **network_arguments(algorithm, network),
    )


def network_arguments(algorithm: AlgorithmName, network: Network) -> dict[str, Any]:
    """Return the arguments of the policy class that describe its layers."""
    import torch

    arguments: dict[str, Any] = {
        "net_arch": list(network.hidden),
        "activation_fn": {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[network.activation],
    }
    if algorithm == RECURRENT:
        arguments["lstm_hidden_size"] = network.lstm_units
    return arguments


def check_observations(space: "spaces.Space[Any]") -> None:
    """Raise if the networks here cannot read the observations.

    Raises:
        ValueError: If they are not a box.
    """
    from gymnasium import spaces

    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"observation space: got {space}, expected a Box; choose an observation that is a "
            "vector in [env.kwargs]"
        )


class LinearSchedule:
    """A learning rate that falls linearly from ``start`` to 0; a class, so that it is picklable."""

    def __init__(self, start: float) -> None:
        """Create the schedule from the initial rate."""
        self.start = start

    def __call__(self, remaining_frac: float) -> float:
        """Return the rate when ``remaining_frac`` (1 to 0) of the steps are left."""
        return self.start * remaining_frac

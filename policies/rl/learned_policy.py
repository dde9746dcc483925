"""Load a trained policy and use it in an environment.

policy = load_policy("runs/chat-diurnal-ppo/seed-1")
env = policy.make_env()
observation, info = env.reset(seed=7)
policy.reset()
action = policy.act(observation)
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from aisim_gym.policies.rl.algorithms import MASKABLE, build_policy
from aisim_gym.policies.rl.policy_bundle import (
    Arrays,
    BundleDescription,
    PolicyBundle,
    Statistics,
    describe_space,
    read_bundle,
    space_text,
)
from aisim_gym.policies.rl.training_config import env_arguments
from aisim_gym.policies.rl.training_envs import make_env

if TYPE_CHECKING:
    from stable_baselines3.common.policies import ActorCriticPolicy

States = tuple[NDArray[Any], ...] | None


def load_policy(
    path: str | os.PathLike[str], env: gymnasium.Env[Any, Any] | None = None
) -> "LearnedPolicy":
    """Return the policy of a bundle; only the bundle is read, and nothing is downloaded.

    Args:
        path: Folder or zip file of a bundle, or the folder of a training run.
        env: Environment to act in; None makes the environment of its training.

    Raises:
        FileNotFoundError: If a file is missing, including statistics of observations.
        ImportError: If the extra ``rl`` is not installed.
        SpecError: If the bundle's description is not valid.
        ValueError: If version or spaces of the environment differ from those of the training.
    """
    bundle = read_bundle(Path(path).expanduser())
    check_version(bundle)
    own_env = bundle_env(bundle.description, {}) if env is None else env
    check_env(bundle, own_env)
    if env is None:
        own_env.close()
    network = build_policy(
        bundle.description.algorithm,
        bundle.description.network,
        own_env.observation_space,
        own_env.action_space,
    )
    _load_weights(network, bundle)
    return LearnedPolicy(bundle.description, network, bundle.statistics)


class LearnedPolicy:
    """A trained network with everything needed to act, for inference only.

    Attributes:
        description: Description of its bundle.
        is_maskable: Whether :meth:`act` needs the environment's ``action_masks()``.
    """

    def __init__(
        self,
        description: BundleDescription,
        network: "ActorCriticPolicy",
        statistics: Statistics | None,
    ) -> None:
        """Create a policy; use :func:`load_policy` for bundles."""
        self.description = description
        self.is_maskable = description.algorithm == MASKABLE
        self._network = network
        self._statistics = statistics
        self.reset()

    def reset(self) -> None:
        """Start an episode, which clears the state of a recurrent policy."""
        self._states: States = None
        self._is_first = True

    def act(
        self, observation: NDArray[Any], action_masks: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Return the most likely action.

        Args:
            observation: Observation of the environment, not normalised.
            action_masks: Result of ``env.unwrapped.action_masks()``, for a maskable policy; None
                allows all actions.
        """
        is_first = np.array([self._is_first])
        action, self._states = self.predict(
            observation, self._states, is_first, action_masks=action_masks
        )
        self._is_first = False
        return action

    def predict(
        self,
        observation: Any,
        state: States = None,
        episode_start: NDArray[Any] | None = None,
        deterministic: bool = True,
        action_masks: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[Any], States]:
        """Return actions and states, with the interface of Stable-Baselines3.

        Args:
            observation: One or several observations, not normalised.
            state: State of a recurrent policy, from the previous call.
            episode_start: Whether each observation starts an episode.
            deterministic: False draws from the policy's distribution.
            action_masks: Masks for a maskable policy.
        """
        if self._statistics is not None:
            observation = self._statistics.normalize(observation)
        masks = {"action_masks": action_masks} if self.is_maskable else {}
        return self._network.predict(
            observation,
            state,
            episode_start,
            deterministic,
            **masks,
        )

    def make_env(self, **overrides: Any) -> gymnasium.Env[Any, Any]:
        """Return a new environment with the arguments of the training, apart from ``overrides``."""
        return bundle_env(self.description, overrides)


def bundle_env(
    description: BundleDescription, overrides: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """Return a new environment with the arguments of the training, apart from ``overrides``."""
    return make_env(description.env.id, env_arguments(description.env, overrides))


def check_version(bundle: PolicyBundle) -> None:
    """Raise if the environment version of a bundle is not installed.

    Raises:
        ValueError: If the id is not registered.
    """
    wanted = bundle.description.env.id
    if wanted in gymnasium.registry:
        return
    name = wanted.rpartition("-v")[0]
    others = [known for known in gymnasium.registry if known.rpartition("-v")[0] == name]
    if not others:
        raise ValueError(f"{bundle.source}: trained in {wanted!r}, which is not registered")
    raise ValueError(
        f"{bundle.source}: trained in {wanted}, but installed is {', '.join(others)}: another "
        "version gives other results; train again, or install the aisim-gym it was trained with "
        f"({bundle.description.versions.get('aisim-gym', 'unknown')})"
    )


def check_env(bundle: PolicyBundle, env: gymnasium.Env[Any, Any]) -> None:
    """Raise if an environment does not match the training of a policy.

    Raises:
        ValueError: If its versioned id or its spaces differ.
    """
    wanted = bundle.description
    if env.spec is None or env.spec.id.rpartition(":")[2] != wanted.env.id:
        got = "one without an id" if env.spec is None else env.spec.id
        raise ValueError(f"{bundle.source}: env: got {got}, expected {wanted.env.id}")
    for kind in ("observation_space", "action_space"):
        space, expected = describe_space(getattr(env, kind)), getattr(wanted, kind)
        if space != expected:
            raise ValueError(
                f"{bundle.source}: {kind}: got {space_text(space)}, expected "
                f"{space_text(expected)} with the bounds of the training; the environment's "
                "arguments or version differ"
            )


def _load_weights(network: "ActorCriticPolicy", bundle: PolicyBundle) -> None:
    import torch

    arrays: Arrays = bundle.weights
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(
            f"{bundle.source}: weights and network do not fit together: {error}"
        ) from error
    network.set_training_mode(False)

"""Environments for training and validation, as Stable-Baselines3 wants them."""

import multiprocessing
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

import aisim_gym.envs  # noqa: F401  registers the ids, also in the processes of SubprocVecEnv
from aisim_gym.policies.rl.native_envs import make_native_envs
from aisim_gym.policies.rl.training_config import EpisodeSet, TrainingConfig, env_arguments
from aisim_gym.spec.wording import closest

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv, VecNormalize


@dataclass(frozen=True)
class EnvMaker:
    """Makes an environment, here or in a process of its own.

    Attributes:
        env_id: Registered id.
        kwargs: Arguments of ``make()``.
    """

    env_id: str
    kwargs: dict[str, Any]

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """Return a new environment.

        Raises:
            ValueError: If the id is unknown.
        """
        if multiprocessing.parent_process() is not None:
            # Ctrl-C reaches every process of the terminal; only the first one is to act on it.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return make_env(self.env_id, self.kwargs)


def make_env(env_id: str, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return a new environment.

    Raises:
        ValueError: If the id is unknown; whatever the environment raises for its arguments.
    """
    check_registered(env_id)
    return gymnasium.make(env_id, **kwargs)


def check_registered(env_id: str) -> None:
    """Refuse an id that nobody registered.

    Raises:
        ValueError: If the id is unknown.
    """
    if env_id not in gymnasium.registry:
        known = [name for name in gymnasium.registry if name.startswith("aisim_gym/")]
        raise ValueError(
            f"unknown environment {env_id!r}{closest(env_id, known)} (known: {', '.join(known)})"
        )


class FixedEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Plays the episodes of a set one after the other, round and round.

    Every validation thus sees the same episodes, whatever seed it asks for.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], episodes: EpisodeSet) -> None:
        """Take an environment and the episodes to play in it."""
        super().__init__(env)
        self._episodes = episodes
        self._next = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode of the set; ``seed`` and ``options`` are not used."""
        chosen = reset_arguments(self._episodes, self._next)
        self._next = (self._next + 1) % self._episodes.episodes
        return self.env.reset(**chosen)


def reset_arguments(episodes: EpisodeSet, k: int) -> dict[str, Any]:
    """Return what ``reset()`` is to be told for episode ``k`` of a set, counted from 0."""
    number = episodes.first + k
    if episodes.choose_by == "episode":
        return {"options": {"episode": number}}
    return {"seed": number}


def env_seed(seed: int, steps: int) -> int:
    """Return the seed of the environments, and of the learner's draws, from a step on.

    A run that goes on has other traffic than at its beginning, and the same each time it goes on
    from the same step.
    """
    return int(np.random.SeedSequence([seed, steps]).generate_state(1)[0])


def make_training_envs(config: TrainingConfig) -> "VecEnv":
    """Return the environments of a run, monitored."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    if config.vec == "native":
        check_registered(config.env.id)
        return make_native_envs(config.env.id, config.env.kwargs, config.num_envs)
    maker = EnvMaker(config.env.id, config.env.kwargs)
    if config.vec == "subproc":
        options = {"start_method": config.start_method}
        return make_vec_env(
            maker, config.num_envs, vec_env_cls=SubprocVecEnv, vec_env_kwargs=options
        )
    return make_vec_env(maker, config.num_envs, vec_env_cls=DummyVecEnv)


def make_validation_env(config: TrainingConfig) -> "VecEnv":
    """Return what plays the validation episodes, monitored."""
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv

    episodes = config.splits["validation"]
    env = make_env(config.env.id, env_arguments(config.env, episodes.kwargs))
    return DummyVecEnv([lambda: Monitor(FixedEpisodes(env, episodes))])


def normalize(
    config: TrainingConfig, envs: "VecEnv", *, is_training: bool = True
) -> "VecNormalize":
    """Return environments with running statistics.

    Args:
        config: Says what is normalised.
        envs: Not normalised yet.
        is_training: False leaves the statistics, and all rewards, as they are.
    """
    from stable_baselines3.common.vec_env import VecNormalize

    return VecNormalize(
        envs,
        training=is_training,
        norm_obs=config.normalize.observation,
        norm_reward=config.normalize.reward and is_training,
        clip_obs=config.normalize.clip,
        clip_reward=config.normalize.clip,
        gamma=config.hyperparameters.gamma,
    )

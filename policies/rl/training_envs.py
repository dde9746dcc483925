"""Stable-Baselines3 environments for training and validation."""

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
    """Picklable factory of an environment, for use in any process.

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
            # Ctrl-C reaches every process of the terminal; only the main process handles it.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return make_env(self.env_id, self.kwargs)


def make_env(env_id: str, kwargs: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return a new environment.

    Raises:
        ValueError: If the id is unknown, or the environment rejects its arguments.
    """
    check_registered(env_id)
    return gymnasium.make(env_id, **kwargs)


def check_registered(env_id: str) -> None:
    """Raise if an id is not registered.

    Raises:
        ValueError: If the id is unknown.
    """
    if env_id not in gymnasium.registry:
        known = [name for name in gymnasium.registry if name.startswith("aisim_gym/")]
        raise ValueError(
            f"unknown environment {env_id!r}{closest(env_id, known)} (known: {', '.join(known)})"
        )


class FixedEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Plays the episodes of a set in a cycle.

    Every validation thus uses the same episodes, regardless of its seed.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], episodes: EpisodeSet) -> None:
        """Wrap an environment to play ``episodes``."""
        super().__init__(env)
        self._episodes = episodes
        self._next = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start the next episode of the set; ``seed`` and ``options`` are ignored."""
        chosen = reset_arguments(self._episodes, self._next)
        self._next = (self._next + 1) % self._episodes.episodes
        return self.env.reset(**chosen)


def reset_arguments(episodes: EpisodeSet, k: int) -> dict[str, Any]:
    """Return the arguments of ``reset()`` for episode ``k`` of a set, counted from 0."""
    number = episodes.first + k
    if episodes.choose_by == "episode":
        return {"options": {"episode": number}}
    return {"seed": number}


def env_seed(seed: int, steps: int) -> int:
    """Return the seed of environments and learner from a given step on.

    A resumed run has different traffic than at its start, and the same traffic each time it resumes
    from the same step.
    """
    return int(np.random.SeedSequence([seed, steps]).generate_state(1)[0])


def make_training_envs(config: TrainingConfig) -> "VecEnv":
    """Return the monitored training environments of a run."""
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
    """Return the monitored validation environment."""
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
        config: Configuration with the normalisation.
        envs: Environments without normalisation.
        is_training: False keeps the statistics fixed and rewards unscaled.
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

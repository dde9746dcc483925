"""Adapt the vector environments of this package to Stable-Baselines3, with replays in threads.

The results equal those of a DummyVecEnv of monitored environments in every number: seeds, rewards
in float32, ``terminal_observation``, ``TimeLimit.truncated`` and ``episode``.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from aisim_gym.envs.vector_env import ScalingVectorEnv

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv


def make_native_envs(env_id: str, kwargs: Mapping[str, Any], num_envs: int) -> "VecEnv":
    """Return monitored environments that are stepped in parallel threads.

    Args:
        env_id: Registered id.
        kwargs: Arguments of ``make()``.
        num_envs: Number of environments, >= 1.

    Raises:
        TypeError: If the id has no vector environment in this package.
        ValueError: If the environment rejects its arguments.
    """
    entry_point = gymnasium.spec(env_id).vector_entry_point
    maker = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    if not (isinstance(maker, type) and issubclass(maker, ScalingVectorEnv)):
        raise TypeError(
            f"vec: got 'native' for {env_id}, which is no environment of aisim_gym.envs; expected "
            "'dummy' or 'subproc'"
        )
    envs = gymnasium.make_vec(
        env_id,
        num_envs,
        vectorization_mode="vector_entry_point",
        autoreset_mode=AutoresetMode.SAME_STEP,
        **kwargs,
    )
    return as_vec_env(cast(ScalingVectorEnv, envs))


def as_vec_env(envs: ScalingVectorEnv) -> "VecEnv":
    """Return a vector environment in mode SameStep with the interface of Stable-Baselines3."""
    from stable_baselines3.common.vec_env import VecEnv

    class NativeVecEnv(VecEnv):
        def __init__(self) -> None:
            self._episodes = EpisodeSums(envs.num_envs)
            self._actions: Any = None
            super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

        def reset(self) -> Any:
            """Start an episode in every environment, with the seeds of ``seed()``."""
            first = self._options[0]
            if any(options != first for options in self._options):
                raise ValueError("options: expected the same for every environment")
            observations, infos = envs.reset(seed=self._seeds, options=first)
            self.reset_infos = split_infos(infos, self.num_envs)
            self._episodes.begin(range(self.num_envs))
            self._reset_seeds()
            self._reset_options()
            return observations

        def step_async(self, actions: NDArray[Any]) -> None:
            self._actions = actions

        def step_wait(self) -> Any:
            observations, rewards, terminated, truncated, merged = envs.step(self._actions)
            final_obs = merged.pop("final_obs", None)
            endings = split_infos(merged.pop("final_info", {}), self.num_envs)
            infos = split_infos(merged, self.num_envs)
            self._episodes.add(rewards)
            dones = terminated | truncated
            over = np.flatnonzero(dones).tolist()
            for i in over:
                # After an end the vector environment's info belongs to the next episode.
                self.reset_infos[i], infos[i] = infos[i], endings[i]
                infos[i]["terminal_observation"] = final_obs[i]
                infos[i]["episode"] = self._episodes.result(i)
            self._episodes.begin(over)
            for info, cut in zip(infos, (truncated & ~terminated).tolist(), strict=True):
                info["TimeLimit.truncated"] = cut
            return observations, rewards.astype(np.float32), dones, infos

        def close(self) -> None:
            envs.close()

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [getattr(env, attr_name) for env in self._chosen(indices)]

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            for env in self._chosen(indices):
                setattr(env, attr_name, value)

        def env_method(
            self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
        ) -> list[Any]:
            return [
                getattr(env, method_name)(*method_args, **method_kwargs)
                for env in self._chosen(indices)
            ]

        def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
            """Return all false; episodes are counted as by Monitor nevertheless."""
            return [False for _ in self._chosen(indices)]

        def get_images(self) -> list[Any]:
            return self.env_method("render")

        def _chosen(self, indices: Any) -> list[Any]:
            return [envs.envs[i] for i in self._get_indices(indices)]

    return NativeVecEnv()


class EpisodeSums:
    """Reward and length of running episodes, as reported by Monitor."""

    def __init__(self, num_envs: int) -> None:
        """Create sums of zero."""
        self._rewards = np.zeros(num_envs, np.float64)
        self._num_steps = np.zeros(num_envs, np.int64)
        self._started_s = time.monotonic()

    def begin(self, which: Sequence[int]) -> None:
        """Reset the sums of some environments."""
        chosen = list(which)
        self._rewards[chosen], self._num_steps[chosen] = 0.0, 0

    def add(self, rewards: NDArray[np.float64]) -> None:
        """Count a step of every environment; ``rewards`` has shape (num_envs,)."""
        self._rewards += rewards
        self._num_steps += 1

    def result(self, i: int) -> dict[str, Any]:
        """Return the sum of rewards, the steps and the seconds since the start of all episodes."""
        return {
            "r": round(float(self._rewards[i]), 6),
            "l": int(self._num_steps[i]),
            "t": round(time.monotonic() - self._started_s, 6),
        }


def split_infos(infos: Mapping[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """Return the info of each environment from Gymnasium's merged info.

    In the merged info every key has an array with an entry per environment, and ``_<key>`` marks
    the valid entries.
    """
    split: list[dict[str, Any]] = [{} for _ in range(num_envs)]
    for key, values in infos.items():
        if f"_{key}" not in infos:
            continue
        entries = values.tolist()
        for i in np.flatnonzero(infos[f"_{key}"]).tolist():
            split[i][key] = entries[i]
    return split

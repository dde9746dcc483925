"""Step many environments in one call, with their replays in parallel on all cores."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate

from aisim_gym.envs.aggregated import AggregatedEnv
from aisim_gym.envs.disaggregated import DisaggregatedEnv
from aisim_gym.envs.scaling_env import ScalingEnv
from aisim_gym.errors import ReplayError
from aisim_gym.replay.batch import ReplayBatch
from aisim_gym.spec.argument_checks import check_integer
from aisim_gym.spec.wording import closest

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class ScalingVectorEnv(SyncVectorEnv):
    """Vector environment that ``gymnasium.make_vec`` returns for this package.

    Its results equal those of ``SyncVectorEnv`` in every number, observation and info, in every
    autoreset mode. It is faster, because the replays of all environments run in threads without the
    GIL.

        >>> import gymnasium
        >>> import aisim_gym.envs
        >>> envs = gymnasium.make_vec("aisim_gym/Aggregated-v0", num_envs=2)
        >>> observations, infos = envs.reset(seed=1)
        >>> observations.shape, infos["arrived"].tolist()
        ((2, 20), [0, 0])
        >>> envs.close()

    Attributes:
        envs: The environments; they may be read between the calls.
    """

    env_class: ClassVar[type[ScalingEnv]]

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        num_threads: int | None = None,
        max_episode_steps: int | None = None,
        **arguments: Any,
    ) -> None:
        """Build the environments.

        Args:
            num_envs: Number of environments, >= 1.
            autoreset_mode: ``"NextStep"``, ``"SameStep"`` or ``"Disabled"``, or Gymnasium's enum.
            num_threads: Threads of the replays; by default one per core.
            max_episode_steps: Steps after which an episode is truncated, >= 1; None or -1: never.
            **arguments: Arguments of the environment.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If an argument is not allowed.
        """
        if check_integer("num_envs", num_envs, ">= 1") < 1:
            raise ValueError(f"num_envs: got {num_envs}, expected >= 1")
        modes = [mode.value for mode in AutoresetMode]
        if not isinstance(autoreset_mode, AutoresetMode) and autoreset_mode not in modes:
            raise ValueError(
                f"autoreset_mode: got {autoreset_mode!r}{closest(str(autoreset_mode), modes)}, "
                f"expected one of: {', '.join(modes)}"
            )
        if max_episode_steps is not None:
            check_integer("max_episode_steps", max_episode_steps, ">= 1, or None")
            if max_episode_steps < 1 and max_episode_steps != -1:
                raise ValueError(
                    f"max_episode_steps: got {max_episode_steps}, expected >= 1, or None"
                )
        # Building one environment reads and checks its workload; the others are copies.
        first = self.env_class(**arguments)
        makers = [lambda: first, *[first.fork] * (num_envs - 1)]
        super().__init__(makers, autoreset_mode=autoreset_mode)
        self.env_fns = []
        self._max_steps = max_episode_steps if max_episode_steps not in (None, -1) else None
        self._num_steps = np.zeros(num_envs, np.int64)
        self._num_threads = num_threads
        self._batch: ReplayBatch | None = None

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every environment, or in those of ``options["reset_mask"]``.

        Args:
            seed: One per environment; an integer gives consecutive seeds that start with it.
            options: For every environment, see their manual; ``reset_mask``, shape (num_envs,),
                bool, selects the environments to reset.

        Raises:
            TypeError: If the mask is not an array of bool.
            ValueError: If the number of seeds is wrong, or the mask has another shape or is all
                false.
        """
        seeds = self._seeds(seed)
        chosen = dict(options or {})
        mask = self._reset_mask(chosen.pop("reset_mask", None))
        which = np.flatnonzero(mask).tolist()
        infos: list[dict[str, Any] | None] = [None] * self.num_envs
        for i, info in self._begin(which, seeds, chosen).items():
            infos[i] = info
        for flags in (self._terminations, self._truncations, self._autoreset_envs):
            flags[mask] = False
        return self._all_observations(), self._merged(infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Set the targets of every environment and run all to their next ticks.

        Returns:
            Observations; rewards, float64; terminations and truncations, bool, shape (num_envs,)
            each; infos. After the end of an episode, mode NextStep ignores the next action, resets
            and gives reward 0; SameStep resets at once, with ``infos["final_obs"]`` and
            ``infos["final_info"]``.

        Raises:
            ResetNeeded: Before the first reset, and in mode Disabled after an end.
            TypeError: If an action object does not return targets.
            ValueError: If the number of actions is wrong, or an action is not in the action space;
                names the environment. No environment advances.
            ReplayError: If a replay fails; names the environment.

        After an error of a reward, an observation or a replay, only some environments have
        advanced: reset all.
        """
        chosen = list(iterate(self.action_space, actions))
        if len(chosen) != self.num_envs:
            raise ValueError(
                f"actions: got {len(chosen)} of them, expected {self.num_envs} (num_envs)"
            )
        ended = np.flatnonzero(self._autoreset_envs).tolist()
        if self.autoreset_mode == AutoresetMode.DISABLED and ended:
            raise ResetNeeded(f"step(): the episodes of environments {ended} are over, reset them")
        if self.autoreset_mode != AutoresetMode.NEXT_STEP:
            ended = []
        going_on = [i for i in range(self.num_envs) if i not in ended]
        # Read all actions first: setting targets cannot be undone.
        targets = [self._env(i).read_action(chosen[i], f"actions[{i}]") for i in going_on]
        drawn = [self._env(i).draw_episode() for i in ended]
        for i, wanted in zip(going_on, targets, strict=True):
            self._env(i).episode.answer(wanted)
        for i, episode in zip(ended, drawn, strict=True):
            self._env(i).start_episode(episode)
            self._num_steps[i] = 0
        self._run([*going_on, *ended])

        infos: list[dict[str, Any] | None] = [None] * self.num_envs
        for i in ended:
            self._env_obs[i], infos[i] = self._env(i).first_observation()
            self._rewards[i], self._terminations[i], self._truncations[i] = 0.0, False, False
        for i in going_on:
            infos[i] = self._take_outcome(i)
        final: dict[str, Any] = {}
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            over = np.flatnonzero(self._terminations | self._truncations).tolist()
            for i in over:
                ending = {"final_obs": self._env_obs[i], "final_info": infos[i]}
                final = self._add_info(final, ending, i)
            for i, info in self._begin(over, [None] * self.num_envs, {}).items():
                infos[i] = info
        self._autoreset_envs = self._terminations | self._truncations
        return (
            self._all_observations(),
            self._rewards.copy(),
            self._terminations.copy(),
            self._truncations.copy(),
            {**final, **self._merged(infos)},
        )

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads and close the environments."""
        if self._batch is not None:
            self._batch.close()
        super().close_extras(**kwargs)

    def _env(self, i: int) -> ScalingEnv:
        return cast(ScalingEnv, self.envs[i])

    def _begin(
        self, which: Sequence[int], seeds: Sequence[int | None], options: Mapping[str, Any]
    ) -> dict[int, dict[str, Any]]:
        """Start episodes, store their first observations and return their infos."""
        drawn = [self._env(i).draw_episode(seeds[i], options) for i in which]
        for i, episode in zip(which, drawn, strict=True):
            self._env(i).start_episode(episode)
            self._num_steps[i] = 0
        self._run(which)
        infos = {}
        for i in which:
            self._env_obs[i], infos[i] = self._env(i).first_observation()
        return infos

    def _run(self, which: Sequence[int]) -> None:
        """Run the replays of some environments to their next ticks."""
        if len(which) == 0:
            return
        if self._batch is None:
            replays = [self._env(i).replay for i in range(self.num_envs)]
            self._batch = ReplayBatch(replays, self._num_threads)
        for i in which:
            if self._batch.replays[i] is not self._env(i).replay:
                self._batch.replace(i, self._env(i).replay)
        try:
            self._batch.advance_to_tick(which)
        except ReplayError:  # all others have run; a stuck replay ends its episode
            replays = [self._batch.replays[i] for i in which]
            is_stuck = [each.is_stuck for each in replays]
            goes_on = [each.is_waiting or each.is_done for each in replays]
            if not any(is_stuck) or not all(np.logical_or(is_stuck, goes_on)):
                raise

    def _take_outcome(self, i: int) -> dict[str, Any]:
        """Store the outcome of a step and return its info."""
        observation, reward, terminated, truncated, info = self._env(i).outcome()
        self._num_steps[i] += 1
        if self._max_steps is not None and self._num_steps[i] >= self._max_steps:
            truncated = True
        self._env_obs[i], self._rewards[i] = observation, reward
        self._terminations[i], self._truncations[i] = terminated, truncated
        return info

    def _all_observations(self) -> Any:
        """Return the observations of all environments as new arrays."""
        space = self.single_observation_space
        empty: Any = create_empty_array(space, n=self.num_envs, fn=np.empty)
        return concatenate(space, self._env_obs, empty)

    def _merged(self, infos: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
        """Return one info of arrays, as Gymnasium merges them, key by key where all have it."""
        first = infos[0]
        merged: dict[str, Any] = {}
        if first is None or any(info is None or info.keys() != first.keys() for info in infos):
            for i, info in enumerate(infos):
                if info is not None:
                    merged = self._add_info(merged, info, i)
            return merged
        for key, value in first.items():
            merged[key] = np.array([cast(Any, info)[key] for info in infos], type(value))
            merged[f"_{key}"] = np.ones(self.num_envs, np.bool_)
        return merged

    def _seeds(self, seed: int | list[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed: got {len(seeds)} seeds, expected {self.num_envs} (num_envs)")
        return cast(list[int | None], seeds)

    def _reset_mask(self, mask: Any) -> Any:
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(f"options.reset_mask: got {mask!r}, expected an array of bool")
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(
                f"options.reset_mask: got {mask}, expected shape ({self.num_envs},) with at least "
                "one True"
            )
        return mask


class AggregatedVectorEnv(ScalingVectorEnv):
    """Many :class:`AggregatedEnv`."""

    env_class = AggregatedEnv


class DisaggregatedVectorEnv(ScalingVectorEnv):
    """Many :class:`DisaggregatedEnv`."""

    env_class = DisaggregatedEnv

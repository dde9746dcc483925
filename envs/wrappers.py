"""Additional wrappers. For stacked observations see ``history``."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from aisim_gym.envs.scaling_env import ScalingEnv
from aisim_gym.spec.argument_checks import check_integer


class ActionCooldown(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Keeps the targets for some ticks after an action changes them.

    Meanwhile, actions are replaced by the one that changes nothing (``info["action_held"]`` is 1),
    and ``action_masks()`` allows only that action.

    Example:
        >>> import gymnasium
        >>> from aisim_gym.envs.wrappers import ActionCooldown
        >>> env = ActionCooldown(gymnasium.make("aisim_gym/Aggregated-v0"), num_ticks=2)
        >>> observation, info = env.reset(seed=1)
        >>> [env.step(action)[-1]["action_held"] for action in (5, 0, 0, 0)]
        [0, 1, 1, 0]
        >>> env.close()
    """

    def __init__(self, env: gymnasium.Env[Any, Any], num_ticks: int) -> None:
        """Wrap an environment of this package.

        Args:
            env: The environment, possibly wrapped.
            num_ticks: Steps after a change in which the targets are kept, >= 1.

        Raises:
            TypeError: If the environment is not one of this package.
            ValueError: If ``num_ticks`` is out of range.
        """
        if check_integer("num_ticks", num_ticks, ">= 1") < 1:
            raise ValueError(f"num_ticks: got {num_ticks}, expected >= 1")
        if not isinstance(env.unwrapped, ScalingEnv):
            raise TypeError(f"env: got {env}, expected an environment of aisim_gym.envs")
        RecordConstructorArgs.__init__(self, num_ticks=num_ticks)
        gymnasium.Wrapper.__init__(self, env)
        self._base = env.unwrapped
        self._num_ticks = int(num_ticks)
        self._ticks_left = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; its first action is not held."""
        self._ticks_left = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Apply the action, or hold the targets."""
        is_held = self._ticks_left > 0
        result = super().step(self._holding_action() if is_held else action)
        info = result[-1]
        self._ticks_left = self._num_ticks if info["churn"] > 0 else max(0, self._ticks_left - 1)
        info["action_held"] = int(is_held)
        return result

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the mask of currently possible choices, flat over pools, prefill first."""
        masks = self._base.action_masks()
        if self._ticks_left == 0:
            return masks
        held = np.zeros_like(masks)
        action_space = self._base.action_space
        nums = getattr(action_space, "nvec", [len(masks)])
        starts = np.concatenate([[0], np.cumsum(nums)[:-1]])
        held[starts + np.atleast_1d(self._holding_action())] = True
        return held

    def _holding_action(self) -> Any:
        view = self._base.view
        return self._base.action_object.encode(view.targets, view)

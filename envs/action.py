"""Actions: convert an agent's choice to worker targets.

An action object has four methods: ``space()``, ``decode(action, view)``, its inverse
``encode(targets, view)`` and ``mask(view)``; ``view`` is a :class:`TickView`. Pools come prefill
first; ``min_workers`` and ``max_workers`` are those of the pool.

============  ==================  =================================================================
name          space               meaning ============  ==================
================================================================= ``targets``   one choice a pool
choice ``i``: ``min_workers + i`` workers ``deltas``    one choice a pool   choice ``i``: ``i -
max_delta`` workers more than now, clipped to
                                  ``min_workers`` … ``max_workers``
``split``     one choice          all targets within ``max_gpus``, in ascending order ``box``
-1 … 1 a pool       from ``min_workers`` to ``max_workers``, rounded half up ============
==================  =================================================================

One choice is ``Discrete``, one per pool of two ``MultiDiscrete``. A target counts active and
starting workers, but not draining ones. The environment raises for an action outside its space and
for targets outside ``min_workers`` … ``max_workers``. An action whose targets exceed ``max_gpus``
leaves the targets unchanged (``info["action_refused"]``); ``split`` has no such actions.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aisim_gym.envs.pool_scales import most_gpus, most_workers, pools_of
from aisim_gym.envs.targets import Targets, gpus_per_pool, total_gpus
from aisim_gym.envs.tick_view import TickView
from aisim_gym.replay import FleetDescription
from aisim_gym.spec.argument_checks import check_integer

MOST_OPTIONS = 4096
"""Maximum splits of a ``Discrete`` space, as networks have one output per split."""


class Action(Protocol):
    """Interface of action objects."""

    def space(self) -> spaces.Space[Any]:
        """Return the action space."""
        ...

    def decode(self, action: Any, view: TickView) -> Targets:
        """Return the targets of ``action``, an element of the space, at this tick."""
        ...

    def encode(self, targets: Targets, view: TickView) -> Any:
        """Return the action closest to ``targets``."""
        ...

    def mask(self, view: TickView) -> NDArray[np.bool_]:
        """Return the mask of possible choices, a flat array over pools.

        Raises:
            TypeError: If the space has no choices.
        """
        ...


class NamedAction:
    """Base of the named actions."""

    def __init__(self, fleet: FleetDescription) -> None:
        """Build the action for a fleet; its ``limits.max_workers`` must be set."""
        self._gpus = gpus_per_pool(fleet)
        self._max_gpus = fleet.limits.max_gpus
        self._counts = [
            range(fleet.limits.of_pool(pool)[0], most_workers(fleet, pool) + 1)
            for pool, _ in pools_of(fleet).values()
        ]

    def _fits(self, counts: Sequence[int]) -> bool:
        return self._max_gpus is None or total_gpus(counts, self._gpus) <= self._max_gpus


class TargetAction(NamedAction):
    """One choice per pool: its target."""

    def space(self) -> spaces.Space[Any]:
        """Return ``Discrete`` for one pool, ``MultiDiscrete`` for two."""
        nums = self._num_choices()
        return spaces.Discrete(nums[0]) if len(nums) == 1 else spaces.MultiDiscrete(nums)

    def decode(self, action: Any, view: TickView) -> Targets:
        """Return the targets of ``action``."""
        return Targets.of(list(map(range.__getitem__, self._counts, self._chosen(action))))

    def encode(self, targets: Targets, view: TickView) -> Any:
        """Return the action closest to ``targets``; ties go to the first."""
        chosen = [
            min(range(len(choices)), key=lambda i: abs(choices[i] - target))
            for choices, target in zip(self._choices(view.targets), targets.counts(), strict=True)
        ]
        return np.int64(chosen[0]) if len(chosen) == 1 else np.array(chosen, np.int64)

    def mask(self, view: TickView) -> NDArray[np.bool_]:
        """Return which choices stay within ``max_gpus`` if all other pools choose their minimum."""
        if self._max_gpus is None:
            return np.ones(sum(self._num_choices()), np.bool_)
        pools = self._choices(view.targets)
        least = [min(choices) for choices in pools]
        valid = []
        for pool, choices in enumerate(pools):
            for target in choices:
                valid.append(self._fits([*least[:pool], target, *least[pool + 1 :]]))
        return np.array(valid, np.bool_)

    def _chosen(self, action: Any) -> list[int]:
        """Return the choice of each pool."""
        return [int(action)] if len(self._counts) == 1 else np.asarray(action).tolist()

    def _num_choices(self) -> list[int]:
        return [len(counts) for counts in self._counts]

    def _target(self, pool: int, choice: int, current: int) -> int:
        """Return the target of a choice of a pool."""
        return self._counts[pool][choice]

    def _choices(self, current: Targets) -> list[list[int]]:
        """Return the targets of all choices, by pool."""
        pools = zip(self._num_choices(), current.counts(), strict=True)
        return [
            [self._target(pool, choice, n) for choice in range(num)]
            for pool, (num, n) in enumerate(pools)
        ]


class DeltaAction(TargetAction):
    """One choice per pool: the change in workers."""

    def __init__(self, fleet: FleetDescription, max_delta: int = 1) -> None:
        """Build the action; a pool changes by at most ``max_delta`` workers per step, >= 1."""
        if check_integer("max_delta", max_delta, ">= 1") < 1:
            raise ValueError(f"max_delta: got {max_delta}, expected >= 1")
        self._deltas = range(-max_delta, max_delta + 1)
        super().__init__(fleet)

    def decode(self, action: Any, view: TickView) -> Targets:
        """Return the targets of ``action``."""
        pools = enumerate(zip(self._chosen(action), view.targets.counts(), strict=True))
        return Targets.of([self._target(pool, choice, now) for pool, (choice, now) in pools])

    def _num_choices(self) -> list[int]:
        return [len(self._deltas)] * len(self._counts)

    def _target(self, pool: int, choice: int, current: int) -> int:
        counts = self._counts[pool]
        return min(max(current + self._deltas[choice], counts[0]), counts[-1])


class SplitAction(NamedAction):
    """One choice: an index into the list of all targets within ``max_gpus``.

    Every choice fits the budget, so all choices are always possible. Without ``max_gpus`` the list
    has all targets.

    Attributes:
        options: The targets, sorted by prefill, then by decode workers.
    """

    def __init__(self, fleet: FleetDescription) -> None:
        """List the targets.

        Raises:
            ValueError: If no target is within ``max_gpus``, or there are more than
                ``MOST_OPTIONS``.
        """
        super().__init__(fleet)
        num_options = self._num_within(most_gpus(fleet))
        if not 0 < num_options <= MOST_OPTIONS:
            raise ValueError(
                f"got {num_options} splits within max_gpus ({self._max_gpus}), min_workers and "
                f"max_workers, expected 1 to {MOST_OPTIONS}; narrow the limits or use "
                "'targets' with action_masks()"
            )
        fitting = filter(self._fits, itertools.product(*self._counts))
        self.options = tuple(Targets.of(counts) for counts in fitting)
        self._table = np.array([option.counts() for option in self.options])

    def space(self) -> spaces.Discrete:
        """Return ``Discrete`` over the options."""
        return spaces.Discrete(len(self.options))

    def decode(self, action: Any, view: TickView) -> Targets:
        """Return the targets of ``action``."""
        return self.options[int(action)]

    def encode(self, targets: Targets, view: TickView) -> Any:
        """Return the option with the smallest difference in workers; ties go to the first."""
        distances = np.abs(self._table - np.array(targets.counts())).sum(axis=1)
        return np.int64(np.argmin(distances))

    def mask(self, view: TickView) -> NDArray[np.bool_]:
        """Return an all-true mask."""
        return np.ones(len(self.options), np.bool_)

    def _num_within(self, max_gpus: int) -> int:
        """Return the number of targets within a budget, without listing them."""
        *outer, last = self._counts
        num = 0
        for counts in itertools.product(*outer):
            left = max_gpus - total_gpus(counts, self._gpus)
            num += min(max(left // self._gpus[-1] - last[0] + 1, 0), len(last))
        return num


class BoxAction(NamedAction):
    """One number per pool in -1 … 1, for algorithms with continuous actions.

    ``a`` requests ``min_workers + (a + 1) / 2 * (max_workers - min_workers)`` workers, rounded half
    up. Arrays of any real type are accepted; NaN and numbers outside the range raise instead of
    being clipped.
    """

    def space(self) -> spaces.Box:
        """Return the box from -1 to 1, one dimension per pool."""
        return spaces.Box(-1.0, 1.0, (len(self._counts),), np.float32)

    def decode(self, action: Any, view: TickView) -> Targets:
        """Return the targets of ``action``."""
        targets = []
        for number, counts in zip(np.asarray(action).tolist(), self._counts, strict=True):
            span = counts[-1] - counts[0]
            targets.append(counts[0] + math.floor((number + 1.0) / 2.0 * span + 0.5))
        return Targets.of(targets)

    def encode(self, targets: Targets, view: TickView) -> Any:
        """Return the centre of the interval that rounds to ``targets``, clipped to the limits."""
        numbers = []
        for target, counts in zip(targets.counts(), self._counts, strict=True):
            span = counts[-1] - counts[0]
            above = min(max(target, counts[0]), counts[-1]) - counts[0]
            numbers.append(2.0 * above / span - 1.0 if span > 0 else 0.0)
        return np.array(numbers, np.float32)

    def mask(self, view: TickView) -> NDArray[np.bool_]:
        """Raise, because there are no choices.

        Raises:
            TypeError: Always.
        """
        raise TypeError("action 'box' has no choices to mask; use 'targets', 'deltas' or 'split'")


ACTIONS: Mapping[str, Callable[..., Action]] = {
    "targets": TargetAction,
    "deltas": DeltaAction,
    "split": SplitAction,
    "box": BoxAction,
}
"""Class of each named action; its first argument is the description of the fleet."""

"""Actions: from an agent's choice to worker targets.

An action object has four methods: ``space()``, ``decode(action, snapshot)``, its inverse
``encode(targets, snapshot)`` and ``mask(snapshot)``. Pools come prefill first; ``min_workers`` and
``max_workers`` are those of the pool.

============  ==================  =================================================================
name          space               meaning
============  ==================  =================================================================
``targets``   one choice a pool   choice ``i``: ``min_workers + i`` workers
``deltas``    one choice a pool   choice ``i``: ``i - max_delta`` workers more than now, kept within
                                  ``min_workers`` … ``max_workers``
``split``     one choice          all targets that keep within ``max_gpus``, in ascending order
``box``       -1 … 1 a pool       from ``min_workers`` to ``max_workers``, rounded half up
============  ==================  =================================================================

One choice is ``Discrete``, one per pool of two ``MultiDiscrete``. A target counts active and
starting workers; draining ones are on their way out. An action outside its space is an error; one
whose targets exceed ``max_gpus`` leaves the targets as they are (``info["action_refused"]``), which
``split`` rules out.

An object of one's own has to keep within ``min_workers`` … ``max_workers``, too. It may also have
``targets_of(action, current)`` and ``mask_of(current)``, see :class:`DirectAction`; the environment
then needs no snapshot.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aisim_gym.envs.pool_scales import most_gpus, most_workers, pools_of
from aisim_gym.replay import FleetDescription, ScalingSnapshot
from aisim_gym.spec.argument_checks import check_integer

MOST_OPTIONS = 4096
"""Splits that a ``Discrete`` space may have: networks have an output for each."""


class Targets(NamedTuple):
    """Wanted workers; an aggregated fleet has only ``decode``."""

    prefill: int | None
    decode: int


class Action(Protocol):
    """What an environment needs from its action object."""

    def space(self) -> spaces.Space[Any]:
        """Return the action space."""
        ...

    def decode(self, action: Any, snapshot: ScalingSnapshot) -> Targets:
        """Return the targets that ``action`` means in the situation of ``snapshot``."""
        ...

    def encode(self, targets: Targets, snapshot: ScalingSnapshot) -> Any:
        """Return the action that comes nearest to ``targets``."""
        ...

    def mask(self, snapshot: ScalingSnapshot) -> NDArray[np.bool_]:
        """Return which choices are possible, pool after pool in one flat array.

        Raises:
            TypeError: If the space has no choices.
        """
        ...


class DirectAction(Action, Protocol):
    """An action object that needs to know only the fleet's current targets."""

    def targets_of(self, action: Any, current: Targets) -> Targets | None:
        """Return the targets that ``action`` means, None if it is not in the action space.

        Args:
            action: Anything.
            current: The targets that change nothing.
        """
        ...

    def mask_of(self, current: Targets) -> NDArray[np.bool_]:
        """Return which choices are possible, as :meth:`Action.mask` does."""
        ...


class CurrentAction(ABC):
    """Base of the named actions: all that counts of a snapshot are its current targets."""

    def __init__(self, fleet: FleetDescription) -> None:
        """Build the action for a fleet; its ``limits.max_workers`` must be set."""
        self._gpus = gpus_per_pool(fleet)
        self._max_gpus = fleet.limits.max_gpus
        self._counts = [
            range(fleet.limits.of_pool(pool)[0], most_workers(fleet, pool) + 1)
            for pool, _ in pools_of(fleet).values()
        ]

    @abstractmethod
    def space(self) -> spaces.Space[Any]:
        """Return the action space."""

    @abstractmethod
    def targets_of(self, action: Any, current: Targets) -> Targets | None:
        """Return the targets that ``action`` means; see :class:`DirectAction`."""

    @abstractmethod
    def action_for(self, targets: Targets, current: Targets) -> Any:
        """Return the action that comes nearest to ``targets``."""

    @abstractmethod
    def mask_of(self, current: Targets) -> NDArray[np.bool_]:
        """Return which choices are possible."""

    def decode(self, action: Any, snapshot: ScalingSnapshot) -> Targets:
        """Return the targets that ``action`` means.

        Raises:
            ValueError: If it is not in the action space.
        """
        targets = self.targets_of(action, self._current(snapshot))
        if targets is None:
            raise ValueError(f"action: got {action!r}, expected an element of {self.space()}")
        return targets

    def encode(self, targets: Targets, snapshot: ScalingSnapshot) -> Any:
        """Return the action that comes nearest to ``targets``."""
        return self.action_for(targets, self._current(snapshot))

    def mask(self, snapshot: ScalingSnapshot) -> NDArray[np.bool_]:
        """Return which choices are possible."""
        return self.mask_of(self._current(snapshot))

    def _current(self, snapshot: ScalingSnapshot) -> Targets:
        return current_targets(snapshot, len(self._gpus))

    def _fits(self, targets: Sequence[int]) -> bool:
        most = self._max_gpus
        return most is None or sum(map(int.__mul__, targets, self._gpus)) <= most


class TargetAction(CurrentAction):
    """One choice per pool: its target."""

    def __init__(self, fleet: FleetDescription) -> None:
        """Build the action for a fleet; its ``limits.max_workers`` must be set."""
        super().__init__(fleet)
        self._space = self.space()

    def space(self) -> spaces.Space[Any]:
        """Return ``Discrete`` for one pool, ``MultiDiscrete`` for two."""
        nums = self._num_choices()
        return spaces.Discrete(nums[0]) if len(nums) == 1 else spaces.MultiDiscrete(nums)

    def targets_of(self, action: Any, current: Targets) -> Targets | None:
        """Return the targets that ``action`` means, None if it is not in the action space."""
        chosen = self._chosen(action)
        if chosen is None:
            return None
        now = _as_list(current)
        return _as_targets([self._target(pool, i, now[pool]) for pool, i in enumerate(chosen)])

    def action_for(self, targets: Targets, current: Targets) -> Any:
        """Return the action that comes nearest to ``targets``; of two equal ones the first."""
        chosen = [
            min(range(len(choices)), key=lambda i: abs(choices[i] - target))
            for choices, target in zip(self._choices(current), _as_list(targets), strict=True)
        ]
        return np.int64(chosen[0]) if len(chosen) == 1 else np.array(chosen, np.int64)

    def mask_of(self, current: Targets) -> NDArray[np.bool_]:
        """Return which choices keep within ``max_gpus`` if every other pool chooses its least."""
        if self._max_gpus is None:
            return np.ones(sum(self._num_choices()), np.bool_)
        pools = self._choices(current)
        least = [min(choices) for choices in pools]
        valid = []
        for pool, choices in enumerate(pools):
            for target in choices:
                valid.append(self._fits([*least[:pool], target, *least[pool + 1 :]]))
        return np.array(valid, np.bool_)

    def _num_choices(self) -> list[int]:
        return [len(counts) for counts in self._counts]

    def _target(self, pool: int, choice: int, current: int) -> int:
        """Return the target that a choice of a pool stands for."""
        return self._counts[pool][choice]

    def _choices(self, current: Targets) -> list[list[int]]:
        """Return the targets that each choice stands for, pool by pool."""
        pools = zip(self._num_choices(), _as_list(current), strict=True)
        return [
            [self._target(pool, choice, n) for choice in range(num)]
            for pool, (num, n) in enumerate(pools)
        ]

    def _chosen(self, action: Any) -> list[int] | None:
        """Return the choice of each pool, None if ``action`` is not in the space."""
        # What the space samples is looked at here: contains() takes 5 us.
        nums = self._num_choices()
        if len(nums) == 1 and type(action) in (int, np.int64):
            chosen = [int(action)]
        elif (
            type(action) is np.ndarray
            and action.dtype == np.int64
            and action.shape == (len(nums),) == self._space.shape
        ):
            chosen = action.tolist()
        elif self._space.contains(action):
            chosen = np.atleast_1d(action).tolist()
        else:
            return None
        for choice, num in zip(chosen, nums, strict=True):
            if not 0 <= choice < num:
                return None
        return chosen


class DeltaAction(TargetAction):
    """One choice per pool: how many workers more or fewer than now."""

    def __init__(self, fleet: FleetDescription, max_delta: int = 1) -> None:
        """Build the action; a pool changes by at most ``max_delta`` workers per step, >= 1."""
        if check_integer("max_delta", max_delta, ">= 1") < 1:
            raise ValueError(f"max_delta: got {max_delta}, expected >= 1")
        self._deltas = range(-max_delta, max_delta + 1)
        super().__init__(fleet)

    def _num_choices(self) -> list[int]:
        return [len(self._deltas)] * len(self._counts)

    def _target(self, pool: int, choice: int, current: int) -> int:
        counts = self._counts[pool]
        return min(max(current + self._deltas[choice], counts[0]), counts[-1])


class SplitAction(CurrentAction):
    """One choice: an entry of the list of all targets that keep within ``max_gpus``.

    Whatever is sampled fits the budget; every choice is always possible. Without ``max_gpus`` the
    list has all targets.

    Attributes:
        options: The list, ascending: prefill first, then decode.
    """

    def __init__(self, fleet: FleetDescription) -> None:
        """List the targets.

        Raises:
            ValueError: If none keeps within ``max_gpus``, or there are more than ``MOST_OPTIONS``.
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
        self.options = tuple(_as_targets(counts) for counts in fitting)
        self._table = np.array([_as_list(option) for option in self.options])
        self._space = self.space()

    def space(self) -> spaces.Discrete:
        """Return ``Discrete`` over the options."""
        return spaces.Discrete(len(self.options))

    def targets_of(self, action: Any, current: Targets) -> Targets | None:
        """Return the targets that ``action`` means, None if it is not in the action space."""
        return self.options[int(action)] if self._space.contains(action) else None

    def action_for(self, targets: Targets, current: Targets) -> Any:
        """Return the option with the fewest workers of difference; of equal ones the first."""
        distances = np.abs(self._table - np.array(_as_list(targets))).sum(axis=1)
        return np.int64(np.argmin(distances))

    def mask_of(self, current: Targets) -> NDArray[np.bool_]:
        """Return that every choice is possible."""
        return np.ones(len(self.options), np.bool_)

    def _num_within(self, max_gpus: int) -> int:
        """Return how many targets keep within a budget, without listing those of a large fleet."""
        *outer, last = self._counts
        num = 0
        for counts in itertools.product(*outer):
            left = max_gpus - sum(map(int.__mul__, counts, self._gpus))
            num += min(max(left // self._gpus[-1] - last[0] + 1, 0), len(last))
        return num


class BoxAction(CurrentAction):
    """One number per pool in -1 … 1, for algorithms with continuous actions.

    ``a`` asks for ``min_workers + (a + 1) / 2 * (max_workers - min_workers)`` workers, rounded half
    up. Arrays of any real type are taken; NaN and numbers outside are refused, not clipped.
    """

    def space(self) -> spaces.Box:
        """Return the box from -1 to 1, one dimension per pool."""
        return spaces.Box(-1.0, 1.0, (len(self._counts),), np.float32)

    def targets_of(self, action: Any, current: Targets) -> Targets | None:
        """Return the targets that ``action`` means, None if it is not in the action space."""
        given = np.asarray(action)
        if given.dtype.kind not in "fiu" or given.shape != (len(self._counts),):
            return None
        targets = []
        for number, counts in zip(given.tolist(), self._counts, strict=True):
            if not -1.0 <= number <= 1.0:
                return None
            span = counts[-1] - counts[0]
            targets.append(counts[0] + math.floor((number + 1.0) / 2.0 * span + 0.5))
        return _as_targets(targets)

    def action_for(self, targets: Targets, current: Targets) -> Any:
        """Return the middle of what is rounded to ``targets``, brought within the limits."""
        numbers = []
        for target, counts in zip(_as_list(targets), self._counts, strict=True):
            span = counts[-1] - counts[0]
            above = min(max(target, counts[0]), counts[-1]) - counts[0]
            numbers.append(2.0 * above / span - 1.0 if span > 0 else 0.0)
        return np.array(numbers, np.float32)

    def mask_of(self, current: Targets) -> NDArray[np.bool_]:
        """Refuse: there are no choices.

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
"""Class of each named action; it is given the description of the fleet."""


def current_targets(snapshot: ScalingSnapshot, num_pools: int) -> Targets:
    """Return the targets that change nothing."""
    prefill = snapshot.prefill.num_non_draining if num_pools == 2 else None
    return Targets(prefill, snapshot.decode.num_non_draining)


def check_targets(given: object, fleet: FleetDescription, at: str) -> Targets:
    """Return the targets that an action object returned, once they are known to be allowed.

    Args:
        given: What it returned.
        fleet: Its ``limits.max_workers`` must be set.
        at: What to call the action in messages.

    Raises:
        TypeError: If it is no ``Targets``, or the target of a pool is no integer.
        ValueError: If a target is outside the limits of its pool, or of a pool that is not there.
    """
    if not isinstance(given, Targets):
        raise TypeError(
            f"{at}: the action object returned {given!r}, expected Targets(prefill, decode)"
        )
    counts: list[int] = []
    for pool, _ in pools_of(fleet).values():
        least, most = fleet.limits.of_pool(pool)[0], most_workers(fleet, pool)
        count: object = getattr(given, pool)
        is_integer = isinstance(count, int | np.integer) and not isinstance(count, bool)
        if not (is_integer and least <= cast(int, count) <= most):
            raise (ValueError if is_integer else TypeError)(
                f"{at}: the action object returned {given!r}, expected {pool} to be an integer "
                f"from {least} (min_workers) to {most} (max_workers)"
            )
        counts.append(int(cast(int, count)))
    if fleet.prefill is None and given.prefill is not None:
        raise ValueError(
            f"{at}: the action object returned {given!r}, expected prefill to be None: there is "
            "one pool"
        )
    return _as_targets(counts)


def gpus_per_pool(fleet: FleetDescription) -> list[int]:
    """Return the GPUs of a worker of each pool: decode (aggregated), or prefill and decode."""
    roles = [fleet.decode] if fleet.prefill is None else [fleet.prefill, fleet.decode]
    return [role.gpus_per_worker for role in roles]


def fleet_gpus(targets: Targets, fleet: FleetDescription) -> int:
    """Return the GPUs that ``targets`` take."""
    return sum(map(int.__mul__, _as_list(targets), gpus_per_pool(fleet)))


def _as_list(targets: Targets) -> list[int]:
    return [targets.decode] if targets.prefill is None else [targets.prefill, targets.decode]


def _as_targets(counts: Sequence[int]) -> Targets:
    return Targets(None if len(counts) == 1 else counts[0], counts[-1])

"""Actions: from an agent's choice to worker targets.

An action object has four methods: ``space()``, ``decode(action, snapshot)``, its inverse
``encode(targets, snapshot)`` and ``mask(snapshot)``. With one pool the space is ``Discrete``, with
two it is ``MultiDiscrete`` (prefill first).

============  ==================================================================================
name          meaning of choice ``i`` of a pool
============  ==================================================================================
``targets``   ``min_workers + i`` workers, ``i`` in 0 … max_workers - min_workers
``deltas``    ``i - max_delta`` workers more than now, kept within min_workers … max_workers
============  ==================================================================================

A target counts active and starting workers; draining ones are on their way out.

An object may also have ``targets_of(action, current)``, see :class:`TargetAction`; the environment
then needs no snapshot to decode an action.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aisim_gym.replay import FleetDescription, ScalingSnapshot
from aisim_gym.spec.argument_checks import check_integer


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
        """Return which choices are possible, pool after pool in one flat array."""
        ...


class DirectAction(Action, Protocol):
    """An action object that needs to know only the fleet's current targets."""

    def targets_of(self, action: Any, current: Targets) -> Targets | None:
        """Return the targets that ``action`` means, None if it is not in the action space."""
        ...


class TargetAction:
    """One choice per pool: its target."""

    def __init__(self, fleet: FleetDescription) -> None:
        """Build the action for a fleet; its ``limits.max_workers`` must be set."""
        self._gpus = gpus_per_pool(fleet)
        self._limits = fleet.limits
        assert fleet.limits.max_workers is not None
        self._counts = range(fleet.limits.min_workers, fleet.limits.max_workers + 1)
        self._space = self.space()

    def space(self) -> spaces.Space[Any]:
        """Return ``Discrete`` for one pool, ``MultiDiscrete`` for two."""
        num_choices = self._num_choices()
        if len(self._gpus) == 1:
            return spaces.Discrete(num_choices)
        return spaces.MultiDiscrete([num_choices] * len(self._gpus))

    def decode(self, action: Any, snapshot: ScalingSnapshot) -> Targets:
        """Return the targets that ``action`` means."""
        return self._targets(np.atleast_1d(action).tolist(), self._current(snapshot))

    def targets_of(self, action: Any, current: Targets) -> Targets | None:
        """Return the targets that ``action`` means, None if it is not in the action space.

        Args:
            action: Anything.
            current: The targets that change nothing.
        """
        chosen = self._chosen(action)
        return None if chosen is None else self._targets(chosen, current)

    def encode(self, targets: Targets, snapshot: ScalingSnapshot) -> Any:
        """Return the action that comes nearest to ``targets``; of two equal ones the first."""
        wanted = _as_list(targets)
        chosen = [
            min(range(len(choices)), key=lambda i: abs(choices[i] - target))
            for choices, target in zip(self._choices(self._current(snapshot)), wanted, strict=True)
        ]
        return np.int64(chosen[0]) if len(chosen) == 1 else np.array(chosen, np.int64)

    def mask(self, snapshot: ScalingSnapshot) -> NDArray[np.bool_]:
        """Return which choices keep within ``max_gpus`` if every other pool chooses its least."""
        pools = self._choices(self._current(snapshot))
        valid = []
        for pool, choices in enumerate(pools):
            least = [min(others) for others in pools]
            for target in choices:
                fleet = [*least[:pool], target, *least[pool + 1 :]]
                valid.append(self._fits(fleet))
        return np.array(valid, np.bool_)

    def _num_choices(self) -> int:
        return len(self._counts)

    def _choices(self, current: Targets) -> list[Sequence[int]]:
        """Return the targets that each choice stands for, pool by pool."""
        return [self._counts] * len(self._gpus)

    def _chosen(self, action: Any) -> list[int] | None:
        """Return the choice of each pool, None if ``action`` is not in the space."""
        # What the space samples is looked at here: contains() takes 5 us.
        num_pools = len(self._gpus)
        if num_pools == 1 and type(action) in (int, np.int64):
            chosen = [int(action)]
        elif (
            type(action) is np.ndarray
            and action.dtype == np.int64
            and action.shape == (num_pools,) == self._space.shape
        ):
            chosen = action.tolist()
        elif self._space.contains(action):
            chosen = np.atleast_1d(action).tolist()
        else:
            return None
        num_choices = self._num_choices()
        for choice in chosen:
            if not 0 <= choice < num_choices:
                return None
        return chosen

    def _targets(self, chosen: Sequence[int], current: Targets) -> Targets:
        pools = self._choices(current)
        return _as_targets([choices[i] for choices, i in zip(pools, chosen, strict=True)])

    def _current(self, snapshot: ScalingSnapshot) -> Targets:
        return current_targets(snapshot, len(self._gpus))

    def _fits(self, targets: Sequence[int]) -> bool:
        most = self._limits.max_gpus
        return most is None or sum(map(int.__mul__, targets, self._gpus)) <= most


class DeltaAction(TargetAction):
    """One choice per pool: how many workers more or fewer than now."""

    def __init__(self, fleet: FleetDescription, max_delta: int = 1) -> None:
        """Build the action; a pool changes by at most ``max_delta`` workers per step, >= 1."""
        if check_integer("max_delta", max_delta, ">= 1") < 1:
            raise ValueError(f"max_delta: got {max_delta}, expected >= 1")
        self._deltas = range(-max_delta, max_delta + 1)
        super().__init__(fleet)

    def _num_choices(self) -> int:
        return len(self._deltas)

    def _choices(self, current: Targets) -> list[Sequence[int]]:
        low, high = self._counts[0], self._counts[-1]
        counts = _as_list(current)
        return [[min(max(n + delta, low), high) for delta in self._deltas] for n in counts]


ACTIONS: Mapping[str, Callable[..., Action]] = {"targets": TargetAction, "deltas": DeltaAction}
"""Class of each named action."""


def current_targets(snapshot: ScalingSnapshot, num_pools: int) -> Targets:
    """Return the targets that change nothing."""
    prefill = snapshot.prefill.num_non_draining if num_pools == 2 else None
    return Targets(prefill, snapshot.decode.num_non_draining)


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

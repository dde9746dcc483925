"""Fit observations to their space and check actions against theirs.

Observations are cast to the space and clipped to its bounds; actions must be elements of the space.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from aisim_gym.fleet.entries import clip_entries

Fitter = Callable[[Any], tuple[Any, int]]
"""Returns values as a new element of a space, and the number of clipped entries."""


def make_fitter(space: spaces.Space[Any], name: str = "observation") -> Fitter:
    """Return a function that fits values to a space.

    Boxes are cast and clipped, masks are cast, ``Dict`` spaces key by key; elements of other spaces
    are returned unchanged. The function raises a ``ValueError`` if an entry is NaN, a shape is
    wrong or a key is missing or unknown.

    Args:
        space: The space that values should belong to.
        name: Name of the observation, for messages.
    """
    if isinstance(space, spaces.Dict):
        return _DictFitter(space, name)
    if isinstance(space, spaces.MultiBinary):
        return _MaskFitter(space)
    if isinstance(space, spaces.Box):
        return _BoxFitter(space, name)
    return _as_it_is


class _BoxFitter:
    def __init__(self, box: spaces.Box, name: str) -> None:
        self._low, self._high = (
            np.array(bound, np.float64).reshape(-1) for bound in (box.low, box.high)
        )
        self._shape, self._dtype, self._name = box.shape, box.dtype, name
        self._clipped_dtype = np.float32 if box.dtype == np.float32 else np.float64

    def __call__(self, values: Any) -> tuple[Any, int]:
        given = np.asarray(values, np.float64, order="C")
        if given.shape != self._shape:
            raise ValueError(f"{self._name}: got shape {given.shape}, expected {self._shape}")
        fitted = np.empty(len(self._low), self._clipped_dtype)
        num_clipped = clip_entries(given.reshape(-1), self._low, self._high, fitted)
        if num_clipped < 0:
            raise ValueError(f"{self._name}: entry {-1 - num_clipped} is NaN")
        return fitted.astype(self._dtype, copy=False).reshape(self._shape), num_clipped


class _MaskFitter:
    def __init__(self, space: spaces.MultiBinary) -> None:
        self._dtype = space.dtype

    def __call__(self, values: Any) -> tuple[Any, int]:
        return np.array(values, self._dtype), 0


class _DictFitter:
    def __init__(self, space: spaces.Dict, name: str) -> None:
        self._fitters = {key: make_fitter(each, f"{name}[{key!r}]") for key, each in space.items()}
        self._name = name

    def __call__(self, values: Any) -> tuple[Any, int]:
        is_mapping = type(values) is dict or isinstance(values, Mapping)
        if not is_mapping or values.keys() != self._fitters.keys():
            keys = list(values) if isinstance(values, Mapping) else values
            wanted = ", ".join(self._fitters)
            raise ValueError(f"{self._name}: got {keys!r}, expected a mapping with {wanted}")
        fitted, num_clipped = {}, 0
        for key, fit in self._fitters.items():
            fitted[key], clipped = fit(values[key])
            num_clipped += clipped
        return fitted, num_clipped


def _as_it_is(values: Any) -> tuple[Any, int]:
    return values, 0


class ActionCheck:
    """Checks whether an action is an element of a space.

    Actions of the types that the space samples are checked here, because ``contains`` takes 5 µs;
    it decides all others. A box of floats accepts arrays of any real type.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        """Create the check of ``space``."""
        self._space = space
        self._bounds: list[tuple[int, int]] = []
        if isinstance(space, spaces.Discrete):
            start, num = int(space.start), int(space.n)
            self._bounds = [(start, start + num)]
        elif isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1:
            nums = zip(space.start.tolist(), space.nvec.tolist(), strict=True)
            self._bounds = [(start, start + num) for start, num in nums]
        self._shape = (len(self._bounds),)
        self._dtype = space.dtype
        self._is_choice = isinstance(space, spaces.Discrete)
        self._is_real_box = isinstance(space, spaces.Box) and space.dtype.kind == "f"

    def __call__(self, action: Any) -> bool:
        """Return whether ``action`` is an element of the space."""
        if self._is_real_box:
            return self._is_in_box(np.asarray(action))
        if self._is_choice:
            if type(action) in (int, np.int64):
                ((low, end),) = self._bounds
                return bool(low <= action < end)
        elif (
            type(action) is np.ndarray
            and self._bounds
            and action.dtype == self._dtype
            and action.shape == self._shape
        ):
            for choice, (low, end) in zip(action.tolist(), self._bounds, strict=True):
                if not low <= choice < end:
                    return False
            return True
        return bool(self._space.contains(action))

    def _is_in_box(self, given: Any) -> bool:
        box: Any = self._space
        if given.dtype.kind not in "fiu" or given.shape != box.shape:
            return False
        return bool(np.all((given >= box.low) & (given <= box.high)))

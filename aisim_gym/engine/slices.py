"""Slices of varying length in one flat array, sized to powers of two and reused.

A free slice stores the start of the next free one in its first element, so the array itself is the
free list. ``heads`` holds the first free slice per size class, then the length of the array used so
far, and the size of the request that did not fit.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import TableFullError
from aisim_gym.kernel import kernel

NUM_CLASSES = 40
_USED, MISSING = NUM_CLASSES, NUM_CLASSES + 1
NUM_HEADS = NUM_CLASSES + 2


def make_heads() -> NDArray[np.int64]:
    """Return the heads of an array without slices in use."""
    heads = np.full(NUM_HEADS, -1, np.int64)
    heads[_USED] = heads[MISSING] = 0
    return heads


@kernel
def size_class(size: int) -> int:
    """Return the smallest ``c`` with ``2**c >= size``."""
    c = 0
    while (1 << c) < size:
        c += 1
    return c


@kernel
def slice_fits(array: NDArray[Any], heads: NDArray[np.int64], size: int) -> bool:
    """Return whether a slice of ``size`` elements can be taken without growing the array."""
    c = size_class(size)
    if heads[c] >= 0:
        return bool(heads[c] + (1 << c) <= len(array))
    return bool(heads[_USED] + (1 << c) <= len(array))


@kernel
def elements_for(size: int, count: int) -> int:
    """Return the elements that ``count`` slices of ``size`` elements take from an unused array."""
    return count << size_class(size)


@kernel
def slices_fit(array: NDArray[Any], heads: NDArray[np.int64], size: int, count: int) -> bool:
    """Return whether ``count`` slices fit behind what is used, whatever is free before."""
    return bool(heads[_USED] + elements_for(size, count) <= len(array))


@kernel
def take_slice(array: NDArray[Any], heads: NDArray[np.int64], size: int) -> int:
    """Return the start of a slice of at least ``size`` elements; it must fit."""
    if not slice_fits(array, heads, size):
        heads[MISSING] = size
        raise TableFullError("slices")
    c = size_class(size)
    start = heads[c]
    if start >= 0:
        heads[c] = int(array[start])
        return int(start)
    start = heads[_USED]
    heads[_USED] += 1 << c
    return int(start)


@kernel
def give_back_slice(array: NDArray[Any], heads: NDArray[np.int64], start: int, size: int) -> None:
    """Return a slice taken with the same ``size``; its content is lost."""
    c = size_class(size)
    if start < 0 or start + (1 << c) > heads[_USED]:
        heads[MISSING] = size
        raise TableFullError("slices")
    array[start] = heads[c]
    heads[c] = start

"""Slices of one flat array are disjoint while in use, and used again afterwards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.engine.slices import (
    NUM_CLASSES,
    give_back_slice,
    make_heads,
    size_class,
    slice_fits,
    take_slice,
)


@pytest.mark.parametrize(
    ("size", "expected"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10), (1025, 11)]
)
def test_size_class_is_the_next_power_of_two(size: int, expected: int) -> None:
    assert size_class(size) == expected


def test_slice_fits_until_the_array_is_used_up() -> None:
    array, heads = np.zeros(8, np.int64), make_heads()
    assert slice_fits(array, heads, 8)
    assert not slice_fits(array, heads, 9)
    take_slice(array, heads, 5)
    assert not slice_fits(array, heads, 1)


def test_slice_given_back_is_taken_again_by_its_size_class() -> None:
    array, heads = np.zeros(8, np.int64), make_heads()
    start = take_slice(array, heads, 7)
    give_back_slice(array, heads, start, 7)
    assert slice_fits(array, heads, 5)
    assert take_slice(array, heads, 5) == start


@given(st.lists(st.one_of(st.integers(1, 40), st.none()), max_size=60))
def test_slices_in_use_never_overlap(sizes: list[int | None]) -> None:
    """A number takes a slice of that size, None gives the oldest one back."""
    array, heads = np.zeros(4096, np.int64), make_heads()
    in_use: list[tuple[int, int]] = []
    for number, size in enumerate(sizes):
        if size is None:
            if in_use:
                start, length = in_use.pop(0)
                give_back_slice(array, heads, start, length)
        else:
            assert slice_fits(array, heads, size)
            start = take_slice(array, heads, size)
            array[start : start + size] = -number
            in_use.append((start, size))
        owners = np.zeros(4096, np.int64)
        for start, length in in_use:
            owners[start : start + length] += 1
        assert owners.max() <= 1
    free = 0
    for size_log2, head in enumerate(heads[:NUM_CLASSES].tolist()):
        while head >= 0:
            free += 1 << size_log2
            head = int(array[head])
    assert free + sum(1 << size_class(length) for _, length in in_use) == heads[NUM_CLASSES]

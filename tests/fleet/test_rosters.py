"""Lists of workers: ascending ones, and a heap of the smallest."""

import heapq

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.fleet.rosters import heap_pop, heap_push, insert_ascending, remove_ascending

WORKERS = st.lists(st.integers(0, 30), max_size=60)


@given(WORKERS)
def test_ascending_roster_is_a_sorted_set(steps: list[int]) -> None:
    """A worker that is not in the roster is inserted, one that is is removed."""
    roster = np.full(31, -1, np.int64)
    expected: list[int] = []
    for worker in steps:
        if worker in expected:
            remove_ascending(roster, len(expected), worker)
            expected.remove(worker)
        else:
            insert_ascending(roster, len(expected), worker)
            expected = sorted([*expected, worker])
        assert roster[: len(expected)].tolist() == expected


@given(st.lists(st.one_of(st.integers(0, 30), st.none()), max_size=60))
def test_heap_pops_the_smallest_worker(steps: list[int | None]) -> None:
    """A number is pushed, None pops."""
    roster = np.full(60, -1, np.int64)
    expected: list[int] = []
    for worker in steps:
        if worker is not None:
            heap_push(roster, len(expected), worker)
            heapq.heappush(expected, worker)
        elif expected:
            assert heap_pop(roster, len(expected)) == heapq.heappop(expected)
        assert sorted(roster[: len(expected)].tolist()) == sorted(expected)

"""Lists of worker rows in fixed arrays: ascending lists and binary min-heaps."""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import TableFullError
from aisim_gym.kernel import kernel


@kernel
def append_worker(roster: NDArray[np.int64], count: int, worker: int) -> None:
    """Put ``worker`` behind the first ``count`` entries."""
    if count >= len(roster):
        raise TableFullError("rosters")
    roster[count] = worker


@kernel
def insert_ascending(roster: NDArray[np.int64], count: int, worker: int) -> None:
    """Insert ``worker`` into the first ``count`` entries, keeping them in ascending order."""
    if count >= len(roster):
        raise TableFullError("rosters")
    at = count
    while at > 0 and roster[at - 1] > worker:
        roster[at] = roster[at - 1]
        at -= 1
    roster[at] = worker


@kernel
def remove_ascending(roster: NDArray[np.int64], count: int, worker: int) -> None:
    """Remove ``worker`` from the first ``count`` entries, which are in ascending order."""
    at = 0
    while at < count and roster[at] != worker:
        at += 1
    for i in range(at, count - 1):
        roster[i] = roster[i + 1]


@kernel
def heap_push(roster: NDArray[np.int64], count: int, worker: int) -> None:
    """Add ``worker`` to a binary min-heap of ``count`` entries."""
    if count >= len(roster):
        raise TableFullError("rosters")
    at = count
    while at > 0 and roster[(at - 1) // 2] > worker:
        roster[at] = roster[(at - 1) // 2]
        at = (at - 1) // 2
    roster[at] = worker


@kernel
def heap_pop(roster: NDArray[np.int64], count: int) -> int:
    """Remove and return the smallest entry of a binary min-heap of ``count`` >= 1 entries."""
    smallest = int(roster[0])
    last = roster[count - 1]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count - 1:
            break
        if child + 1 < count - 1 and roster[child + 1] < roster[child]:
            child += 1
        if roster[child] >= last:
            break
        roster[at] = roster[child]
        at = child
    roster[at] = last
    return smallest

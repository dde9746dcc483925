"""What is due when: a binary heap in a table, smallest (at_ms, order) first.

Everything that a run waits for is in such a heap; :mod:`aisim_gym.fleet.events` says which there
are and in what order things of one instant come. No two entries of a heap have both time and order
in common. Subjects of a *placed* heap know their place in it, so that their entry can be moved or
taken out without a search; a subject is there at most once.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import TableFullError
from aisim_gym.kernel import kernel
from aisim_gym.tables import F8, I8, Table


class TimeHeapRow(Protocol):
    """One heap: how many entries it has, and how many it has numbered."""

    count: I8
    numbered: I8


class TimedRow(Protocol):
    """One entry."""

    at_ms: F8
    order: I8  # among those of one instant
    subject: I8  # what it is about: a worker, a request, a session


@kernel
def push(
    heap: TimeHeapRow, entries: Table[TimedRow], at_ms: float, order: int, subject: int
) -> None:
    """Add an entry."""
    _check_room(heap, entries)
    at = heap.count
    heap.count += 1
    _sift_up(entries, None, at, at_ms, order, subject)


@kernel
def push_in_turn(heap: TimeHeapRow, entries: Table[TimedRow], at_ms: float, subject: int) -> None:
    """Add an entry that comes after those of the same instant which were added before."""
    order = heap.numbered
    heap.numbered += 1
    push(heap, entries, at_ms, order, subject)


@kernel
def next_ms(heap: TimeHeapRow, entries: Table[TimedRow]) -> float:
    """Return when the first entry is due, +inf if there is none."""
    return entries[0].at_ms if heap.count > 0 else math.inf


@kernel
def pop(heap: TimeHeapRow, entries: Table[TimedRow]) -> int:
    """Remove the first entry, there must be one; return its subject."""
    subject = int(entries[0].subject)
    _remove(heap, entries, None, 0)
    return subject


@kernel
def push_placed(
    heap: TimeHeapRow,
    entries: Table[TimedRow],
    places: NDArray[np.int64],
    at_ms: float,
    order: int,
    subject: int,
) -> None:
    """Add the entry of a subject that has none.

    Args:
        heap: Modified in place, like the others.
        entries: Its entries.
        places: By subject: where its entry is, while there is one.
        at_ms: When it is due.
        order: Among those of the same instant.
        subject: What it is about.
    """
    _check_room(heap, entries)
    at = heap.count
    heap.count += 1
    _sift_up(entries, places, at, at_ms, order, subject)


@kernel
def move_earlier(
    entries: Table[TimedRow], places: NDArray[np.int64], subject: int, at_ms: float
) -> None:
    """Move the entry of a subject to an earlier time."""
    at = int(places[subject])
    _sift_up(entries, places, at, at_ms, entries[at].order, subject)


@kernel
def remove_placed(
    heap: TimeHeapRow, entries: Table[TimedRow], places: NDArray[np.int64], subject: int
) -> None:
    """Take out the entry of a subject."""
    _remove(heap, entries, places, int(places[subject]))


@kernel
def _check_room(heap: TimeHeapRow, entries: Table[TimedRow]) -> None:
    if heap.count >= len(entries):
        raise TableFullError("time heap")


@kernel
def _remove(
    heap: TimeHeapRow, entries: Table[TimedRow], places: NDArray[np.int64] | None, at: int
) -> None:
    """Take out the entry at a place: the last one fills the gap."""
    heap.count -= 1
    count = heap.count
    if at == count:
        return
    last = entries[count]
    at_ms, order, subject = last.at_ms, last.order, int(last.subject)
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        right = child + 1
        if right < count and _is_before(entries[right].at_ms, entries[right].order, entries[child]):
            child = right
        if not _is_before(entries[child].at_ms, entries[child].order, last):
            break
        below = entries[child]
        _put(entries, places, at, below.at_ms, below.order, int(below.subject))
        at = child
    _sift_up(entries, places, at, at_ms, order, subject)


@kernel
def _sift_up(
    entries: Table[TimedRow],
    places: NDArray[np.int64] | None,
    at: int,
    at_ms: float,
    order: int,
    subject: int,
) -> None:
    """Put an entry at ``at`` or above."""
    while at > 0:
        parent = (at - 1) // 2
        above = entries[parent]
        if not _is_before(at_ms, order, above):
            break
        _put(entries, places, at, above.at_ms, above.order, int(above.subject))
        at = parent
    _put(entries, places, at, at_ms, order, subject)


@kernel
def _put(
    entries: Table[TimedRow],
    places: NDArray[np.int64] | None,
    at: int,
    at_ms: float,
    order: int,
    subject: int,
) -> None:
    entry = entries[at]
    entry.at_ms = at_ms
    entry.order = order
    entry.subject = subject
    if places is not None:
        places[subject] = at


@kernel
def _is_before(at_ms: float, order: int, other: TimedRow) -> bool:
    """Return whether a key sorts before an entry."""
    if at_ms != other.at_ms:
        return at_ms < other.at_ms
    return order < other.order

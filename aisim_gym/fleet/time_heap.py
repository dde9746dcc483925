"""Binary min-heaps in tables, keyed by (at_ms, order).

All timed events of a run are in such heaps; :mod:`aisim_gym.fleet.events` lists them and the order
of events at one instant. No two entries of a heap have equal keys. A *placed* heap records the
position of each subject's entry, so that an entry can be moved or removed without a search; each
subject has at most one entry.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import TableFullError
from aisim_gym.kernel import kernel
from aisim_gym.tables import F8, I8, Table


class TimeHeapRow(Protocol):
    """One heap: its number of entries, and its insertion counter."""

    count: I8
    numbered: I8


class TimedRow(Protocol):
    """One entry."""

    at_ms: F8
    order: I8  # within one instant
    subject: I8  # worker, request or session


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
    """Add an entry that sorts after all earlier entries of the same instant."""
    order = heap.numbered
    heap.numbered += 1
    push(heap, entries, at_ms, order, subject)


@kernel
def next_ms(heap: TimeHeapRow, entries: Table[TimedRow]) -> float:
    """Return when the first entry is due, +inf if there is none."""
    return entries[0].at_ms if heap.count > 0 else math.inf


@kernel
def pop(heap: TimeHeapRow, entries: Table[TimedRow]) -> int:
    """Remove the first entry of a heap that is not empty; return its subject."""
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
    """Add an entry for a subject that has none.

    Args:
        heap: Modified in place, as are ``entries`` and ``places``.
        entries: Entries of the heap.
        places: By subject: position of its entry, valid while it has one.
        at_ms: When it is due.
        order: Order within the instant.
        subject: Worker, request or session.
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
    """Remove the entry of a subject."""
    _remove(heap, entries, places, int(places[subject]))


@kernel
def _check_room(heap: TimeHeapRow, entries: Table[TimedRow]) -> None:
    if heap.count >= len(entries):
        raise TableFullError("time heap")


@kernel
def _remove(
    heap: TimeHeapRow, entries: Table[TimedRow], places: NDArray[np.int64] | None, at: int
) -> None:
    """Remove the entry at a place; the last entry fills the gap."""
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
    """Place an entry at ``at`` or at one of its ancestors."""
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

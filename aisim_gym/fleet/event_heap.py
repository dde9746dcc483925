"""Events but pass ends: a binary heap in a table, smallest (at_ms, rank, identity) first.

Rules: replay-runtime.md §2.2, §2.3. The rank orders events of one instant by phase, the identity
makes their order independent of when they were pushed; no two have all three in common.
"""

import math

from aisim_gym.fleet.tables import EVENT_TRANSFER_END, ClockRow, EventRow
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table


@kernel
def push_event(
    clock: ClockRow, events: Table[EventRow], at_ms: float, rank: int, identity: int, subject: int
) -> None:
    """Add an event; the table must have a free row."""
    if rank == EVENT_TRANSFER_END:
        clock.transfers += 1
    at = clock.event_count
    clock.event_count += 1
    while at > 0:
        parent = (at - 1) // 2
        if not _is_before(at_ms, rank, identity, events[parent]):
            break
        _copy(events[at], events[parent])
        at = parent
    event = events[at]
    event.at_ms = at_ms
    event.rank = rank
    event.identity = identity
    event.subject = subject


@kernel
def next_event_ms(clock: ClockRow, events: Table[EventRow]) -> float:
    """Return the time of the first event, +inf if there is none."""
    return events[0].at_ms if clock.event_count > 0 else math.inf


@kernel
def peek_due(clock: ClockRow, events: Table[EventRow], rank: int) -> int:
    """Return the subject of the first event if it is due now and of this rank, else -1."""
    if clock.event_count == 0:
        return -1
    top = events[0]
    if top.at_ms != clock.now_ms or top.rank != rank:
        return -1
    return int(top.subject)


@kernel
def pop_due(clock: ClockRow, events: Table[EventRow], rank: int) -> int:
    """Remove the first event if it is due now and of this rank; return its subject, else -1."""
    subject = peek_due(clock, events, rank)
    if subject < 0:
        return -1
    if rank == EVENT_TRANSFER_END:
        clock.transfers -= 1
    clock.event_count -= 1
    count = clock.event_count
    last = events[count]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        right = child + 1
        if right < count and _is_before(
            events[right].at_ms,
            events[right].rank,
            events[right].identity,
            events[child],
        ):
            child = right
        if not _is_before(
            events[child].at_ms,
            events[child].rank,
            events[child].identity,
            last,
        ):
            break
        _copy(events[at], events[child])
        at = child
    _copy(events[at], last)
    return subject


@kernel
def _is_before(at_ms: float, rank: int, identity: int, other: EventRow) -> bool:
    """Return whether a key sorts before an event."""
    if at_ms != other.at_ms:
        return at_ms < other.at_ms
    if rank != other.rank:
        return rank < other.rank
    return identity < other.identity


@kernel
def _copy(target: EventRow, source: EventRow) -> None:
    target.at_ms = source.at_ms
    target.rank = source.rank
    target.identity = source.identity
    target.subject = source.subject

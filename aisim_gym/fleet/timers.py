"""Timers: who leaves an optional stage, or has a next turn, and when; a binary heap in a table.

These are time sources beside the event heap (replay-runtime.md §2.4): each kind has its own step in
the settle loop, so each has a heap of its own. Timers of one instant come in the order in which
they were started.
"""

import math
from typing import Protocol

from aisim_gym.engine.tables import NONE
from aisim_gym.kernel import kernel
from aisim_gym.tables import F8, I8, Table


class TimerHeapRow(Protocol):
    """One heap: how many timers it has, and had."""

    num_timers: I8
    num_started: I8


class TimerRow(Protocol):
    """One timer, smallest first by (at_ms, order)."""

    at_ms: F8
    order: I8
    subject: I8  # row of a request or a session


@kernel
def start_timer(heap: TimerHeapRow, timers: Table[TimerRow], at_ms: float, subject: int) -> None:
    """Add a timer; the table must have a free row."""
    order = heap.num_started
    heap.num_started += 1
    start_timer_in_order(heap, timers, at_ms, order, subject)


@kernel
def start_timer_in_order(
    heap: TimerHeapRow, timers: Table[TimerRow], at_ms: float, order: int, subject: int
) -> None:
    """Add a timer with its place among those of the same instant."""
    at = heap.num_timers
    heap.num_timers += 1
    while at > 0:
        parent = (at - 1) // 2
        if not _is_before(at_ms, order, timers[parent]):
            break
        _copy(timers[at], timers[parent])
        at = parent
    timer = timers[at]
    timer.at_ms = at_ms
    timer.order = order
    timer.subject = subject


@kernel
def next_timer_ms(heap: TimerHeapRow, timers: Table[TimerRow]) -> float:
    """Return when the first timer is due, +inf if there is none."""
    return timers[0].at_ms if heap.num_timers > 0 else math.inf


@kernel
def pop_timer(heap: TimerHeapRow, timers: Table[TimerRow], now_ms: float) -> int:
    """Remove the first timer if it is due; return its subject, else ``NONE``."""
    if heap.num_timers == 0 or timers[0].at_ms > now_ms:
        return NONE
    subject = int(timers[0].subject)
    heap.num_timers -= 1
    count = heap.num_timers
    last = timers[count]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        right = child + 1
        if right < count and _is_before(timers[right].at_ms, timers[right].order, timers[child]):
            child = right
        if not _is_before(timers[child].at_ms, timers[child].order, last):
            break
        _copy(timers[at], timers[child])
        at = child
    _copy(timers[at], last)
    return subject


@kernel
def _is_before(at_ms: float, order: int, other: TimerRow) -> bool:
    if at_ms != other.at_ms:
        return at_ms < other.at_ms
    return order < other.order


@kernel
def _copy(target: TimerRow, source: TimerRow) -> None:
    target.at_ms = source.at_ms
    target.order = source.order
    target.subject = source.subject

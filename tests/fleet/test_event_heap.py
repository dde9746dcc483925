"""Order of events (replay-runtime.md §2.2, §2.3)."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from aisim_gym.fleet.event_heap import next_event_ms, peek_due, pop_due, push_event
from aisim_gym.fleet.tables import (
    EVENT_TICK,
    EVENT_TRANSFER_END,
    EVENT_WORKER_READY,
    ClockRow,
    EventRow,
)
from aisim_gym.tables import Table, make_table

RANKS = (EVENT_WORKER_READY, EVENT_TRANSFER_END, EVENT_TICK)
EVENTS = st.tuples(st.integers(0, 5), st.sampled_from(RANKS), st.integers(0, 3))
"""Time, rank, identity: no two events in the heap have all three in common."""


def empty_heap(room: int = 200) -> tuple[ClockRow, Table[EventRow]]:
    return make_table(ClockRow, 1)[0], make_table(EventRow, room)


def pop(clock: ClockRow, events: Table[EventRow]) -> tuple[float, int, int, int]:
    """Move the clock to the first event, pop it and return (time, rank, identity, subject)."""
    clock.now_ms = next_event_ms(clock, events)
    at_ms, rank, identity = float(events[0].at_ms), int(events[0].rank), int(events[0].identity)
    return at_ms, rank, identity, pop_due(clock, events, rank)


@given(st.lists(st.one_of(EVENTS, st.none()), max_size=120))
@example([(1, EVENT_TRANSFER_END, 2), (1, EVENT_TRANSFER_END, 1), (1, EVENT_WORKER_READY, 3), None])
def test_events_come_sorted_by_time_rank_and_identity(
    steps: list[tuple[int, int, int] | None],
) -> None:
    """A tuple is pushed, None pops; the expectation is a sorted list."""
    clock, events = empty_heap()
    expected: list[tuple[float, int, int, int]] = []
    for subject, step in enumerate(steps):
        if step is None:
            if expected:
                assert pop(clock, events) == expected.pop(0)
        elif (float(step[0]), step[1], step[2]) not in [event[:3] for event in expected]:
            push_event(clock, events, float(step[0]), step[1], step[2], subject)
            expected = sorted([*expected, (float(step[0]), step[1], step[2], subject)])
    while expected:
        assert pop(clock, events) == expected.pop(0)
    assert next_event_ms(clock, events) == math.inf


@given(st.sets(EVENTS, max_size=40))
def test_transfers_in_the_heap_are_counted(steps: set[tuple[int, int, int]]) -> None:
    clock, events = empty_heap()
    for subject, (at_ms, rank, identity) in enumerate(steps):
        push_event(clock, events, float(at_ms), rank, identity, subject)
    left = [rank for _, rank, _ in steps].count(EVENT_TRANSFER_END)
    assert clock.transfers == left
    while clock.event_count > 0:
        left -= pop(clock, events)[1] == EVENT_TRANSFER_END
        assert clock.transfers == left
    assert clock.transfers == 0


def test_first_event_is_due_only_at_its_time_and_for_its_phase() -> None:
    clock, events = empty_heap()
    push_event(clock, events, 5.0, EVENT_WORKER_READY, 0, 9)
    clock.now_ms = 4.0
    assert pop_due(clock, events, EVENT_WORKER_READY) == -1
    clock.now_ms = 5.0
    assert peek_due(clock, events, EVENT_TICK) == -1
    assert peek_due(clock, events, EVENT_WORKER_READY) == 9
    assert pop_due(clock, events, EVENT_WORKER_READY) == 9
    assert pop_due(clock, events, EVENT_WORKER_READY) == -1

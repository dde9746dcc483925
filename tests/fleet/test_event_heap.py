"""Order of events (replay-runtime.md §2.2, §2.3)."""

import math

from hypothesis import example, given
from hypothesis import strategies as st

from aisim_gym.fleet.event_heap import event_identity, next_event_ms, peek_due, pop_due, push_event
from aisim_gym.fleet.tables import (
    DECODE,
    EVENT_PASS_END,
    EVENT_TICK,
    EVENT_TRANSFER_END,
    EVENT_WORKER_READY,
    PREFILL,
    ClockRow,
    EventRow,
)
from aisim_gym.tables import Table, make_table

RANKS = (EVENT_PASS_END, EVENT_WORKER_READY, EVENT_TRANSFER_END, EVENT_TICK)
EVENTS = st.tuples(st.integers(0, 5), st.sampled_from(RANKS), st.integers(0, 3))


def empty_heap(room: int = 200) -> tuple[ClockRow, Table[EventRow]]:
    return make_table(ClockRow, 1)[0], make_table(EventRow, room)


def pop(clock: ClockRow, events: Table[EventRow]) -> tuple[float, int, int, int]:
    """Move the clock to the first event, pop it and return (time, rank, identity, subject)."""
    clock.now_ms = next_event_ms(clock, events)
    at_ms, rank, identity = float(events[0].at_ms), int(events[0].rank), int(events[0].identity)
    return at_ms, rank, identity, pop_due(clock, events, rank)


@given(st.lists(st.one_of(EVENTS, st.none()), max_size=120))
@example([(1, EVENT_PASS_END, 2), (1, EVENT_PASS_END, 1), (1, EVENT_PASS_END, 1), None])
def test_events_come_sorted_by_time_rank_identity_and_age(
    steps: list[tuple[int, int, int] | None],
) -> None:
    """A tuple is pushed, None pops; the expectation is a sorted list."""
    clock, events = empty_heap()
    expected: list[tuple[float, int, int, int]] = []
    for subject, step in enumerate(steps):
        if step is not None:
            push_event(clock, events, float(step[0]), step[1], step[2], subject)
            expected = sorted([*expected, (float(step[0]), step[1], step[2], subject)])
        elif expected:
            assert pop(clock, events) == expected.pop(0)
    while expected:
        assert pop(clock, events) == expected.pop(0)
    assert next_event_ms(clock, events) == math.inf


@given(st.lists(EVENTS, max_size=40))
def test_only_pass_ends_and_transfers_keep_a_run_alive(steps: list[tuple[int, int, int]]) -> None:
    clock, events = empty_heap()
    for subject, (at_ms, rank, identity) in enumerate(steps):
        push_event(clock, events, float(at_ms), rank, identity, subject)
    busy = [rank for _, rank, _ in steps if rank in (EVENT_PASS_END, EVENT_TRANSFER_END)]
    assert clock.busy_events == len(busy)
    while clock.event_count > 0:
        pop(clock, events)
    assert clock.busy_events == 0


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


def test_prefill_workers_come_before_decode_workers_whatever_their_ids() -> None:
    assert event_identity(PREFILL, 1_000_000) < event_identity(DECODE, 0)
    assert event_identity(DECODE, 1) < event_identity(DECODE, 2)

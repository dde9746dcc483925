"""Order of what happens at one instant (replay-runtime.md §2.2, §2.3)."""

import math
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.events import (
    EVENT_TICK,
    EVENT_TRANSFER_END,
    EVENT_WORKER_READY,
    due_subject,
    due_worker,
    next_event_is_tick,
    next_event_ms,
    next_leaving_ms,
    next_pass_end_ms,
    num_busy_workers,
    pop_due,
    pop_leaving,
    push_event,
    push_leaving,
    push_pass_end,
    remove_pass_end,
    worker_order,
)
from aisim_gym.fleet.tables import (
    DECODE,
    DETOKENIZING,
    NUM_HEAPS,
    NUM_STAGES,
    PREFILL,
    TOKENIZING,
    ClockRow,
    WorkerRow,
)
from aisim_gym.fleet.time_heap import TimedRow, TimeHeapRow
from aisim_gym.tables import make_array, make_table

KINDS = (EVENT_WORKER_READY, EVENT_TRANSFER_END, EVENT_TICK)
EVENT = st.tuples(st.integers(0, 5), st.sampled_from(KINDS), st.integers(0, 3))
"""Time, kind, identity: no two events have all three in common."""


def empty_world(room: int = 200) -> Any:
    """Return the tables that events need, without events; a heap is made for each stage."""
    return SimpleNamespace(
        clock=make_table(ClockRow, 1)[0],
        heaps=make_table(TimeHeapRow, NUM_HEAPS),
        events=make_table(TimedRow, room),
        pass_ends=make_table(TimedRow, 8),
        pass_end_places=make_array("int64", 8),
        workers=make_table(WorkerRow, 8),
        stage_timers=[make_table(TimedRow, 8) for _ in range(NUM_STAGES)],
    )


def pop_first(w: Any, kind: int) -> tuple[float, int]:
    """Move the clock to the first event and pop it; return its time and subject."""
    w.clock.now_ms = next_event_ms(w)
    return float(w.clock.now_ms), pop_due(w, kind)


@given(st.lists(st.one_of(EVENT, st.none()), max_size=120))
@example([(1, EVENT_TRANSFER_END, 2), (1, EVENT_TRANSFER_END, 1), (1, EVENT_WORKER_READY, 3), None])
def test_events_come_sorted_by_time_kind_and_identity(
    steps: list[tuple[int, int, int] | None],
) -> None:
    """A tuple is pushed, None pops; the expectation is a sorted list."""
    w = empty_world()
    expected: list[tuple[float, int, int, int]] = []
    for subject, step in enumerate([*steps, *[None] * len(steps)]):
        if step is None:
            if expected:
                at_ms, kind, _, first = expected.pop(0)
                assert next_event_is_tick(w) == (kind == EVENT_TICK)
                assert pop_first(w, kind) == (at_ms, first)
        elif (float(step[0]), step[1], step[2]) not in [event[:3] for event in expected]:
            push_event(w, float(step[0]), step[1], step[2], subject)
            expected = sorted([*expected, (float(step[0]), step[1], step[2], subject)])
        assert w.clock.transfers == [event[1] for event in expected].count(EVENT_TRANSFER_END)
    assert next_event_ms(w) == math.inf


def test_first_event_is_due_only_at_its_time_and_for_its_kind() -> None:
    w = empty_world()
    push_event(w, 5.0, EVENT_WORKER_READY, 0, 9)
    w.clock.now_ms = 4.0
    assert pop_due(w, EVENT_WORKER_READY) == NONE
    w.clock.now_ms = 5.0
    assert due_subject(w, EVENT_TICK) == NONE
    assert due_subject(w, EVENT_WORKER_READY) == 9
    assert pop_due(w, EVENT_WORKER_READY) == 9
    assert pop_due(w, EVENT_WORKER_READY) == NONE


def test_prefill_workers_come_before_decode_workers_whatever_their_ids() -> None:
    assert worker_order(PREFILL, 1_000_000) < worker_order(DECODE, 0)
    assert worker_order(DECODE, 1) < worker_order(DECODE, 2)
    w = empty_world()
    for row, (pool, worker_id) in enumerate([(DECODE, 0), (PREFILL, 1), (DECODE, 1), (PREFILL, 0)]):
        w.workers[row].pool, w.workers[row].id = pool, worker_id
        push_pass_end(w, row, 3.0)
    assert next_pass_end_ms(w) == 3.0
    assert due_worker(w) == NONE
    w.clock.now_ms = 3.0
    ended = []
    while num_busy_workers(w) > 0:
        ended.append(due_worker(w))
        remove_pass_end(w, ended[-1])
    assert ended == [3, 1, 0, 2]
    assert (due_worker(w), next_pass_end_ms(w)) == (NONE, math.inf)


def test_requests_leave_a_stage_at_their_time_and_in_turn() -> None:
    w = empty_world()
    push_leaving(w, TOKENIZING, 5.0, 9)
    push_leaving(w, TOKENIZING, 5.0, 4)
    push_leaving(w, DETOKENIZING, 1.0, 7)
    assert (next_leaving_ms(w, TOKENIZING), next_leaving_ms(w, DETOKENIZING)) == (5.0, 1.0)
    w.clock.now_ms = math.nextafter(5.0, 0.0)
    assert pop_leaving(w, TOKENIZING) == NONE
    w.clock.now_ms = 5.0
    assert [pop_leaving(w, TOKENIZING) for _ in range(3)] == [9, 4, NONE]
    assert pop_leaving(w, DETOKENIZING) == 7

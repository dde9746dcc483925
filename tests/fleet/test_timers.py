"""Time sources beside the event heap (replay-runtime.md §2.4)."""

import math

from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.timers import (
    TimerHeapRow,
    TimerRow,
    next_timer_ms,
    pop_timer,
    start_timer,
)
from aisim_gym.tables import Table, make_table

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 5)),
        st.tuples(st.just("pop"), st.just(0)),
    ),
    max_size=80,
)


def empty_heap(room: int = 100) -> tuple[TimerHeapRow, Table[TimerRow]]:
    return make_table(TimerHeapRow, 1)[0], make_table(TimerRow, room)


@given(STEPS)
def test_timers_come_sorted_by_time_and_age(steps: list[tuple[str, int]]) -> None:
    """The expectation is a sorted list."""
    heap, timers = empty_heap()
    expected: list[tuple[float, int]] = []
    for subject, (what, number) in enumerate(steps):
        if what == "start":
            start_timer(heap, timers, float(number), subject)
            expected = sorted([*expected, (float(number), subject)])
        elif expected:
            at_ms, first = expected.pop(0)
            assert next_timer_ms(heap, timers) == at_ms
            assert pop_timer(heap, timers, at_ms) == first
        assert heap.num_timers == len(expected)
    for at_ms, first in expected:
        assert pop_timer(heap, timers, at_ms) == first
    assert next_timer_ms(heap, timers) == math.inf
    assert pop_timer(heap, timers, math.inf) == NONE


def test_timer_is_not_due_before_its_time() -> None:
    heap, timers = empty_heap()
    start_timer(heap, timers, 5.0, 9)
    assert pop_timer(heap, timers, math.nextafter(5.0, 0.0)) == NONE
    assert pop_timer(heap, timers, 5.0) == 9

"""A heap of what is due when (replay-runtime.md §2.2, §2.4)."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aisim_gym.errors import TableFullError
from aisim_gym.fleet.time_heap import (
    TimedRow,
    TimeHeapRow,
    move_earlier,
    next_ms,
    pop,
    push,
    push_in_turn,
    push_placed,
    remove_placed,
)
from aisim_gym.tables import Table, make_table

NUM_SUBJECTS = 12
PUSHES = st.tuples(st.integers(0, 5), st.integers(0, 2**62))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "earlier", "remove", "first"]),
        st.integers(0, NUM_SUBJECTS - 1),
        st.integers(0, 6),
    ),
    max_size=150,
)


def empty_heap(room: int = 200) -> tuple[TimeHeapRow, Table[TimedRow]]:
    return make_table(TimeHeapRow, 1)[0], make_table(TimedRow, room)


@given(st.lists(st.one_of(PUSHES, st.none()), max_size=120))
@example([(1, 2 << 48), (1, 1 << 48), (1, 0), None])
def test_entries_come_sorted_by_time_and_order(steps: list[tuple[int, int] | None]) -> None:
    """A tuple is pushed, None pops; the expectation is a sorted list."""
    heap, entries = empty_heap()
    expected: list[tuple[float, int, int]] = []
    for subject, step in enumerate(steps):
        if step is None:
            if expected:
                at_ms, _, first = expected.pop(0)
                assert next_ms(heap, entries) == at_ms
                assert pop(heap, entries) == first
        elif (float(step[0]), step[1]) not in [entry[:2] for entry in expected]:
            push(heap, entries, float(step[0]), step[1], subject)
            expected = sorted([*expected, (float(step[0]), step[1], subject)])
        assert heap.count == len(expected)
    assert [pop(heap, entries) for _ in expected] == [subject for *_, subject in expected]
    assert next_ms(heap, entries) == math.inf


@given(st.lists(st.integers(0, 3), max_size=60))
def test_entries_in_turn_keep_their_order_within_an_instant(times: list[int]) -> None:
    heap, entries = empty_heap()
    for subject, at_ms in enumerate(times):
        push_in_turn(heap, entries, float(at_ms), subject)
    came = [pop(heap, entries) for _ in times]
    assert came == sorted(range(len(times)), key=lambda subject: (times[subject], subject))


class PlacedHeap:
    """A heap whose subjects know their places, and a sorted list of the same."""

    def __init__(self) -> None:
        self.heap, self.entries = empty_heap(NUM_SUBJECTS)
        self.places = np.full(NUM_SUBJECTS, -1)
        self.expected: dict[int, float] = {}

    def push(self, subject: int, at_ms: float) -> None:
        order = (5 * subject) % NUM_SUBJECTS
        push_placed(self.heap, self.entries, self.places, at_ms, order, subject)
        self.expected[subject] = at_ms

    def earlier(self, subject: int, at_ms: float) -> None:
        move_earlier(self.entries, self.places, subject, at_ms)
        self.expected[subject] = at_ms

    def remove(self, subject: int) -> None:
        remove_placed(self.heap, self.entries, self.places, subject)
        del self.expected[subject]

    def order(self) -> list[int]:
        return sorted(self.expected, key=lambda s: (self.expected[s], (5 * s) % NUM_SUBJECTS))

    def check(self) -> None:
        order = self.order()
        assert self.heap.count == len(order)
        assert next_ms(self.heap, self.entries) == (self.expected[order[0]] if order else math.inf)
        for subject, at_ms in self.expected.items():
            entry = self.entries[int(self.places[subject])]
            assert (entry.subject, entry.at_ms) == (subject, at_ms)

    def empty(self) -> list[int]:
        """Take out the first entry again and again; return the subjects."""
        taken = []
        while self.heap.count > 0:
            taken.append(int(self.entries[0].subject))
            self.remove(taken[-1])
        return taken


@given(STEPS)
@example([("push", 1, 5), ("push", 0, 5), ("push", 2, 3), ("earlier", 1, 0), ("first", 0, 0)])
def test_placed_entries_agree_with_a_sorted_list(steps: list[tuple[str, int, int]]) -> None:
    heap = PlacedHeap()
    for what, subject, number in steps:
        if what == "push" and subject not in heap.expected:
            heap.push(subject, float(number))
        elif what == "earlier" and subject in heap.expected:
            heap.earlier(subject, min(float(number), heap.expected[subject]))
        elif what == "remove" and subject in heap.expected:
            heap.remove(subject)
        elif what == "first" and heap.expected:
            assert heap.entries[0].subject == heap.order()[0]
            heap.remove(heap.order()[0])
        heap.check()
    order = heap.order()
    assert heap.empty() == order


@pytest.mark.parametrize("removed", range(NUM_SUBJECTS))
def test_any_placed_entry_can_be_taken_out(removed: int) -> None:
    heap = PlacedHeap()
    for subject in range(NUM_SUBJECTS):
        heap.push(subject, float((7 * subject) % 5))
    heap.remove(removed)
    heap.check()
    order = heap.order()
    assert heap.empty() == order


def test_entry_that_fills_a_gap_may_have_to_go_up() -> None:
    """The last one comes from the other side of the heap and is earlier than all around."""
    heap = PlacedHeap()
    for subject, at_ms in enumerate((1.0, 10.0, 2.0, 11.0, 12.0, 20.0, 4.0)):
        heap.push(subject, at_ms)
    heap.remove(3)
    assert heap.empty() == [0, 2, 6, 1, 4, 5]


def test_full_heap_refuses_an_entry_and_keeps_what_it_has() -> None:
    heap, entries = empty_heap(2)
    push(heap, entries, 1.0, 0, 7)
    push_in_turn(heap, entries, 2.0, 8)
    with pytest.raises(TableFullError, match="time heap"):
        push(heap, entries, 0.0, 0, 9)
    assert [pop(heap, entries), pop(heap, entries)] == [7, 8]

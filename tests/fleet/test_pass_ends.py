"""Order of pass ends, which move and go (replay-runtime.md §2.2)."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.pass_ends import (
    PassEndRow,
    advance_pass_end,
    due_worker,
    event_identity,
    next_pass_end_ms,
    push_pass_end,
    remove_pass_end,
)
from aisim_gym.fleet.tables import DECODE, PREFILL, ClockRow, WorkerRow
from aisim_gym.tables import make_table

NUM_WORKERS = 12
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "advance", "remove", "end"]),
        st.integers(0, NUM_WORKERS - 1),
        st.integers(0, 6),
    ),
    max_size=150,
)


class PassEnds:
    """The heap of a fleet with as many prefill as decode workers, and a sorted list of the same.

    Worker rows are in another order than their ids.
    """

    def __init__(self) -> None:
        self.clock = make_table(ClockRow, 1)[0]
        self.rows = make_table(PassEndRow, NUM_WORKERS)
        self.workers = make_table(WorkerRow, NUM_WORKERS)
        for row in range(NUM_WORKERS):
            self.workers[row].pool = DECODE if row % 3 else PREFILL
            self.workers[row].id = (5 * row) % NUM_WORKERS
        self.expected: dict[int, float] = {}

    def start(self, worker: int, at_ms: float) -> None:
        push_pass_end(self.clock, self.rows, self.workers, worker, at_ms)
        self.expected[worker] = at_ms

    def advance(self, worker: int, at_ms: float) -> None:
        advance_pass_end(self.rows, self.workers, worker, at_ms)
        self.expected[worker] = at_ms

    def remove(self, worker: int) -> None:
        remove_pass_end(self.clock, self.rows, self.workers, worker)
        del self.expected[worker]

    def order(self) -> list[int]:
        """Workers in the order in which their passes are to end."""

        def key(worker: int) -> tuple[float, int, int]:
            row = self.workers[worker]
            return self.expected[worker], int(row.pool), int(row.id)

        return sorted(self.expected, key=key)

    def check(self) -> None:
        """The heap says what the sorted list says, and every worker knows its place."""
        order = self.order()
        assert self.clock.busy_workers == len(order)
        first_ms = self.expected[order[0]] if order else math.inf
        assert next_pass_end_ms(self.clock, self.rows) == first_ms
        for worker, at_ms in self.expected.items():
            row = self.rows[int(self.workers[worker].pass_end_place)]
            assert (row.worker, row.at_ms) == (worker, at_ms)

    def end_all(self) -> list[int]:
        """Move the clock from end to end; return the workers in the order in which they came."""
        ended = []
        while self.clock.busy_workers > 0:
            self.clock.now_ms = next_pass_end_ms(self.clock, self.rows)
            worker = due_worker(self.clock, self.rows)
            ended.append(worker)
            self.remove(worker)
        return ended


@given(STEPS)
@example([("start", 1, 5), ("start", 0, 5), ("start", 2, 3), ("advance", 1, 0), ("end", 0, 0)])
def test_pass_ends_agree_with_a_sorted_list(steps: list[tuple[str, int, int]]) -> None:
    """A step starts or ends a pass, moves its end forward or takes it out."""
    passes = PassEnds()
    for what, worker, number in steps:
        if what == "start" and worker not in passes.expected:
            passes.start(worker, float(number))
        elif what == "advance" and worker in passes.expected:
            passes.advance(worker, min(float(number), passes.expected[worker]))
        elif what == "remove" and worker in passes.expected:
            passes.remove(worker)
        elif what == "end" and passes.expected:
            passes.clock.now_ms = min(passes.expected.values())
            assert due_worker(passes.clock, passes.rows) == passes.order()[0]
            passes.remove(passes.order()[0])
        passes.check()
    order = passes.order()
    assert passes.end_all() == order


def test_pass_is_due_only_at_its_end() -> None:
    passes = PassEnds()
    passes.start(4, 5.0)
    passes.clock.now_ms = math.nextafter(5.0, 0.0)
    assert due_worker(passes.clock, passes.rows) == NONE
    passes.clock.now_ms = 5.0
    assert due_worker(passes.clock, passes.rows) == 4


def test_idle_fleet_has_no_pass_end() -> None:
    passes = PassEnds()
    assert due_worker(passes.clock, passes.rows) == NONE
    assert next_pass_end_ms(passes.clock, passes.rows) == math.inf


@pytest.mark.parametrize("removed", range(NUM_WORKERS))
def test_any_entry_can_be_taken_out(removed: int) -> None:
    passes = PassEnds()
    for worker in range(NUM_WORKERS):
        passes.start(worker, float((7 * worker) % 5))
    passes.remove(removed)
    passes.check()
    order = passes.order()
    assert passes.end_all() == order


def test_entry_that_fills_a_hole_may_have_to_go_up() -> None:
    """The last one comes from the other side of the heap and is earlier than all around."""
    passes = PassEnds()
    for worker, at_ms in enumerate((1.0, 10.0, 2.0, 11.0, 12.0, 20.0, 4.0)):
        passes.start(worker, at_ms)
    passes.remove(3)
    assert passes.end_all() == [0, 2, 6, 1, 4, 5]


def test_prefill_workers_come_before_decode_workers_whatever_their_ids() -> None:
    assert event_identity(PREFILL, 1_000_000) < event_identity(DECODE, 0)
    assert event_identity(DECODE, 1) < event_identity(DECODE, 2)

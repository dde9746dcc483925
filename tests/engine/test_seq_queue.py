"""Queues of sequences behave like lists."""

from hypothesis import given
from hypothesis import strategies as st
from support.rank_tables import empty_queue

from aisim_gym.engine.seq_queue import insert_before, push_back, push_front, unlink
from aisim_gym.engine.tables import NONE, QueueRow, SeqRow
from aisim_gym.tables import Table, make_table

NUM_SEQS = 8


def forwards(queue: QueueRow, seqs: Table[SeqRow]) -> list[int]:
    found, at = [], int(queue.first)
    while at != NONE:
        found.append(at)
        at = int(seqs[at].next)
    return found


def backwards(queue: QueueRow, seqs: Table[SeqRow]) -> list[int]:
    found, at = [], int(queue.last)
    while at != NONE:
        found.append(at)
        at = int(seqs[at].previous)
    return found


@given(
    st.lists(
        st.tuples(
            st.integers(0, NUM_SEQS - 1),
            st.sampled_from(["back", "front", "before"]),
            st.integers(),
        )
    )
)
def test_queue_keeps_the_order_of_a_list(steps: list[tuple[int, str, int]]) -> None:
    """A sequence that is queued is taken out; one that is not is put in."""
    queue = empty_queue()
    seqs = make_table(SeqRow, NUM_SEQS)
    expected: list[int] = []
    for s, how, at in steps:
        if s in expected:
            expected.remove(s)
            unlink(queue, seqs, s)
            assert (seqs[s].previous, seqs[s].next) == (NONE, NONE)
        elif how == "back":
            expected.append(s)
            push_back(queue, seqs, s)
        elif how == "front":
            expected.insert(0, s)
            push_front(queue, seqs, s)
        else:
            position = at % (len(expected) + 1)
            successor = expected[position] if position < len(expected) else NONE
            expected.insert(position, s)
            insert_before(queue, seqs, successor, s)
        assert forwards(queue, seqs) == expected
        assert backwards(queue, seqs) == expected[::-1]
        assert queue.count == len(expected)

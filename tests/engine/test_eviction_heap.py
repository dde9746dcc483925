"""The eviction heap takes nodes out in the order of the stamps with which they entered."""

from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.engine.eviction_heap import pop_node, push_node
from aisim_gym.engine.tables import NONE, NodeRow
from aisim_gym.tables import Table, make_table

NUM_NODES = 12
ROOT = 0


def heap() -> Table[NodeRow]:
    """Return a root with an empty heap and nodes outside of it."""
    nodes = make_table(NodeRow, NUM_NODES)
    nodes["heap_child"][:] = nodes["heap_next"][:] = NONE
    return nodes


@given(st.lists(st.tuples(st.integers(0, NUM_NODES - 1), st.integers(0, 40))))
def test_nodes_leave_in_the_order_in_which_they_were_used(steps: list[tuple[int, int]]) -> None:
    """A step puts a node in with a stamp; the root stands for taking the oldest one out."""
    nodes = heap()
    queued: dict[int, int] = {}
    for n, stamp in steps:
        if n == ROOT:
            if not queued:
                continue
            oldest = pop_node(nodes, ROOT)
            assert queued[oldest] == min(queued.values())
            assert nodes[oldest].queued_stamp == queued.pop(oldest)
            assert not nodes[oldest].is_queued
        else:
            nodes[n].stamp = stamp
            push_node(nodes, ROOT, n)
            queued.setdefault(n, stamp)
        assert (nodes[ROOT].heap_child == NONE) == (not queued)
    left = [pop_node(nodes, ROOT) for _ in range(len(queued))]
    assert sorted(left) == sorted(queued)
    assert [queued[n] for n in left] == sorted(queued.values())


def test_node_that_is_in_keeps_the_stamp_with_which_it_entered() -> None:
    nodes = heap()
    for n, stamp in ((1, 5), (2, 7), (1, 9)):
        nodes[n].stamp = stamp
        push_node(nodes, ROOT, n)
    assert [pop_node(nodes, ROOT), pop_node(nodes, ROOT)] == [1, 2]

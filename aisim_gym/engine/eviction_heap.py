"""Eviction order of a radix tree: a pairing heap linked through the node rows.

A node enters with its current stamp. Stamps only grow, and a node may later be locked or get
children, so the top of the heap may be stale. The tree then removes it and, if it is still
evictable, reinserts it with its new stamp. The tree's root, never in the heap itself, links to it.
"""

from aisim_gym.engine.tables import NONE, NodeRow
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table


@kernel
def push_node(nodes: Table[NodeRow], root: int, n: int) -> None:
    """Insert node ``n`` into the heap unless it is already there."""
    node = nodes[n]
    if node.is_queued:
        return
    node.is_queued = True
    node.queued_stamp = node.stamp
    node.heap_child = NONE
    node.heap_next = NONE
    nodes[root].heap_child = _meld(nodes, nodes[root].heap_child, n)


@kernel
def pop_node(nodes: Table[NodeRow], root: int) -> int:
    """Remove and return the node inserted with the smallest stamp; the heap must not be empty.

    Its subheaps are melded in pairs from left to right, then the pairs from right to left.
    """
    n = nodes[root].heap_child
    nodes[n].is_queued = False
    pairs = NONE
    first = nodes[n].heap_child
    while first != NONE:
        second = nodes[first].heap_next
        following = NONE
        nodes[first].heap_next = NONE
        if second != NONE:
            following = nodes[second].heap_next
            nodes[second].heap_next = NONE
        pair = _meld(nodes, first, second)
        nodes[pair].heap_next = pairs
        pairs = pair
        first = following
    top = NONE
    while pairs != NONE:
        following = nodes[pairs].heap_next
        nodes[pairs].heap_next = NONE
        top = _meld(nodes, top, pairs)
        pairs = following
    nodes[root].heap_child = top
    return n


@kernel
def _meld(nodes: Table[NodeRow], a: int, b: int) -> int:
    """Meld two heaps, each a node without siblings or ``NONE``; return the top."""
    if a == NONE:
        return b
    if b == NONE:
        return a
    if nodes[b].queued_stamp < nodes[a].queued_stamp:
        a, b = b, a
    nodes[b].heap_next = nodes[a].heap_child
    nodes[a].heap_child = b
    return a

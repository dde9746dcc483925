"""The radix tree: matching, sharing, splitting, locks, eviction (engine-sglang.md §2.2).

Laws are checked against :class:`NaiveTree`, which follows the text word by word: edges are lists,
the eviction order is a search through all nodes.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sglang_rank import SglangRank, make_tables, sglang_engine

from aisim_gym.engine.radix_tree import (
    count_matching,
    ensure_root,
    evict_pages,
    insert_pages,
    link_nodes,
    lock_matching,
    lock_path,
    unlock_path,
)
from aisim_gym.engine.tables import NONE
from aisim_gym.tables import grow_table

Pages = tuple[int, ...]
"""Content of a sequence of pages; here a page is one token."""


@dataclass
class NaiveNode:
    """A node with its edge."""

    parent: "NaiveNode | None" = None
    edge: list[int] = field(default_factory=list)
    children: "dict[int, NaiveNode]" = field(default_factory=dict)
    locks: int = 0
    stamp: int = 0


class NaiveTree:
    """The rules of §2.2."""

    def __init__(self) -> None:
        self.root = NaiveNode()
        self.stamps = 0

    def new_stamp(self) -> int:
        self.stamps += 1
        return self.stamps

    def nodes(self) -> list[NaiveNode]:
        found, at = [self.root], 0
        while at < len(found):
            found += found[at].children.values()
            at += 1
        return found[1:]

    def count(self, evictable_only: bool = False) -> int:
        return sum(len(n.edge) for n in self.nodes() if n.locks == 0 or not evictable_only)

    def match_lock(self, keys: Pages) -> tuple[int, NaiveNode]:
        now, at, matched = self.new_stamp(), self.root, 0
        while matched < len(keys) and keys[matched] in at.children:
            child = at.children[keys[matched]]
            common = _common(child.edge, keys[matched:])
            matched += common
            if common < len(child.edge):
                at = self.split(child, common)
                break
            child.stamp = now
            at = child
        self.change_locks(at, 1)
        return matched, at

    def change_locks(self, node: NaiveNode, change: int) -> None:
        at: NaiveNode | None = node
        while at is not None and at is not self.root:
            at.locks += change
            at = at.parent

    def split(self, lower: NaiveNode, count: int) -> NaiveNode:
        assert lower.parent is not None
        upper = NaiveNode(lower.parent, lower.edge[:count], {}, lower.locks, lower.stamp)
        lower.parent.children[upper.edge[0]] = upper
        lower.edge = lower.edge[count:]
        lower.parent = upper
        upper.children[lower.edge[0]] = lower
        return upper

    def insert(self, start: NaiveNode, keys: Pages) -> NaiveNode:
        if not keys:
            return start
        now = self.new_stamp()
        at: NaiveNode | None = start
        while at is not None:
            at.stamp = now
            at = at.parent
        node = start
        while keys:
            only_mine = node is start and node.locks == 1
            if node is not self.root and not node.children and (node.locks == 0 or only_mine):
                node.edge += keys
                node.stamp = now
                return node
            if keys[0] not in node.children:
                return self.leaf(node, keys)
            child = node.children[keys[0]]
            common = _common(child.edge, keys)
            keys = keys[common:]
            if common < len(child.edge):
                upper = self.split(child, common)
                return self.leaf(upper, keys) if keys else upper
            child.stamp = now
            node = child
        return node

    def leaf(self, parent: NaiveNode, keys: Pages) -> NaiveNode:
        parent.children[keys[0]] = NaiveNode(parent, list(keys), {}, 0, self.new_stamp())
        return parent.children[keys[0]]

    def evict(self, count: int) -> None:
        while count > 0:
            leaves = [n for n in self.nodes() if n.locks == 0 and not n.children]
            if not leaves:
                return
            node = min(leaves, key=lambda n: n.stamp)
            if len(node.edge) > count:
                del node.edge[-count:]
                return
            count -= len(node.edge)
            assert node.parent is not None
            del node.parent.children[node.edge[0]]

    def dump(self, node: NaiveNode | None = None) -> list[Any]:
        node = self.root if node is None else node
        return sorted(
            [child.edge, child.locks, child.stamp, self.dump(child)]
            for child in node.children.values()
        )


def _common(edge: list[int], keys: Pages) -> int:
    count = 0
    while count < min(len(edge), len(keys)) and edge[count] == keys[count]:
        count += 1
    return count


class Tree(SglangRank):
    """The tree of the kernels, with pages of one token."""

    def __init__(self, num_rows: int = 1024, num_seqs: int = 64) -> None:
        super().__init__(sglang_engine(block_size=1), make_tables(num_rows, num_seqs))
        self.root = ensure_root(self.rank, self.t.nodes, self.t.arena)

    def match_lock(self, s: int, count: int) -> tuple[int, int]:
        t = self.t
        return lock_matching(self.rank, t.nodes, t.blocks, t.arena, t.contents, t.seqs[s], count)

    def insert(self, s: int, start: int, first: int, end: int) -> int:
        t = self.t
        if first == end:
            return start
        return insert_pages(
            self.rank, t.nodes, t.blocks, t.arena, t.contents, t.seqs[s], start, first, end
        )

    def put(self, *pages: int) -> int:
        """Put pages below the root; return the node of the last one."""
        return self.insert(self.new_seq(pages), self.root, 0, len(pages))

    def lock(self, node: int) -> None:
        lock_path(self.rank, self.t.nodes, node)

    def unlock(self, node: int) -> None:
        unlock_path(self.rank, self.t.nodes, node)

    def evict(self, count: int) -> None:
        evict_pages(self.rank, self.t.nodes, self.t.blocks, self.t.arena, count)

    def matching(self, *pages: int) -> int:
        """Return how many leading pages are cached."""
        s, t = self.new_seq(pages), self.t
        return count_matching(self.rank, t.nodes, t.blocks, t.contents, t.seqs[s], len(pages))

    def dump(self, node: int | None = None) -> list[Any]:
        """Return the children of a node as the naive tree shows them, links checked."""
        node = self.root if node is None else node
        token_of = {identity: path[-1] for path, identity in self._identities.items()}
        children = [n for n in self._live_nodes() if self.t.nodes[n].parent == node]
        assert self.t.nodes[node].num_children == len(children)
        shown = []
        for n in children:
            row = self.t.nodes[n]
            edge = self._edge(n)
            assert row.content == edge[0]
            if row.locks == 0 and not row.num_children:
                assert row.is_queued
            shown.append(
                [[token_of[c] for c in edge], int(row.locks), int(row.stamp), self.dump(n)]
            )
        return sorted(shown)

    def _edge(self, n: int) -> list[int]:
        row, contents = self.t.nodes[n], []
        at, previous = int(row.first_block), NONE
        while at != NONE:
            block = self.t.blocks[at]
            assert block.lru_previous == previous
            contents.append(int(block.content))
            at, previous = int(block.lru_next), at
        assert (row.last_block, row.num_blocks) == (previous, len(contents))
        return contents

    def _live_nodes(self) -> list[int]:
        found = []
        for bucket in self.t.nodes:  # type: ignore[attr-defined]
            n = int(bucket.bucket_first)
            while n != NONE:
                found.append(n)
                n = int(self.t.nodes[n].chain_next)
        return found


def test_prefix_is_matched_page_by_page() -> None:
    t = Tree()
    t.put(1, 2, 3)
    assert [t.matching(1, 2, 3, 4), t.matching(1, 2), t.matching(1, 9), t.matching(9)] == [
        3,
        2,
        1,
        0,
    ]


def test_equal_pages_behind_different_prefixes_are_different() -> None:
    t = Tree()
    t.put(1, 2)
    assert t.matching(3, 2) == 0


def test_locking_a_part_of_an_edge_splits_it() -> None:
    t = Tree()
    t.put(1, 2, 3)
    assert t.match_lock(t.new_seq([1, 2, 9]), 3)[0] == 2
    assert t.dump() == [[[1, 2], 1, 2, [[[3], 0, 2, []]]]]
    assert (t.rank.resident_blocks, t.rank.evictable_blocks) == (3, 1)


def test_leaf_that_nobody_uses_is_extended_in_place() -> None:
    t = Tree()
    leaf = t.put(1, 2)
    assert t.put(1, 2, 3) == leaf
    assert t.dump()[0][0] == [1, 2, 3]


def test_leaf_that_only_the_inserter_uses_is_extended_and_stays_locked() -> None:
    t = Tree()
    leaf = t.put(1)
    t.lock(leaf)
    s = t.new_seq([1, 2])
    assert t.insert(s, leaf, 1, 2) == leaf
    assert (t.dump()[0][:2], t.rank.evictable_blocks) == ([[1, 2], 1], 0)


def test_leaf_that_somebody_else_uses_gets_a_child() -> None:
    t = Tree()
    leaf = t.put(1)
    t.lock(leaf)
    assert t.put(1, 2) != leaf
    assert t.rank.evictable_blocks == 1


def test_least_recently_used_leaf_goes_first_from_its_end() -> None:
    t = Tree()
    t.put(1, 2, 3)
    t.put(4, 5)
    t.match_lock(t.new_seq([1]), 0)
    t.evict(2)
    assert [t.matching(1, 2, 3), t.matching(4, 5)] == [1, 2]
    t.evict(2)
    assert [t.matching(1, 2, 3), t.matching(4, 5)] == [0, 1]


def test_use_moves_a_leaf_to_the_end_of_the_eviction_order() -> None:
    t = Tree()
    first = t.put(1)
    t.put(2)
    t.match_lock(t.new_seq([1]), 1)
    t.unlock(first)
    t.evict(1)
    assert [t.matching(1), t.matching(2)] == [1, 0]


def test_parent_can_go_when_its_last_child_is_gone() -> None:
    t = Tree()
    t.put(1, 2)
    t.put(1, 3)
    t.evict(2)
    assert t.matching(1, 2) == 1
    t.evict(1)
    assert (t.dump(), t.rank.resident_blocks, t.rank.evictable_blocks) == ([], 0, 0)


def test_locked_pages_are_never_evicted() -> None:
    t = Tree()
    t.lock(t.put(1, 2))
    t.put(3)
    t.evict(100)
    assert [t.matching(1, 2), t.matching(3)] == [2, 0]


def test_evicted_rows_are_free_again() -> None:
    t = Tree(num_rows=8)
    free = (t.t.arena.block_free_count, t.t.arena.node_free_count)
    for _ in range(10):
        t.put(1, 2, 3)
        t.put(1, 5)
        t.evict(4)
    assert (t.t.arena.block_free_count, t.t.arena.node_free_count) == free


@pytest.mark.parametrize("num_rows", [16, 64])
def test_children_are_found_after_the_table_has_grown(num_rows: int) -> None:
    t = Tree(num_rows=8)
    for page in range(5):
        t.put(page)
    before, old = t.dump(), t.t.nodes
    t.t = t.t._replace(nodes=grow_table(old, num_rows))
    link_nodes(old, t.t.nodes, t.t.arena)
    assert t.dump() == before
    assert t.t.arena.node_free_count == num_rows - 6
    for page in range(5, 12):
        if t.t.arena.block_free_count > 0:
            t.put(page)
    assert [t.matching(page) for page in range(8)] == [1] * 8


@dataclass
class Lease:
    """A sequence with its locked prefix, in both trees."""

    s: int
    keys: Pages
    cached: int
    node: int
    naive: NaiveNode


PAGES = st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple)
STEPS = st.one_of(
    st.tuples(st.just("start"), PAGES, st.integers(0, 8)),
    st.tuples(st.just("commit"), st.integers(0, 9), st.integers(0, 8)),
    st.tuples(st.just("finish"), st.integers(0, 9), st.integers(0, 8)),
    st.tuples(st.just("release"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("evict"), st.integers(0, 12), st.just(0)),
)


def _apply(tree: Tree, naive: NaiveTree, leases: list[Lease], step: tuple[str, Any, int]) -> None:
    kind, first, second = step
    if kind == "start":
        s, count = tree.new_seq(first), min(second, len(first))
        matched, node = tree.match_lock(s, count)
        expected, naive_node = naive.match_lock(first[:count])
        assert matched == expected
        leases.append(Lease(s, first, matched, node, naive_node))
    elif kind == "evict":
        tree.evict(first)
        naive.evict(first)
    elif leases:
        lease = leases[first % len(leases)]
        upto = max(lease.cached, min(second, len(lease.keys)))
        if kind == "release":
            upto = lease.cached
        node = tree.insert(lease.s, lease.node, lease.cached, upto)
        naive_node = naive.insert(lease.naive, lease.keys[lease.cached : upto])
        if kind == "commit":
            tree.lock(node)
            naive.change_locks(naive_node, 1)
        tree.unlock(lease.node)
        naive.change_locks(lease.naive, -1)
        if kind == "commit":
            lease.cached, lease.node, lease.naive = upto, node, naive_node
        else:
            tree.delete(lease.s)
            leases.remove(lease)


@given(st.lists(STEPS, max_size=50))
def test_tree_does_what_the_text_says(steps: list[tuple[str, Any, int]]) -> None:
    tree, naive, leases = Tree(), NaiveTree(), list[Lease]()
    for step in steps:
        _apply(tree, naive, leases, step)
        assert tree.dump() == naive.dump()
        assert tree.rank.resident_blocks == naive.count()
        assert tree.rank.evictable_blocks == naive.count(evictable_only=True)

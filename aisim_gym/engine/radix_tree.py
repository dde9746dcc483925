"""Radix tree of a rank: cached pages, their locks and their eviction order.

Rules: engine-sglang.md §2.2. A page is a KV block of the tree. Its identity determines all tokens
up to its end, so pages with equal identities have equal prefixes, and an edge matches completely if
its last page matches. The pages of an edge are a chain of block rows, linked through their LRU
fields. Children are found by (parent, identity of their first page) through a hash table inside the
node table. All ranks share both tables; a rank's root is created on first use.
"""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.eviction_heap import pop_node, push_node
from aisim_gym.engine.kv_pool import block_content, count_taken_rows
from aisim_gym.engine.tables import NONE, ArenaRow, BlockRow, NodeRow, RankRow, SeqRow
from aisim_gym.errors import TableFullError
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.tables import IS_CHECKED, Table


@kernel
def ensure_root(rank: RankRow, nodes: Table[NodeRow], arena: ArenaRow) -> int:
    """Return the root of the rank's tree, creating it if there is none."""
    if rank.root == NONE:
        rank.root = _take_node(rank, nodes, arena, NONE)
    return rank.root


@kernel
def count_matching(
    rank: RankRow,
    nodes: Table[NodeRow],
    blocks: Table[BlockRow],
    contents: NDArray[np.int64],
    seq: SeqRow,
    num_pages: int,
) -> int:
    """Return how many of the first ``num_pages`` pages of a sequence are in the tree."""
    if rank.root == NONE:
        return 0
    _, matched, _, _, _ = _walk(nodes, blocks, contents, seq, rank.root, 0, num_pages)
    return matched


@kernel
def lock_matching(
    rank: RankRow,
    nodes: Table[NodeRow],
    blocks: Table[BlockRow],
    arena: ArenaRow,
    contents: NDArray[np.int64],
    seq: SeqRow,
    num_pages: int,
) -> tuple[int, int]:
    """Lock the longest prefix of the first ``num_pages`` pages that is in the tree.

    A partially matching node is split. Matching nodes get a new access stamp.

    Returns:
        (pages matched, deepest locked node or the root).
    """
    now = _next_stamp(rank)
    at, matched, part, part_pages, part_last = _walk(
        nodes, blocks, contents, seq, ensure_root(rank, nodes, arena), 0, num_pages
    )
    _stamp_path(nodes, at, now)
    if part != NONE:
        at = _split(rank, nodes, blocks, arena, part, part_pages, part_last)
    lock_path(rank, nodes, at)
    return matched, at


@kernel
def lock_path(rank: RankRow, nodes: Table[NodeRow], n: int) -> None:
    """Add one lock to node ``n`` and all its ancestors, protecting them from eviction."""
    while nodes[n].parent != NONE:
        node = nodes[n]
        if node.locks == 0:
            rank.evictable_blocks -= node.num_blocks
        node.locks += 1
        n = node.parent


@kernel
def unlock_path(rank: RankRow, nodes: Table[NodeRow], n: int) -> None:
    """Remove one lock from node ``n`` and all its ancestors."""
    while nodes[n].parent != NONE:
        node = nodes[n]
        node.locks -= 1
        if node.locks == 0:
            rank.evictable_blocks += node.num_blocks
            if node.num_children == 0:
                push_node(nodes, rank.root, n)
        n = node.parent


@kernel
def insert_pages(
    rank: RankRow,
    nodes: Table[NodeRow],
    blocks: Table[BlockRow],
    arena: ArenaRow,
    contents: NDArray[np.int64],
    seq: SeqRow,
    start: int,
    page: int,
    end_page: int,
) -> int:
    """Insert pages ``page`` to ``end_page - 1`` of a sequence, at least one, below ``start``.

    Args:
        rank: Owner of the tree to modify.
        nodes: Node table, with two free rows.
        blocks: Block table, with a free row per page.
        arena: Free lists.
        contents: Identities of shared prompt blocks.
        seq: The sequence.
        start: Node whose last page precedes ``page``; may have one lock by ``seq``.
        page: First page.
        end_page: The page after the last.

    Returns:
        The node of the last page.
    """
    now = _next_stamp(rank)
    at, reached, part, part_pages, part_last = _walk(
        nodes, blocks, contents, seq, start, page, end_page
    )
    _stamp_path(nodes, at, now)
    if part != NONE:
        at = _split(rank, nodes, blocks, arena, part, part_pages, part_last)
    if reached == end_page:
        return at
    node = nodes[at]
    is_open_leaf = part == NONE and at != rank.root and node.num_children == 0
    if is_open_leaf and (node.locks == 0 or (node.locks == 1 and at == start)):
        if node.locks == 0:
            rank.evictable_blocks += end_page - reached
    else:
        at = _add_leaf(rank, nodes, arena, at, block_content(seq, contents, reached))
        rank.evictable_blocks += end_page - reached
    _append_pages(rank, nodes[at], blocks, arena, contents, seq, reached, end_page)
    return at


@kernel
def evict_pages(
    rank: RankRow,
    nodes: Table[NodeRow],
    blocks: Table[BlockRow],
    arena: ArenaRow,
    num_pages: int,
) -> None:
    """Evict pages from the end of the least recently used unlocked leaf, then of the next."""
    while num_pages > 0:
        n = _oldest_leaf(rank, nodes)
        if n == NONE:
            return
        node = nodes[n]
        freed = min(num_pages, node.num_blocks)
        num_pages -= freed
        rank.evictable_blocks -= freed
        rank.resident_blocks -= freed
        if freed < node.num_blocks:
            _cut_tail(node, blocks, arena, freed)
        else:
            pop_node(nodes, rank.root)
            _free_chain(blocks, arena, node.first_block, node.last_block, freed)
            _remove_leaf(rank, nodes, arena, n)


def free_new_nodes(old: Table[NodeRow], nodes: Table[NodeRow], arena: ArenaRow) -> None:
    """Add the new rows of a table grown from ``old`` to the free list."""
    if len(old) > 0:
        link_nodes(old, nodes, arena)
        return
    nodes["bucket_first"][:] = NONE
    nodes["parent"][:] = np.arange(1, len(nodes) + 1)
    nodes["parent"][-1:] = NONE
    arena.node_free = 0 if len(nodes) > 0 else NONE
    arena.node_free_count = len(nodes)


@entry_point
def link_nodes(old: Table[NodeRow], nodes: Table[NodeRow], arena: ArenaRow) -> None:
    """Rebuild the hash buckets of a table grown from ``old``, and free its new rows."""
    for i in range(len(nodes)):
        nodes[i].bucket_first = NONE
    for i in range(len(old)):
        n = old[i].bucket_first
        while n != NONE:
            _link_bucket(nodes, n)
            n = old[n].chain_next
    for n in range(len(nodes) - 1, len(old) - 1, -1):
        nodes[n].parent = arena.node_free
        arena.node_free = n
        arena.node_free_count += 1


@kernel
def _walk(
    nodes: Table[NodeRow],
    blocks: Table[BlockRow],
    contents: NDArray[np.int64],
    seq: SeqRow,
    at: int,
    page: int,
    end_page: int,
) -> tuple[int, int, int, int, int]:
    """Follow pages ``page`` to ``end_page - 1`` of a sequence down from node ``at``.

    Returns:
        (deepest node with a fully matching edge, first page not in the tree, child with a partially
        matching edge or ``NONE``, its number of matching pages, block row of the last of them).
    """
    while page < end_page:
        child = _find_child(nodes, at, block_content(seq, contents, page))
        if child == NONE:
            break
        node = nodes[child]
        end = page + node.num_blocks
        if end <= end_page and blocks[node.last_block].content == block_content(
            seq, contents, end - 1
        ):
            page = end
            at = child
            continue
        matched = 1
        last = node.first_block
        while page + matched < end_page:
            b = blocks[last].lru_next
            if blocks[b].content != block_content(seq, contents, page + matched):
                break
            matched += 1
            last = b
        return at, page + matched, child, matched, last
    return at, page, NONE, 0, NONE


@kernel
def _next_stamp(rank: RankRow) -> int:
    rank.stamps += 1
    return rank.stamps


@kernel
def _stamp_path(nodes: Table[NodeRow], n: int, now: int) -> None:
    """Set the access stamp of node ``n`` and all its ancestors to ``now``."""
    while n != NONE:
        nodes[n].stamp = now
        n = nodes[n].parent


@kernel
def _take_node(rank: RankRow, nodes: Table[NodeRow], arena: ArenaRow, parent: int) -> int:
    """Return a new node without edge, children or locks."""
    n = arena.node_free
    if n == NONE:
        raise TableFullError("nodes")
    if IS_CHECKED:
        arena.node_grant -= 1
        if arena.node_grant < 0:
            raise TableFullError("nodes granted")
    node = nodes[n]
    arena.node_free = node.parent
    arena.node_free_count -= 1
    node.rank = rank.id
    node.parent = parent
    node.num_children = 0
    node.locks = 0
    node.first_block = NONE
    node.last_block = NONE
    node.num_blocks = 0
    node.heap_child = NONE
    node.heap_next = NONE
    node.is_queued = False
    return n


@kernel
def _add_leaf(
    rank: RankRow, nodes: Table[NodeRow], arena: ArenaRow, parent: int, content: int
) -> int:
    """Return a new child of ``parent`` with an empty edge, found by this first identity."""
    n = _take_node(rank, nodes, arena, parent)
    nodes[n].content = content
    nodes[n].stamp = _next_stamp(rank)
    nodes[parent].num_children += 1
    _link_bucket(nodes, n)
    push_node(nodes, rank.root, n)
    return n


@kernel
def _append_pages(
    rank: RankRow,
    node: NodeRow,
    blocks: Table[BlockRow],
    arena: ArenaRow,
    contents: NDArray[np.int64],
    seq: SeqRow,
    page: int,
    end_page: int,
) -> None:
    """Append pages of a sequence to a node's edge."""
    last = node.last_block
    free = arena.block_free
    for k in range(page, end_page):
        b = free  # as take_block_row does for a single row
        if b == NONE:
            raise TableFullError("blocks")
        block = blocks[b]
        free = block.lru_next
        block.content = block_content(seq, contents, k)
        block.rank = rank.id
        block.lru_previous = last
        if last == NONE:
            node.first_block = b
        else:
            blocks[last].lru_next = b
        last = b
    blocks[last].lru_next = NONE
    arena.block_free = free
    count_taken_rows(arena, end_page - page)
    node.last_block = last
    node.num_blocks += end_page - page
    rank.resident_blocks += end_page - page


@kernel
def _split(
    rank: RankRow,
    nodes: Table[NodeRow],
    blocks: Table[BlockRow],
    arena: ArenaRow,
    lower: int,
    num_pages: int,
    last: int,
) -> int:
    """Move the first pages of a node's edge to a new parent node; return the new node.

    Args:
        rank: The rank.
        nodes: Node table.
        blocks: Block table.
        arena: Free lists.
        lower: The node; it keeps its row, its children and the remaining pages.
        num_pages: Number of pages to move.
        last: Block row of the last of them.
    """
    upper = _take_node(rank, nodes, arena, nodes[lower].parent)
    rest = blocks[last].lru_next
    _unlink_bucket(nodes, lower)
    nodes[upper].content = nodes[lower].content
    nodes[upper].stamp = nodes[lower].stamp
    nodes[upper].locks = nodes[lower].locks
    nodes[upper].num_children = 1
    nodes[upper].first_block = nodes[lower].first_block
    nodes[upper].last_block = last
    nodes[upper].num_blocks = num_pages
    nodes[lower].content = blocks[rest].content
    nodes[lower].parent = upper
    nodes[lower].first_block = rest
    nodes[lower].num_blocks -= num_pages
    blocks[last].lru_next = NONE
    blocks[rest].lru_previous = NONE
    _link_bucket(nodes, upper)
    _link_bucket(nodes, lower)
    return upper


@kernel
def _oldest_leaf(rank: RankRow, nodes: Table[NodeRow]) -> int:
    """Return the least recently used unlocked leaf, now the top of the heap, or ``NONE``."""
    if rank.root == NONE:
        return NONE
    n = nodes[rank.root].heap_child
    while n != NONE:
        node = nodes[n]
        can_go = node.locks == 0 and node.num_children == 0
        if can_go and node.queued_stamp == node.stamp:
            break
        pop_node(nodes, rank.root)
        if can_go:
            push_node(nodes, rank.root, n)
        n = nodes[rank.root].heap_child
    return n


@kernel
def _cut_tail(node: NodeRow, blocks: Table[BlockRow], arena: ArenaRow, num_pages: int) -> None:
    """Free the last ``num_pages`` pages of a longer edge."""
    first = node.last_block
    for _ in range(num_pages - 1):
        first = blocks[first].lru_previous
    last = node.last_block
    node.last_block = blocks[first].lru_previous
    node.num_blocks -= num_pages
    blocks[node.last_block].lru_next = NONE
    _free_chain(blocks, arena, first, last, num_pages)


@kernel
def _free_chain(
    blocks: Table[BlockRow], arena: ArenaRow, first: int, last: int, num_pages: int
) -> None:
    if IS_CHECKED:
        arena.block_grant += num_pages
    blocks[last].lru_next = arena.block_free
    arena.block_free = first
    arena.block_free_count += num_pages


@kernel
def _remove_leaf(rank: RankRow, nodes: Table[NodeRow], arena: ArenaRow, n: int) -> None:
    """Free the row of a leaf without edge; its parent may become an evictable leaf."""
    parent = nodes[n].parent
    _unlink_bucket(nodes, n)
    if IS_CHECKED:
        arena.node_grant += 1
    nodes[n].parent = arena.node_free
    arena.node_free = n
    arena.node_free_count += 1
    nodes[parent].num_children -= 1
    if parent != rank.root and nodes[parent].num_children == 0 and nodes[parent].locks == 0:
        push_node(nodes, rank.root, parent)


@kernel
def _bucket(nodes: Table[NodeRow], parent: int, content: int) -> int:
    """Return the hash bucket of a child; the table length is a power of two."""
    mixed = int(content) * 2654435 + int(parent) * 40503
    return (mixed ^ (mixed >> 15)) & (len(nodes) - 1)


@kernel
def _find_child(nodes: Table[NodeRow], parent: int, content: int) -> int:
    """Return the child whose edge starts with this identity, or ``NONE``."""
    n = nodes[_bucket(nodes, parent, content)].bucket_first
    while n != NONE and not (nodes[n].content == content and nodes[n].parent == parent):
        n = nodes[n].chain_next
    return n


@kernel
def _link_bucket(nodes: Table[NodeRow], n: int) -> None:
    bucket = nodes[_bucket(nodes, nodes[n].parent, nodes[n].content)]
    nodes[n].chain_next = bucket.bucket_first
    bucket.bucket_first = n


@kernel
def _unlink_bucket(nodes: Table[NodeRow], n: int) -> None:
    bucket = nodes[_bucket(nodes, nodes[n].parent, nodes[n].content)]
    if bucket.bucket_first == n:
        bucket.bucket_first = nodes[n].chain_next
        return
    at = bucket.bucket_first
    while nodes[at].chain_next != n:
        at = nodes[at].chain_next
    nodes[at].chain_next = nodes[n].chain_next

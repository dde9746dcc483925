"""Page pool of a rank: pages in its radix tree, pages owned by sequences, free pages.

Rules: engine-sglang.md §2.1, §2.3. Pages are only counted. A sequence holds a locked prefix of the
tree (``resident_blocks``, down to ``node``) and owns the pages after it (``private_blocks``).
Committed pages move to the tree; duplicates of pages already there become free.
"""

from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.kv_pool import blocks_for
from aisim_gym.engine.radix_tree import (
    count_matching,
    ensure_root,
    evict_pages,
    insert_pages,
    lock_matching,
    lock_path,
    unlock_path,
)
from aisim_gym.engine.tables import NONE, EngineRow, RankRow, SeqRow
from aisim_gym.kernel import kernel


@kernel
def used_pages(rank: RankRow) -> int:
    """Return the number of used pages, including evictable cached pages."""
    return rank.resident_blocks + rank.private_blocks + rank.reserved_blocks


@kernel
def free_pages(engine: EngineRow, rank: RankRow) -> int:
    """Return the number of pages that can be taken without eviction."""
    return engine.num_blocks - used_pages(rank)


@kernel
def fits(engine: EngineRow, rank: RankRow, num_pages: int) -> bool:
    """Return whether ``num_pages`` pages are free or can be freed by eviction."""
    return num_pages <= free_pages(engine, rank) + rank.evictable_blocks


@kernel
def cached_pages(
    t: RankTables, engine: EngineRow, rank: RankRow, seq: SeqRow, num_pages: int
) -> int:
    """Return how many of the first ``num_pages`` pages of a sequence can be reused."""
    if not engine.prefix_caching:
        return 0
    return count_matching(rank, t.nodes, t.blocks, t.contents, seq, num_pages)


@kernel
def make_pages_free(t: RankTables, engine: EngineRow, rank: RankRow, num_pages: int) -> bool:
    """Evict until ``num_pages`` are free; return False if too few pages can be evicted."""
    missing = num_pages - free_pages(engine, rank)
    if missing > 0:
        evict_pages(rank, t.nodes, t.blocks, t.arena, missing)
    return free_pages(engine, rank) >= num_pages


@kernel
def missing_pages(engine: EngineRow, seq: SeqRow, tokens: int) -> int:
    """Return how many more pages a sequence needs to cover ``tokens``."""
    return max(0, blocks_for(tokens, engine.block_size) - seq.resident_blocks - seq.private_blocks)


@kernel
def own_pages(rank: RankRow, seq: SeqRow, num_pages: int) -> None:
    """Assign free pages to a sequence."""
    rank.private_blocks += num_pages
    seq.private_blocks += num_pages


@kernel
def cover_fresh(
    t: RankTables,
    engine: EngineRow,
    rank: RankRow,
    seq: SeqRow,
    tokens: int,
    prefix_pages: int,
) -> int:
    """Cover ``tokens`` of a sequence without pages, reusing up to ``prefix_pages`` cached pages.

    The prefix is locked first, so that it is not evicted for the other pages.

    Returns:
        Number of reused pages; ``NONE`` if the rest does not fit, and the sequence has no pages.
    """
    matched = 0
    node = NONE
    if engine.prefix_caching:
        matched, node = lock_matching(
            rank, t.nodes, t.blocks, t.arena, t.contents, seq, prefix_pages
        )
    fresh = blocks_for(tokens, engine.block_size) - matched
    if not fits(engine, rank, fresh):
        if node != NONE:
            unlock_path(rank, t.nodes, node)
        return NONE
    make_pages_free(t, engine, rank, fresh)
    own_pages(rank, seq, fresh)
    seq.node = node
    seq.resident_blocks = matched
    return matched


@kernel
def cover_more(t: RankTables, engine: EngineRow, rank: RankRow, seq: SeqRow, tokens: int) -> bool:
    """Assign more pages to a sequence until it covers ``tokens``, or change nothing."""
    fresh = missing_pages(engine, seq, tokens)
    if not fits(engine, rank, fresh):
        return False
    make_pages_free(t, engine, rank, fresh)
    own_pages(rank, seq, fresh)
    return True


@kernel
def commit_pages(t: RankTables, engine: EngineRow, rank: RankRow, seq: SeqRow) -> None:
    """Move the complete pages owned by a sequence into the tree and lock them."""
    if not engine.prefix_caching:
        return
    complete = seq.computed_tokens // engine.block_size
    if complete <= seq.resident_blocks:
        return
    node = _insert_owned(t, rank, seq, complete)
    if node != seq.node:
        lock_path(rank, t.nodes, node)
        unlock_path(rank, t.nodes, seq.node)
        seq.node = node
    seq.resident_blocks = complete


@kernel
def finish_pages(t: RankTables, engine: EngineRow, rank: RankRow, seq: SeqRow) -> None:
    """Release all pages of a finished sequence; complete pages stay in the tree."""
    complete = seq.computed_tokens // engine.block_size
    if engine.prefix_caching and complete > seq.resident_blocks:
        _insert_owned(t, rank, seq, complete)
    release_pages(t, rank, seq)


@kernel
def release_pages(t: RankTables, rank: RankRow, seq: SeqRow) -> None:
    """Release all pages of a sequence: owned pages are freed, and no token counts as computed."""
    rank.private_blocks -= seq.private_blocks
    rank.reserved_blocks -= seq.reserved_blocks
    seq.private_blocks = 0
    seq.reserved_blocks = 0
    seq.resident_blocks = 0
    seq.computed_tokens = 0
    if seq.node != NONE:
        unlock_path(rank, t.nodes, seq.node)
        seq.node = NONE


@kernel
def _insert_owned(t: RankTables, rank: RankRow, seq: SeqRow, end_page: int) -> int:
    """Move owned pages up to ``end_page`` into the tree; return the node of the last page."""
    if seq.node == NONE:
        seq.node = ensure_root(rank, t.nodes, t.arena)
    first = seq.resident_blocks
    rank.private_blocks -= end_page - first
    seq.private_blocks -= end_page - first
    return insert_pages(
        rank, t.nodes, t.blocks, t.arena, t.contents, seq, seq.node, first, end_page
    )

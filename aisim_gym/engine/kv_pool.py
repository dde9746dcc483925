"""KV block pool of a rank: private, resident and evictable blocks, prefix cache, eviction order.

Rules: engine-vllm-trtllm.md §5. A block is *private* to one sequence until it is complete. It then
becomes *resident*: it has an identity, other requests can use it, and without users it is
evictable, least recently released first. Several copies of one identity can be resident; lookups
find the oldest.

Only blocks that can be looked up take a row of the block table: blocks common to several requests,
and blocks of preempted sequences. All ranks share the table. Blocks are found by (rank, identity)
through a hash table inside it, and each sequence lists its blocks in ``entries``. All other blocks
are only counted: private blocks, reserved blocks and resident blocks of a live sequence. The
evictable blocks that an ended sequence leaves share one row.
"""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.tables import NONE, ArenaRow, BlockRow, EngineRow, RankRow, SeqRow
from aisim_gym.errors import TableFullError
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.tables import IS_CHECKED, Table


@kernel
def blocks_for(tokens: int, block_size: int) -> int:
    """Return the number of blocks that ``tokens`` tokens need."""
    return -(-tokens // block_size)


@kernel
def active_blocks(rank: RankRow) -> int:
    """Return the number of blocks in use: referenced, private or reserved."""
    return rank.resident_blocks - rank.evictable_blocks + rank.private_blocks + rank.reserved_blocks


@kernel
def free_blocks(engine: EngineRow, rank: RankRow) -> int:
    """Return the number of blocks that can be taken without eviction."""
    return engine.num_blocks - rank.resident_blocks - rank.private_blocks - rank.reserved_blocks


@kernel
def block_content(seq: SeqRow, contents: NDArray[np.int64], k: int) -> int:
    """Return the identity of complete block ``k`` of a sequence."""
    if k < seq.shared_blocks:
        return int(contents[seq.content_start + k])
    return seq.private_base + (k - seq.shared_blocks)


@kernel
def find_resident(blocks: Table[BlockRow], rank_id: int, content: int) -> int:
    """Return the oldest resident copy of an identity on a rank, or ``NONE``."""
    b = blocks[_bucket(blocks, rank_id, content)].bucket_first
    while b != NONE:
        if blocks[b].content == content and blocks[b].rank == rank_id:
            return int(b)
        b = blocks[b].chain_next
    return NONE


@kernel
def check_listed(seq: SeqRow, num_blocks: int) -> None:
    """Raise an error unless the block list of a sequence has room for ``num_blocks``."""
    if num_blocks > seq.entry_size:
        raise TableFullError("block list")


@kernel
def count_hits(
    t: RankTables, engine: EngineRow, rank: RankRow, seq: SeqRow, complete_blocks: int
) -> tuple[int, int]:
    """Return (number of leading resident blocks, number of these in use).

    Resident blocks beyond the shared ones exist only if the sequence itself was preempted before.
    """
    hits = 0
    active = 0
    if not engine.prefix_caching:
        return hits, active
    if not seq.was_admitted:
        complete_blocks = min(complete_blocks, seq.shared_blocks)
    while hits < complete_blocks:
        b = find_resident(t.blocks, rank.id, block_content(seq, t.contents, hits))
        if b == NONE:
            break
        hits += 1
        if t.blocks[b].refs > 0:
            active += 1
    return hits, active


@kernel
def take_blocks(
    t: RankTables, engine: EngineRow, rank: RankRow, seq: SeqRow, hits: int, fresh: int
) -> bool:
    """Take ``fresh`` free blocks and reuse the first ``hits`` resident ones, or take nothing.

    Reused blocks get one more user and are listed in the sequence's entries. Evictable blocks are
    evicted for fresh ones. The caller counts the fresh blocks as private or reserved.
    """
    blocks = t.blocks
    check_listed(seq, hits)
    evictions = max(0, fresh - free_blocks(engine, rank))
    evictable_hits = 0
    for k in range(seq.resident_blocks, hits):
        b = find_resident(blocks, rank.id, block_content(seq, t.contents, k))
        if b == NONE:
            raise TableFullError("blocks")
        t.entries[seq.entry_start + k] = b
        if blocks[b].refs == 0:
            evictable_hits += 1
    if evictions > rank.evictable_blocks - evictable_hits:
        return False
    for k in range(seq.resident_blocks, hits):
        b = t.entries[seq.entry_start + k]
        if blocks[b].refs == 0:
            _leave_lru(rank, blocks, b)
            rank.evictable_blocks -= 1
        blocks[b].refs += 1
    if hits > seq.resident_blocks:
        seq.resident_blocks = hits
        seq.listed_blocks = hits
    if evictions > 0:
        evict_blocks(t, rank, evictions)
    return True


@kernel
def evict_blocks(t: RankTables, rank: RankRow, count: int) -> None:
    """Evict the ``count`` blocks released first; at least ``count`` must be evictable."""
    blocks = t.blocks
    rank.resident_blocks -= count
    rank.evictable_blocks -= count
    while count > 0:
        b = rank.lru_first
        if b == NONE:
            raise TableFullError("blocks")
        if blocks[b].num_blocks > count:
            blocks[b].num_blocks -= count
            return
        count -= blocks[b].num_blocks
        _leave_lru(rank, blocks, b)
        if blocks[b].content != NONE:
            _leave_bucket(blocks, b)
        _free_row(blocks, t.arena, b)


@kernel
def allocate(
    t: RankTables, engine: EngineRow, rank: RankRow, seq: SeqRow, upto_tokens: int, hits: int
) -> bool:
    """Cover the first ``upto_tokens`` of a sequence with blocks, or change nothing (§5.2).

    The first ``hits`` blocks come from the prefix cache, only for a sequence without blocks.
    """
    size = engine.block_size
    length = blocks_for(seq.prompt_tokens + seq.generated_tokens, size)
    have = min(blocks_for(seq.covered_tokens, size), length)
    want = min(blocks_for(upto_tokens, size), length)
    if want > have:
        fresh = want - have - max(0, hits - have)
        if not take_blocks(t, engine, rank, seq, hits, fresh):
            return False
        rank.private_blocks += fresh
        seq.private_blocks += fresh
    seq.covered_tokens = max(seq.covered_tokens, upto_tokens)
    return True


@kernel
def make_resident(
    t: RankTables, engine: EngineRow, rank: RankRow, seq: SeqRow, computed_tokens: int
) -> None:
    """Turn complete private blocks up to ``computed_tokens`` into resident ones (§5.3)."""
    if not engine.prefix_caching:
        return
    complete = computed_tokens // engine.block_size
    fresh = complete - seq.resident_blocks
    if fresh <= 0:
        return
    listed = min(complete, seq.shared_blocks)
    check_listed(seq, listed)
    for k in range(seq.resident_blocks, listed):
        b = _take_row(rank, t.blocks, t.arena, block_content(seq, t.contents, k), 1)
        t.blocks[b].refs = 1
        t.entries[seq.entry_start + k] = b
        seq.listed_blocks += 1
    seq.resident_blocks = complete
    seq.private_blocks -= fresh
    rank.private_blocks -= fresh
    rank.resident_blocks += fresh


@kernel
def release_blocks(t: RankTables, rank: RankRow, seq: SeqRow, returns: bool) -> None:
    """Release all blocks of a sequence, deepest first, which is their eviction order (§5.5).

    Args:
        t: Shared tables; must have enough free rows.
        rank: The rank.
        seq: The sequence.
        returns: Whether it is preempted and may reuse its blocks later.
    """
    blocks = t.blocks
    rank.private_blocks -= seq.private_blocks
    rank.reserved_blocks -= seq.reserved_blocks
    unlisted = seq.resident_blocks - seq.listed_blocks
    if unlisted > 0 and returns:
        for k in range(seq.resident_blocks - 1, seq.listed_blocks - 1, -1):
            b = _take_row(rank, blocks, t.arena, block_content(seq, t.contents, k), 1)
            _enter_lru(rank, blocks, b)
    elif unlisted > 0:
        _enter_lru(rank, blocks, _take_row(rank, blocks, t.arena, NONE, unlisted))
    for k in range(seq.listed_blocks - 1, -1, -1):
        b = t.entries[seq.entry_start + k]
        blocks[b].refs -= 1
        if blocks[b].refs == 0:
            _enter_lru(rank, blocks, b)
    seq.private_blocks = 0
    seq.reserved_blocks = 0
    seq.resident_blocks = 0
    seq.listed_blocks = 0
    seq.covered_tokens = 0


@kernel
def _bucket(blocks: Table[BlockRow], rank_id: int, content: int) -> int:
    """Return the hash bucket of an identity; the table length is a power of two."""
    mixed = content * 2654435 + rank_id * 40503
    return (mixed ^ (mixed >> 15)) & (len(blocks) - 1)


@kernel
def _take_row(
    rank: RankRow, blocks: Table[BlockRow], arena: ArenaRow, content: int, num_blocks: int
) -> int:
    """Take a free row for blocks without users, found by ``content`` unless that is ``NONE``.

    The blocks are not counted as evictable yet.
    """
    b = take_block_row(blocks, arena)
    block = blocks[b]
    block.content = content
    block.rank = rank.id
    block.refs = 0
    block.num_blocks = num_blocks
    block.lru_previous = NONE
    block.lru_next = NONE
    if content != NONE:
        _link_bucket(blocks, b)
    return int(b)


@kernel
def take_block_row(blocks: Table[BlockRow], arena: ArenaRow) -> int:
    """Take a row from the free list."""
    b = arena.block_free
    if b == NONE:
        raise TableFullError("blocks")
    arena.block_free = blocks[b].lru_next
    count_taken_rows(arena, 1)
    return int(b)


@kernel
def count_taken_rows(arena: ArenaRow, count: int) -> None:
    """Count rows taken from the free list; in a checked build, they must have been requested."""
    arena.block_free_count -= count
    if IS_CHECKED:
        arena.block_grant -= count
        if arena.block_grant < 0:
            raise TableFullError("blocks granted")


@kernel
def _free_row(blocks: Table[BlockRow], arena: ArenaRow, b: int) -> None:
    if IS_CHECKED:
        arena.block_grant += 1
    blocks[b].lru_next = arena.block_free
    arena.block_free = b
    arena.block_free_count += 1


def free_new_blocks(old: Table[BlockRow], blocks: Table[BlockRow], arena: ArenaRow) -> None:
    """Add the new rows of a table grown from ``old`` to the free list."""
    if len(old) > 0:
        link_blocks(old, blocks, arena)
        return
    for name in ("bucket_first", "bucket_last"):
        blocks[name][:] = NONE
    blocks["lru_next"][:] = np.arange(1, len(blocks) + 1)
    blocks["lru_next"][-1:] = NONE
    arena.block_free = 0 if len(blocks) > 0 else NONE
    arena.block_free_count = len(blocks)


@entry_point
def link_blocks(old: Table[BlockRow], blocks: Table[BlockRow], arena: ArenaRow) -> None:
    """Rebuild the hash buckets of a table grown from ``old``, and free its new rows.

    Traversing the old buckets in order keeps copies of one identity oldest first.
    """
    for i in range(len(blocks)):
        blocks[i].bucket_first = NONE
        blocks[i].bucket_last = NONE
    for i in range(len(old)):
        b = old[i].bucket_first
        while b != NONE:
            _link_bucket(blocks, b)
            b = old[b].chain_next
    for b in range(len(blocks) - 1, len(old) - 1, -1):
        _free_row(blocks, arena, b)


@kernel
def _link_bucket(blocks: Table[BlockRow], b: int) -> None:
    """Append a row to its hash bucket; copies of one identity stay oldest first."""
    block = blocks[b]
    block.chain_next = NONE
    bucket = blocks[_bucket(blocks, block.rank, block.content)]
    if bucket.bucket_first == NONE:
        bucket.bucket_first = b
    else:
        blocks[bucket.bucket_last].chain_next = b
    bucket.bucket_last = b


@kernel
def _leave_bucket(blocks: Table[BlockRow], b: int) -> None:
    """Remove a copy from its hash bucket."""
    block = blocks[b]
    bucket = blocks[_bucket(blocks, block.rank, block.content)]
    previous = NONE
    at = bucket.bucket_first
    while at != b:
        previous = at
        at = blocks[at].chain_next
    if previous == NONE:
        bucket.bucket_first = block.chain_next
    else:
        blocks[previous].chain_next = block.chain_next
    if bucket.bucket_last == b:
        bucket.bucket_last = previous


@kernel
def _enter_lru(rank: RankRow, blocks: Table[BlockRow], b: int) -> None:
    """Append a block to the eviction order."""
    blocks[b].lru_previous = rank.lru_last
    blocks[b].lru_next = NONE
    if rank.lru_last == NONE:
        rank.lru_first = b
    else:
        blocks[rank.lru_last].lru_next = b
    rank.lru_last = b
    rank.evictable_blocks += blocks[b].num_blocks


@kernel
def _leave_lru(rank: RankRow, blocks: Table[BlockRow], b: int) -> None:
    """Remove a block from the eviction order."""
    previous = blocks[b].lru_previous
    following = blocks[b].lru_next
    if previous == NONE:
        rank.lru_first = following
    else:
        blocks[previous].lru_next = following
    if following == NONE:
        rank.lru_last = previous
    else:
        blocks[following].lru_previous = previous

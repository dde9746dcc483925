"""KV block pool of a rank: private, resident and evictable blocks, prefix cache, eviction order.

Rules: engine-vllm-trtllm.md §5. A block is *private* to one sequence until it is complete; then it
becomes *resident*: it has an identity, other requests can use it, and without users it is
evictable, least recently released first. Private and reserved blocks are only counted; resident
ones are rows of the block table, shared by all ranks and found by (rank, identity) through a hash
table inside it. Several copies of one identity can be resident; the oldest is the one found.
"""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.tables import NONE, ArenaRow, BlockRow, EngineRow, RankRow, SeqRow
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.tables import Table


@kernel
def blocks_for(tokens: int, block_size: int) -> int:
    """Return how many blocks ``tokens`` need."""
    return -(-tokens // block_size)


@kernel
def active_blocks(rank: RankRow) -> int:
    """Return blocks in use: referenced, private or reserved."""
    return rank.resident_blocks - rank.evictable_blocks + rank.private_blocks + rank.reserved_blocks


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
def count_hits(
    engine: EngineRow,
    rank: RankRow,
    seq: SeqRow,
    blocks: Table[BlockRow],
    contents: NDArray[np.int64],
    complete_blocks: int,
) -> tuple[int, int]:
    """Return (leading blocks that are resident, how many of these are in use)."""
    hits = 0
    active = 0
    if engine.prefix_caching == 0:
        return hits, active
    while hits < complete_blocks:
        b = find_resident(blocks, rank.id, block_content(seq, contents, hits))
        if b == NONE:
            break
        hits += 1
        if blocks[b].refs > 0:
            active += 1
    return hits, active


@kernel
def take_blocks(
    engine: EngineRow,
    rank: RankRow,
    seq: SeqRow,
    blocks: Table[BlockRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    contents: NDArray[np.int64],
    hits: int,
    fresh: int,
) -> bool:
    """Take ``fresh`` free blocks and reuse resident ones up to block ``hits``, or nothing.

    Reused blocks get one more user and are listed in the sequence's entries; evictable blocks
    make room for fresh ones. The caller counts the fresh ones as private or reserved.
    """
    free = engine.num_blocks - rank.resident_blocks - rank.private_blocks - rank.reserved_blocks
    evictions = max(0, fresh - free)
    evictable_hits = 0
    for k in range(seq.resident_blocks, hits):
        b = find_resident(blocks, rank.id, block_content(seq, contents, k))
        entries[seq.entry_start + k] = b
        if blocks[b].refs == 0:
            evictable_hits += 1
    if evictions > rank.evictable_blocks - evictable_hits:
        return False
    for k in range(seq.resident_blocks, hits):
        b = entries[seq.entry_start + k]
        if blocks[b].refs == 0:
            _leave_lru(rank, blocks, b)
        blocks[b].refs += 1
    seq.resident_blocks = max(seq.resident_blocks, hits)
    for _ in range(evictions):
        b = rank.lru_first
        _leave_lru(rank, blocks, b)
        _forget(rank, blocks, arena, b)
    return True


@kernel
def allocate(
    engine: EngineRow,
    rank: RankRow,
    seq: SeqRow,
    blocks: Table[BlockRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    contents: NDArray[np.int64],
    upto_tokens: int,
    hits: int,
) -> bool:
    """Cover ``upto_tokens`` of the sequence with blocks, or change nothing (§5.2).

    ``hits`` leading blocks come from the prefix cache; only a sequence without blocks has any.
    """
    size = engine.block_size
    length = blocks_for(seq.prompt_tokens + seq.generated_tokens, size)
    have = min(blocks_for(seq.covered_tokens, size), length)
    want = min(blocks_for(upto_tokens, size), length)
    if want > have:
        fresh = want - have - max(0, hits - have)
        if not take_blocks(engine, rank, seq, blocks, arena, entries, contents, hits, fresh):
            return False
        rank.private_blocks += fresh
        seq.private_blocks += fresh
    seq.covered_tokens = max(seq.covered_tokens, upto_tokens)
    return True


@kernel
def make_resident(
    engine: EngineRow,
    rank: RankRow,
    seq: SeqRow,
    blocks: Table[BlockRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    contents: NDArray[np.int64],
    computed_tokens: int,
) -> None:
    """Give private blocks their identity up to ``computed_tokens`` (§5.3)."""
    if engine.prefix_caching == 0:
        return
    for k in range(seq.resident_blocks, computed_tokens // engine.block_size):
        b = _remember(rank, blocks, arena, block_content(seq, contents, k))
        entries[seq.entry_start + k] = b
        seq.resident_blocks += 1
        seq.private_blocks -= 1
        rank.private_blocks -= 1


@kernel
def release_blocks(
    rank: RankRow,
    seq: SeqRow,
    blocks: Table[BlockRow],
    entries: NDArray[np.int64],
) -> None:
    """Give up all blocks of a sequence, deepest first: they are evicted first (§5.5)."""
    rank.private_blocks -= seq.private_blocks
    rank.reserved_blocks -= seq.reserved_blocks
    for k in range(seq.resident_blocks - 1, -1, -1):
        b = entries[seq.entry_start + k]
        blocks[b].refs -= 1
        if blocks[b].refs == 0:
            _enter_lru(rank, blocks, b)
    seq.private_blocks = 0
    seq.reserved_blocks = 0
    seq.resident_blocks = 0
    seq.covered_tokens = 0


@kernel
def _bucket(blocks: Table[BlockRow], rank_id: int, content: int) -> int:
    """Return the hash bucket of an identity; the table length is a power of two."""
    mixed = content * 2654435 + rank_id * 40503
    return (mixed ^ (mixed >> 15)) & (len(blocks) - 1)


@kernel
def _remember(rank: RankRow, blocks: Table[BlockRow], arena: ArenaRow, content: int) -> int:
    """Take a free row for a new copy with one user; return it."""
    b = arena.block_free
    block = blocks[b]
    arena.block_free = block.lru_next
    arena.block_free_count -= 1
    block.content = content
    block.rank = rank.id
    block.refs = 1
    block.lru_previous = NONE
    block.lru_next = NONE
    _link_bucket(blocks, b)
    rank.resident_blocks += 1
    return b


@entry_point
def link_blocks(old: Table[BlockRow], blocks: Table[BlockRow], arena: ArenaRow) -> None:
    """Build the buckets of a larger table that starts with the rows of ``old``; free the others.

    Going through the old buckets in order keeps copies of one identity oldest first.
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
        blocks[b].lru_next = arena.block_free
        arena.block_free = b
        arena.block_free_count += 1


@kernel
def _link_bucket(blocks: Table[BlockRow], b: int) -> None:
    """Append a row to its hash bucket: copies of one identity stay oldest first."""
    block = blocks[b]
    block.chain_next = NONE
    bucket = blocks[_bucket(blocks, block.rank, block.content)]
    if bucket.bucket_first == NONE:
        bucket.bucket_first = b
    else:
        blocks[bucket.bucket_last].chain_next = b
    bucket.bucket_last = b


@kernel
def _forget(rank: RankRow, blocks: Table[BlockRow], arena: ArenaRow, b: int) -> None:
    """Evict a copy: take it out of its bucket and free its row."""
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
    block.lru_next = arena.block_free
    arena.block_free = b
    arena.block_free_count += 1
    rank.resident_blocks -= 1


@kernel
def _enter_lru(rank: RankRow, blocks: Table[BlockRow], b: int) -> None:
    """Make a block evictable, after all others."""
    blocks[b].lru_previous = rank.lru_last
    blocks[b].lru_next = NONE
    if rank.lru_last == NONE:
        rank.lru_first = b
    else:
        blocks[rank.lru_last].lru_next = b
    rank.lru_last = b
    rank.evictable_blocks += 1


@kernel
def _leave_lru(rank: RankRow, blocks: Table[BlockRow], b: int) -> None:
    """Take a block out of the eviction order."""
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
    rank.evictable_blocks -= 1

"""Commands to an SGLang rank: queue and cancel requests, accept destinations.

Rules: engine-sglang.md §13. Commands apply immediately; a pass in flight was decided earlier and
does not change.
"""

from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.block_commands import hold_reservation
from aisim_gym.engine.kv_pool import blocks_for
from aisim_gym.engine.radix_pool import (
    commit_pages,
    cover_fresh,
    finish_pages,
    free_pages,
    release_pages,
)
from aisim_gym.engine.seq_queue import push_back, queue_of, unlink
from aisim_gym.engine.sglang_load import add_to_load, remove_from_load
from aisim_gym.engine.tables import (
    NONE,
    PENDING,
    PREBUILT,
    RUNNING,
    SEQ_HELD,
    SEQ_PENDING,
    SEQ_PREBUILT,
    SEQ_RESERVED,
    SEQ_RUNNING,
    WAITING,
    EngineRow,
    RankRow,
)
from aisim_gym.kernel import kernel


@kernel
def output_limit(t: RankTables, engine: EngineRow, prompt_tokens: int, output_tokens: int) -> int:
    """Return the maximum number of tokens that a new sequence generates."""
    return min(output_tokens, max(0, engine.max_model_len - prompt_tokens))


@kernel
def list_size(t: RankTables, engine: EngineRow, tokens: int) -> int:
    """Return 1; a sequence lists no pages, since the tree holds them."""
    return 1


@kernel
def submit(t: RankTables, rank: RankRow, s: int) -> None:
    """Queue a new sequence."""
    rank.new_seqs += 1
    add_to_load(rank, t.seqs[s])
    push_back(t.queues[queue_of(rank.id, WAITING)], t.seqs, s)


@kernel
def cancel(t: RankTables, engine: EngineRow, rank: RankRow, s: int) -> None:
    """Remove a live sequence from an idle rank, whatever its state; the caller deletes the row."""
    seq = t.seqs[s]
    if seq.status == SEQ_HELD:
        release_source(t, engine, rank, s)
        return
    queues = t.queues
    frees = seq.private_blocks > 0 or seq.resident_blocks > 0
    if seq.status == SEQ_RUNNING:
        unlink(queues[queue_of(rank.id, RUNNING)], t.seqs, s)
    else:
        remove_from_load(rank, seq)
        if seq.status == SEQ_PENDING:
            unlink(queues[queue_of(rank.id, PENDING)], t.seqs, s)
            rank.tried_seq = NONE
            frees = True
        elif seq.status == SEQ_RESERVED:
            rank.reserved_seqs -= 1
            frees = True
        elif seq.status == SEQ_PREBUILT:
            unlink(queues[queue_of(rank.id, PREBUILT)], t.seqs, s)
        else:
            unlink(queues[queue_of(rank.id, WAITING)], t.seqs, s)
    release_pages(t, rank, seq)
    if frees:
        rank.capacity_generation += 1


@kernel
def release_source(t: RankTables, engine: EngineRow, rank: RankRow, s: int) -> None:
    """Release a held source after its KV transfer; its complete pages stay in the tree."""
    finish_pages(t, engine, rank, t.seqs[s])
    rank.capacity_generation += 1


@kernel
def accept_destination(t: RankTables, engine: EngineRow, rank: RankRow, s: int) -> bool:
    """Queue a destination to reserve pages; False if its prompt can never run on the rank."""
    seq = t.seqs[s]
    if seq.prompt_tokens >= engine.max_model_len:
        return False
    if blocks_for(seq.prompt_tokens, engine.block_size) > engine.num_blocks:
        return False
    seq.is_destination = True
    seq.status = SEQ_PENDING
    add_to_load(rank, seq)
    push_back(t.queues[queue_of(rank.id, PENDING)], t.seqs, s)
    return True


@kernel
def reserve_destination(t: RankTables, engine: EngineRow, rank: RankRow) -> int:
    """Try to reserve pages for the first pending destination; return it on success.

    There is at most one attempt per trigger, for the head only, once per capacity generation.
    """
    s = t.queues[queue_of(rank.id, PENDING)].first
    if s == NONE:
        return NONE
    if rank.tried_seq == s and rank.tried_generation == rank.capacity_generation:
        return NONE
    rank.tried_seq = s
    rank.tried_generation = rank.capacity_generation
    seq = t.seqs[s]
    prompt_pages = seq.prompt_tokens // engine.block_size
    if cover_fresh(t, engine, rank, seq, seq.prompt_tokens, prompt_pages) == NONE:
        return NONE
    fresh = seq.private_blocks
    rank.private_blocks -= fresh
    seq.private_blocks = 0
    hold_reservation(t, rank, s, fresh)
    return int(s)


@kernel
def activate_destination(t: RankTables, engine: EngineRow, rank: RankRow, s: int) -> None:
    """Turn a reservation with transferred KV into a queued request whose prompt is computed."""
    seq = t.seqs[s]
    free_before = free_pages(engine, rank)
    rank.reserved_seqs -= 1
    rank.reserved_blocks -= seq.reserved_blocks
    rank.private_blocks += seq.reserved_blocks
    seq.private_blocks = seq.reserved_blocks
    seq.reserved_blocks = 0
    seq.computed_tokens = seq.prompt_tokens
    commit_pages(t, engine, rank, seq)
    seq.status = SEQ_PREBUILT
    push_back(t.queues[queue_of(rank.id, PREBUILT)], t.seqs, s)
    if free_pages(engine, rank) > free_before:
        rank.capacity_generation += 1


@kernel
def block_demand(t: RankTables, engine: EngineRow, rank: RankRow) -> int:
    """Return the maximum number of pages that a pass or a command adds to the tree.

    These are the pages already owned by sequences and those that a pass can assign to them.
    """
    if not engine.prefix_caching:
        return 0
    chunk = engine.chunk_tokens // engine.block_size
    growth = _most_seqs(t, engine, rank) * (2 + engine.draft_tokens // engine.block_size)
    owned = rank.private_blocks + rank.reserved_blocks
    return min(engine.num_blocks - rank.resident_blocks, owned + chunk + growth)


@kernel
def node_demand(t: RankTables, engine: EngineRow, rank: RankRow) -> int:
    """Return the maximum number of nodes that a pass or a command adds to the tree.

    A match adds one node, an insertion two; page commits and sequence ends are insertions. A tree
    never has more nodes than pages, apart from its root.
    """
    if not engine.prefix_caching:
        return 0
    per_seq = 1 + 2 * (2 + engine.draft_tokens // engine.block_size + 1)
    return min(engine.num_blocks + 1, 4 + _most_seqs(t, engine, rank) * per_seq)


@kernel
def reservation_demand(t: RankTables) -> int:
    """Return the nodes that locking a cached prefix adds: a root and the upper half of a split."""
    return 2


@kernel
def gauge_blocks(t: RankTables, engine: EngineRow, rank: RankRow) -> tuple[int, int]:
    """Return (used pages, 0); cached pages count as active."""
    return engine.num_blocks - free_pages(engine, rank), 0


@kernel
def _most_seqs(t: RankTables, engine: EngineRow, rank: RankRow) -> int:
    """Return the maximum number of sequences in the next pass."""
    present = (
        t.queues[queue_of(rank.id, RUNNING)].count + t.queues[queue_of(rank.id, WAITING)].count
    )
    return min(present + t.queues[queue_of(rank.id, PREBUILT)].count, engine.max_seqs)

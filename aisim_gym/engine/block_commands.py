"""Commands to a rank with a block pool: queue and cancel requests, accept destinations.

Rules: engine-vllm-trtllm.md §3, §9. Commands apply immediately; a pass in flight was decided
earlier and does not change.
"""

from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.kv_pool import (
    active_blocks,
    blocks_for,
    count_hits,
    free_blocks,
    make_resident,
    release_blocks,
    take_blocks,
)
from aisim_gym.engine.queue_load import add_to_load, remove_from_load
from aisim_gym.engine.seq_queue import insert_before, push_back, queue_of, unlink
from aisim_gym.engine.tables import (
    NONE,
    PENDING,
    PREEMPT_NONE,
    RUNNING,
    SEQ_HELD,
    SEQ_PENDING,
    SEQ_RESERVED,
    SEQ_WAITING,
    UNLIMITED,
    WAITING,
    EngineRow,
    PassRow,
    RankRow,
)
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table


@kernel
def block_list_size(t: RankTables, engine: EngineRow, tokens: int) -> int:
    """Return how many resident blocks a sequence can list, at most the size of the pool."""
    return min(tokens // engine.block_size, engine.num_blocks) + 1


@kernel
def submit(t: RankTables, rank: RankRow, s: int) -> None:
    """Queue a new sequence."""
    add_to_load(rank, t.seqs[s])
    push_back(t.queues[queue_of(rank.id, WAITING)], t.seqs, s)


@kernel
def cancel(t: RankTables, engine: EngineRow, rank: RankRow, s: int) -> None:
    """Remove a live sequence from an idle rank, whatever its state, and release its blocks.

    Held sources are released in the same way. The caller deletes the row.
    """
    seq = t.seqs[s]
    held_blocks = seq.resident_blocks + seq.private_blocks + seq.reserved_blocks > 0
    frees = held_blocks or seq.status != SEQ_WAITING
    if seq.status == SEQ_WAITING:
        remove_from_load(rank, seq)
        unlink(t.queues[queue_of(rank.id, WAITING)], t.seqs, s)
    elif seq.status == SEQ_PENDING:
        remove_from_load(rank, seq)
        unlink(t.queues[queue_of(rank.id, PENDING)], t.seqs, s)
        rank.tried_seq = NONE
    elif seq.status == SEQ_RESERVED:
        remove_from_load(rank, seq)
        rank.reserved_seqs -= 1
    elif seq.status != SEQ_HELD:
        rank.steady_is_summed = False
        unlink(t.queues[queue_of(rank.id, RUNNING)], t.seqs, s)
    release_blocks(t, rank, seq, False)
    if frees:
        rank.capacity_generation += 1


@kernel
def accept_destination(t: RankTables, engine: EngineRow, rank: RankRow, s: int) -> bool:
    """Queue a destination to reserve blocks; False if its prompt can never run on the rank."""
    prompt_tokens = t.seqs[s].prompt_tokens
    if prompt_tokens >= engine.max_model_len:
        return False
    if blocks_for(prompt_tokens, engine.block_size) > engine.num_blocks:
        return False
    queue_destination(t, rank, s)
    return True


@kernel
def queue_destination(t: RankTables, rank: RankRow, s: int) -> None:
    """Append a destination to those that wait for blocks."""
    seq = t.seqs[s]
    seq.is_destination = True
    seq.status = SEQ_PENDING
    add_to_load(rank, seq)
    push_back(t.queues[queue_of(rank.id, PENDING)], t.seqs, s)


@kernel
def next_destination(t: RankTables, engine: EngineRow, rank: RankRow) -> int:
    """Return the pending destination whose reservation to attempt now, or ``NONE``.

    There is at most one attempt per trigger, for the head only, once per capacity generation (§9).
    """
    s = t.queues[queue_of(rank.id, PENDING)].first
    if s == NONE:
        return NONE
    if rank.tried_seq == s and rank.tried_generation == rank.capacity_generation:
        return NONE
    rank.tried_seq = s
    rank.tried_generation = rank.capacity_generation
    if t.queues[queue_of(rank.id, RUNNING)].count >= engine.max_seqs:
        return NONE
    return int(s)


@kernel
def reserve_destination(t: RankTables, engine: EngineRow, rank: RankRow) -> int:
    """Try to reserve blocks for the first pending destination; return it on success."""
    s = next_destination(t, engine, rank)
    if s == NONE:
        return NONE
    seq = t.seqs[s]
    prompt_blocks = seq.prompt_tokens // engine.block_size
    hits, _ = count_hits(t, engine, rank, seq, prompt_blocks)
    fresh = blocks_for(seq.prompt_tokens, engine.block_size) - hits
    if not take_blocks(t, engine, rank, seq, hits, fresh):
        return NONE
    hold_reservation(t, rank, s, fresh)
    return s


@kernel
def hold_reservation(t: RankTables, rank: RankRow, s: int, fresh: int) -> None:
    """Record that a pending destination has its blocks, ``fresh`` of them not from the cache."""
    seq = t.seqs[s]
    rank.reserved_blocks += fresh
    seq.reserved_blocks = fresh
    unlink(t.queues[queue_of(rank.id, PENDING)], t.seqs, s)
    rank.tried_seq = NONE
    seq.status = SEQ_RESERVED
    rank.reserved_seqs += 1


@kernel
def activate_destination(t: RankTables, engine: EngineRow, rank: RankRow, s: int) -> None:
    """Turn a reservation with transferred KV into a queued request whose prompt is computed."""
    seq = t.seqs[s]
    active_before = active_blocks(rank)
    rank.reserved_seqs -= 1
    rank.reserved_blocks -= seq.reserved_blocks
    rank.private_blocks += seq.reserved_blocks
    seq.private_blocks = seq.reserved_blocks
    seq.reserved_blocks = 0
    make_resident(t, engine, rank, seq, seq.prompt_tokens)
    seq.computed_tokens = seq.prompt_tokens
    seq.covered_tokens = seq.prompt_tokens
    seq.status = SEQ_WAITING
    waiting = t.queues[queue_of(rank.id, WAITING)]
    successor = waiting.first
    while successor != NONE and t.seqs[successor].order < seq.order:
        successor = t.seqs[successor].next
    insert_before(waiting, t.seqs, successor, s)
    if active_blocks(rank) < active_before:
        rank.capacity_generation += 1


@kernel
def block_demand(t: RankTables, engine: EngineRow, rank: RankRow) -> int:
    """Return the maximum number of rows that the next pass may take.

    This is one row for the evictable blocks of each ending sequence, one per block that may become
    resident if any blocks are shared, and, if a preemption is possible, one per block in use before
    or after the pass. Eviction may free no row, since the blocks of an ended sequence share one.
    """
    if not engine.prefix_caching:
        return 0
    waiting = t.queues[queue_of(rank.id, WAITING)].count
    seqs = min(t.queues[queue_of(rank.id, RUNNING)].count + waiting, engine.max_seqs)
    tokens = rank.queued_new_tokens + rank.queued_decode_tokens
    if engine.max_batched_tokens < UNLIMITED:
        tokens = engine.max_batched_tokens
    growth = tokens // engine.block_size + seqs * (2 + engine.draft_tokens // engine.block_size)
    may_preempt = engine.preemption != PREEMPT_NONE and growth > (
        free_blocks(engine, rank) + rank.evictable_blocks
    )
    demand = seqs
    if may_preempt or len(t.contents) > 0:
        demand += min(growth, engine.num_blocks)
    if may_preempt:
        demand += rank.resident_blocks - rank.evictable_blocks
    return demand


@kernel
def node_demand(t: RankTables, engine: EngineRow, rank: RankRow) -> int:
    """Return 0: block pools have no tree."""
    return 0


@kernel
def command_demand(t: RankTables, engine: EngineRow, prompt_tokens: int) -> int:
    """Return the rows for the blocks of a prompt, and one for what a released sequence leaves."""
    return prompt_tokens // engine.block_size + 1


@kernel
def reservation_demand(t: RankTables) -> int:
    """Return 0: block pools have no tree."""
    return 0


@kernel
def finish_group(
    t: RankTables,
    engine: EngineRow,
    ranks: Table[RankRow],
    passes: Table[PassRow],
    first_rank: int,
) -> None:
    """Do nothing; the ranks of a worker share no scheduler state."""


@kernel
def gauge_blocks(t: RankTables, engine: EngineRow, rank: RankRow) -> tuple[int, int]:
    """Return (blocks in use, evictable blocks)."""
    return active_blocks(rank), rank.evictable_blocks

"""Commands to a rank: submit and cancel requests, reserve and activate destinations.

Rules: engine-vllm-trtllm.md §3, §9. Commands apply at once; the pass in flight, if any, was
decided before and does not change.
"""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.kv_pool import (
    active_blocks,
    blocks_for,
    count_hits,
    make_resident,
    release_blocks,
    take_blocks,
)
from aisim_gym.engine.queue_load import add_to_load, remove_from_load
from aisim_gym.engine.seq_queue import insert_before, push_back, unlink
from aisim_gym.engine.slices import give_back_slice, slice_fits, take_slice
from aisim_gym.engine.tables import (
    END_NONE,
    NONE,
    PENDING,
    QUEUES_PER_RANK,
    RUNNING,
    SEQ_HELD,
    SEQ_PENDING,
    SEQ_RESERVED,
    SEQ_WAITING,
    WAITING,
    ArenaRow,
    BlockRow,
    EngineRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table


@kernel
def seq_fits(
    engine: EngineRow,
    arena: ArenaRow,
    entries: NDArray[np.int64],
    entry_heads: NDArray[np.int64],
    tokens: int,
) -> bool:
    """Return whether a sequence of ``tokens`` (prompt + output) can be created without growth."""
    return arena.seq_free_count > 0 and slice_fits(
        entries, entry_heads, _entry_size(engine, tokens)
    )


@kernel
def _entry_size(engine: EngineRow, tokens: int) -> int:
    """Return how many resident blocks a sequence can list: never more than the pool has."""
    return min(tokens // engine.block_size, engine.num_blocks) + 1


@kernel
def create_seq(
    engine: EngineRow,
    rank: RankRow,
    seqs: Table[SeqRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    entry_heads: NDArray[np.int64],
    request: int,
    prompt_tokens: int,
    max_output_tokens: int,
    content_start: int,
    shared_blocks: int,
    private_base: int,
) -> int:
    """Return a new sequence of ``request`` on a rank, in no queue yet."""
    s = arena.seq_free
    seq = seqs[s]
    arena.seq_free = seq.next
    arena.seq_free_count -= 1
    size = _entry_size(engine, prompt_tokens + max_output_tokens)
    seq.request = request
    seq.rank = rank.id
    seq.status = SEQ_WAITING
    seq.prompt_tokens = prompt_tokens
    seq.max_output_tokens = max_output_tokens
    seq.generated_tokens = 0
    seq.computed_tokens = 0
    seq.covered_tokens = 0
    seq.order = rank.arrivals
    seq.is_source = 0
    seq.is_destination = 0
    seq.was_admitted = 0
    seq.resident_blocks = 0
    seq.private_blocks = 0
    seq.reserved_blocks = 0
    seq.entry_start = take_slice(entries, entry_heads, size)
    seq.entry_size = size
    seq.content_start = content_start
    seq.shared_blocks = shared_blocks
    seq.private_base = private_base
    seq.previous = NONE
    seq.next = NONE
    seq.stamp = NONE
    seq.reused_tokens = 0
    seq.signal_token = 0
    seq.signal_end = END_NONE
    rank.arrivals += 1
    rank.owned_seqs += 1
    return s


@kernel
def delete_seq(
    rank: RankRow,
    seqs: Table[SeqRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    entry_heads: NDArray[np.int64],
    s: int,
) -> None:
    """Free the row of a sequence that has left the rank; it holds no blocks any more."""
    seq = seqs[s]
    give_back_slice(entries, entry_heads, seq.entry_start, seq.entry_size)
    seq.request = NONE
    seq.next = arena.seq_free
    arena.seq_free = s
    arena.seq_free_count += 1
    rank.owned_seqs -= 1


@kernel
def submit(rank: RankRow, queues: Table[QueueRow], seqs: Table[SeqRow], s: int) -> None:
    """Queue a new sequence."""
    add_to_load(rank, seqs[s])
    push_back(queues[QUEUES_PER_RANK * rank.id + WAITING], seqs, s)


@kernel
def cancel_seq(
    rank: RankRow,
    queues: Table[QueueRow],
    seqs: Table[SeqRow],
    s: int,
    blocks: Table[BlockRow],
    entries: NDArray[np.int64],
) -> None:
    """Take a live sequence off an idle rank, wherever it is; its blocks are released.

    Also how a held source is released. The caller deletes the row.
    """
    seq = seqs[s]
    held_blocks = seq.resident_blocks + seq.private_blocks + seq.reserved_blocks > 0
    frees = held_blocks or seq.status != SEQ_WAITING
    if seq.status == SEQ_WAITING:
        remove_from_load(rank, seq)
        unlink(queues[QUEUES_PER_RANK * rank.id + WAITING], seqs, s)
    elif seq.status == SEQ_PENDING:
        remove_from_load(rank, seq)
        unlink(queues[QUEUES_PER_RANK * rank.id + PENDING], seqs, s)
        rank.tried_seq = NONE
    elif seq.status == SEQ_RESERVED:
        remove_from_load(rank, seq)
        rank.reserved_seqs -= 1
    elif seq.status != SEQ_HELD:
        unlink(queues[QUEUES_PER_RANK * rank.id + RUNNING], seqs, s)
    release_blocks(rank, seq, blocks, entries)
    if frees:
        rank.capacity_generation += 1


@kernel
def accept_destination(
    engine: EngineRow, rank: RankRow, queues: Table[QueueRow], seqs: Table[SeqRow], s: int
) -> bool:
    """Queue a destination for its blocks; False if its prompt can never run here."""
    seq = seqs[s]
    if seq.prompt_tokens >= engine.max_model_len:
        return False
    if blocks_for(seq.prompt_tokens, engine.block_size) > engine.num_blocks:
        return False
    seq.is_destination = 1
    seq.status = SEQ_PENDING
    add_to_load(rank, seq)
    push_back(queues[QUEUES_PER_RANK * rank.id + PENDING], seqs, s)
    return True


@kernel
def retry_destination(
    engine: EngineRow,
    rank: RankRow,
    queues: Table[QueueRow],
    seqs: Table[SeqRow],
    blocks: Table[BlockRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    contents: NDArray[np.int64],
) -> int:
    """Try to reserve blocks for the first pending destination; return it if that worked.

    At most one per trigger, the head only, once per capacity generation (§9).
    """
    pending = queues[QUEUES_PER_RANK * rank.id + PENDING]
    s = pending.first
    if s == NONE:
        return NONE
    if rank.tried_seq == s and rank.tried_generation == rank.capacity_generation:
        return NONE
    rank.tried_seq = s
    rank.tried_generation = rank.capacity_generation
    if queues[QUEUES_PER_RANK * rank.id + RUNNING].count >= engine.max_seqs:
        return NONE
    seq = seqs[s]
    hits, _ = count_hits(
        engine, rank, seq, blocks, contents, seq.prompt_tokens // engine.block_size
    )
    fresh = blocks_for(seq.prompt_tokens, engine.block_size) - hits
    if not take_blocks(engine, rank, seq, blocks, arena, entries, contents, hits, fresh):
        return NONE
    rank.reserved_blocks += fresh
    seq.reserved_blocks = fresh
    unlink(pending, seqs, s)
    rank.tried_seq = NONE
    seq.status = SEQ_RESERVED
    rank.reserved_seqs += 1
    return s


@kernel
def activate_destination(
    engine: EngineRow,
    rank: RankRow,
    queues: Table[QueueRow],
    seqs: Table[SeqRow],
    s: int,
    blocks: Table[BlockRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    contents: NDArray[np.int64],
) -> None:
    """Turn a reservation with transferred KV into a queued request whose prompt is computed."""
    seq = seqs[s]
    active_before = active_blocks(rank)
    rank.reserved_seqs -= 1
    rank.reserved_blocks -= seq.reserved_blocks
    rank.private_blocks += seq.reserved_blocks
    seq.private_blocks = seq.reserved_blocks
    seq.reserved_blocks = 0
    make_resident(engine, rank, seq, blocks, arena, entries, contents, seq.prompt_tokens)
    seq.computed_tokens = seq.prompt_tokens
    seq.covered_tokens = seq.prompt_tokens
    seq.status = SEQ_WAITING
    waiting = queues[QUEUES_PER_RANK * rank.id + WAITING]
    successor = waiting.first
    while successor != NONE and seqs[successor].order < seq.order:
        successor = seqs[successor].next
    insert_before(waiting, seqs, successor, s)
    if active_blocks(rank) < active_before:
        rank.capacity_generation += 1

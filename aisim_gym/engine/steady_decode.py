"""Steady decode of a block scheduler: passes in which every running request emits one token.

While nobody is admitted, preempted or finished, a pass only lengthens the running sequences by one
token each. How many such passes follow each other is known beforehand, and what they do to
sequences and blocks can be applied to all of them at once. Blocks that a sequence
completes on the way have an identity like all others; who has to give way to them does not depend
on the order, since nothing is released meanwhile.
"""

from collections.abc import Callable

from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.emission import (
    append_admission,
    append_signal,
    finish_seq,
    remaining_tokens,
    seq_length,
)
from aisim_gym.engine.kv_pool import blocks_for, evict_blocks, free_blocks, make_resident
from aisim_gym.engine.queue_load import remove_from_load
from aisim_gym.engine.seq_queue import push_back, queue_of, unlink
from aisim_gym.engine.steady_batch import sum_batch
from aisim_gym.engine.tables import (
    END_NONE,
    NONE,
    PENDING,
    ROLE_DECODE,
    ROLE_PREFILL,
    RUNNING,
    SEQ_RUNNING,
    UNLIMITED,
    WAITING,
    EngineRow,
    PassRow,
    RankRow,
    SeqRow,
)
from aisim_gym.kernel import kernel


@kernel
def steady_passes(
    t: RankTables,
    engine: EngineRow,
    rank: RankRow,
    last_entry: int,
    is_held_up: Callable[..., bool],
    admission_cost: Callable[..., int],
) -> int:
    """Return how many passes of steady decode an idle rank is sure to run next.

    The last of them may end requests. The sums of the batch are noted in the rank.

    Args:
        t: Shared tables.
        engine: Role of the rank.
        rank: The rank.
        last_entry: Of the worker's token log: requests that did not get a token then are not yet
            in step with the others.
        is_held_up: ``(t, engine, rank, s, admission_cost)``: whether the first waiting sequence
            cannot be admitted before something is released.
        admission_cost: The admission rule of the scheduler.
    """
    running = t.queues[queue_of(rank.id, RUNNING)]
    waiting = t.queues[queue_of(rank.id, WAITING)]
    pending = t.queues[queue_of(rank.id, PENDING)]
    joins = _all_join(t, engine, rank)
    count = running.count + (waiting.count if joins else 0)
    if count == 0 or count > engine.max_batched_tokens:
        return 0
    if engine.role == ROLE_PREFILL or engine.draft_tokens > 0:
        return 0
    first = int(waiting.first)
    if (
        waiting.count > 0
        and not joins
        and count < engine.max_seqs
        and (pending.count > 0 or not is_held_up(t, engine, rank, first, admission_cost))
    ):
        return 0
    if engine.dp_size > 1 and rank.is_capacity_bound != (waiting.count > 0):
        return 0
    # Blocks in common that a request completes may let a waiting one in: that pass is not steady.
    may_let_in = (
        waiting.count > 0
        and not joins
        and count < engine.max_seqs
        and engine.prefix_caching
        and len(t.contents) > 0
    )
    if rank.steady_is_summed and running.count > 0 and not may_let_in:
        passes, tokens, squares = (
            rank.steady_next_passes,
            rank.steady_next_tokens,
            rank.steady_next_squares,
        )
    else:
        passes, tokens, squares = sum_batch(
            t.seqs, engine, int(running.first), last_entry, _is_in_step, remaining_tokens
        )
        if may_let_in:
            passes = min(passes, _passes_in_blocks(t, engine, int(running.first)))
    if joins:
        joining = sum_batch(
            t.seqs, engine, int(waiting.first), last_entry, _may_join, remaining_tokens
        )
        passes = min(passes, joining[0])
        tokens += joining[1]
        squares += joining[2]
    rank.steady_seqs = count
    rank.steady_tokens = tokens
    rank.steady_squares = squares
    available = free_blocks(engine, rank) + rank.evictable_blocks
    return int(min(passes, available // count * engine.block_size))


@kernel
def _is_in_step(engine: EngineRow, seq: SeqRow, last_entry: int) -> bool:
    """Return whether a running sequence got a token with the last entry and computes one more."""
    return bool(
        seq.computed_tokens == seq_length(seq) - 1
        and seq.computed_tokens >= seq.prompt_tokens
        and seq.last_entry == last_entry
    )


@kernel
def _may_join(engine: EngineRow, seq: SeqRow, last_entry: int) -> bool:
    """Return True: :func:`_all_join` has looked."""
    return True


@kernel
def _passes_in_blocks(t: RankTables, engine: EngineRow, first: int) -> int:
    """Return how many passes complete no block that a running sequence has in common."""
    passes = UNLIMITED
    s = first
    while s != NONE:
        seq = t.seqs[s]
        if seq.resident_blocks < seq.shared_blocks:
            block_end = (seq.resident_blocks + 1) * engine.block_size
            passes = min(passes, block_end - 1 - seq.computed_tokens)
        s = seq.next
    return passes


@kernel
def join_decodes(t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow) -> None:
    """Admit the activated destinations that wait, if :func:`steady_passes` counted on them."""
    running = t.queues[queue_of(rank.id, RUNNING)]
    waiting = t.queues[queue_of(rank.id, WAITING)]
    while running.count < rank.steady_seqs:
        s = waiting.first
        remove_from_load(rank, t.seqs[s])
        unlink(waiting, t.seqs, s)
        push_back(running, t.seqs, s)
        t.seqs[s].status = SEQ_RUNNING
        append_admission(work, t.seqs, s, 0)


@kernel
def _all_join(t: RankTables, engine: EngineRow, rank: RankRow) -> bool:
    """Return whether all waiting sequences are destinations that decode right away."""
    running = t.queues[queue_of(rank.id, RUNNING)]
    waiting = t.queues[queue_of(rank.id, WAITING)]
    if (
        engine.dp_size > 1
        or engine.role != ROLE_DECODE
        or t.queues[queue_of(rank.id, PENDING)].count > 0
        or running.count + waiting.count > engine.max_seqs
        or running.count >= engine.max_batched_tokens
    ):
        return False
    s = waiting.first
    while s != NONE:
        seq = t.seqs[s]
        if (
            seq.computed_tokens < seq.prompt_tokens
            or seq.covered_tokens < seq.prompt_tokens
            or seq.generated_tokens > 0
            or remaining_tokens(engine, seq) == 0
        ):
            return False
        s = seq.next
    return True


@kernel
def rows_for_decodes(
    t: RankTables, engine: EngineRow, rank: RankRow, num_passes: int
) -> tuple[int, int]:
    """Return how many rows of the block and the node table so many passes may take, with their end.

    One for each sequence that ends, and one per block in common with others, if there are any.
    """
    if len(t.contents) == 0:
        return int(rank.steady_seqs), 0
    return int(rank.steady_seqs * (2 + num_passes // engine.block_size)), 0


@kernel
def advance_decodes(
    t: RankTables,
    engine: EngineRow,
    rank: RankRow,
    work: PassRow,
    num_passes: int,
    last_entry: int,
) -> None:
    """Run so many passes of steady decode; those that get their last token end, in running order.

    Args:
        t: Shared tables.
        engine: Role of the rank.
        rank: The rank.
        work: Gets the signals of those that end.
        num_passes: >= 0, no more than :func:`steady_passes` allowed.
        last_entry: Of the token log, in which they got their last visible token.
    """
    block_size = engine.block_size
    taken = 0
    completed = 0
    ended = 0
    listing = 0
    passes = engine.num_blocks * block_size
    tokens = 0
    squares = 0
    s = t.queues[queue_of(rank.id, RUNNING)].first
    while s != NONE:
        seq = t.seqs[s]
        seq.last_entry = last_entry
        if num_passes > 0:
            seq.generated_tokens += num_passes
            seq.computed_tokens = seq_length(seq) - 1  # whoever has joined had all of its prompt
            seq.covered_tokens = seq.computed_tokens
        held_blocks = seq.resident_blocks + seq.private_blocks
        if seq.computed_tokens > held_blocks * block_size:
            fresh = blocks_for(seq.computed_tokens, block_size) - held_blocks
            seq.private_blocks += fresh
            taken += fresh
        if engine.prefix_caching and (
            seq.computed_tokens >= (seq.resident_blocks + 1) * block_size
        ):
            if seq.resident_blocks >= seq.shared_blocks:  # what make_resident does then
                fresh = seq.computed_tokens // block_size - seq.resident_blocks
                seq.resident_blocks += fresh
                seq.private_blocks -= fresh
                completed += fresh
            else:
                listing += 1
        remaining = remaining_tokens(engine, seq)
        if remaining == 0:
            ended += 1
        else:
            length = seq_length(seq)
            passes = min(passes, remaining)
            tokens += length
            squares += length * length
        s = seq.next
    rank.steady_is_summed = True
    rank.steady_next_passes = passes
    rank.steady_next_tokens = tokens
    rank.steady_next_squares = squares
    if taken > 0:
        evictions = taken - free_blocks(engine, rank)
        if evictions > 0:
            evict_blocks(t, rank, evictions)
    rank.private_blocks += taken - completed
    rank.resident_blocks += completed
    if listing > 0:
        _list_blocks(t, engine, rank, num_passes if listing > 1 else 1)
    if ended == 0:
        return
    s = t.queues[queue_of(rank.id, RUNNING)].first
    while s != NONE:
        seq = t.seqs[s]
        following = seq.next
        if remaining_tokens(engine, seq) == 0:
            seq.signal_tokens = 1
            seq.signal_end = END_NONE
            finish_seq(t, rank, s)
            append_signal(work, t.seqs, s)
        s = following


@kernel
def _list_blocks(t: RankTables, engine: EngineRow, rank: RankRow, num_passes: int) -> None:
    """Make blocks in common resident in the order of the last so many passes.

    Of several copies the oldest one is found, so the order counts if there may be some.
    """
    running = t.queues[queue_of(rank.id, RUNNING)]
    for later in range(num_passes - 1, -1, -1):
        s = running.first
        while s != NONE:
            make_resident(t, engine, rank, t.seqs[s], t.seqs[s].computed_tokens - later)
            s = t.seqs[s].next

"""Steady decode of a block scheduler: passes in which every running request emits one token.

While no request is admitted, preempted or finished, a pass only extends every running sequence by
one token. The number of such consecutive passes is known in advance, and their effects on sequences
and blocks can be applied at once. Blocks completed during these passes become resident as usual.
Which blocks are evicted for them does not depend on the order, since no block is released in
between.
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
    """Return the number of steady decode passes that an idle rank is certain to run next.

    The last of them may end requests. The sums of the batch are stored in the rank.

    Args:
        t: Shared tables.
        engine: Role of the rank.
        rank: The rank.
        last_entry: Last entry of the worker's token log; requests without a token in it are not
            yet in step with the others.
        is_held_up: ``(t, engine, rank, s, admission_cost)``: whether the first waiting sequence
            cannot be admitted before blocks or slots are released.
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
    # Completing shared blocks may let a waiting request be admitted: that pass is not steady.
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
    """Return True: :func:`_all_join` has checked the queue."""
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
    """Admit the waiting activated destinations that :func:`steady_passes` has included."""
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
    """Return whether all waiting sequences are destinations that decode immediately."""
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
    """Return the maximum number of block and node rows taken by the passes, including their end.

    This is one row per ending sequence, and one per block shared with others, if there are any.
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
    """Run ``num_passes`` passes of steady decode; complete requests end, in running order.

    Args:
        t: Shared tables.
        engine: Role of the rank.
        rank: The rank.
        work: Receives the signals of ending requests.
        num_passes: >= 0, at most the result of :func:`steady_passes`.
        last_entry: Token-log entry of their last visible token.
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
            seq.computed_tokens = seq_length(seq) - 1  # a joined prompt is complete
            seq.covered_tokens = seq.computed_tokens
        held_blocks = seq.resident_blocks + seq.private_blocks
        if seq.computed_tokens > held_blocks * block_size:
            fresh = blocks_for(seq.computed_tokens, block_size) - held_blocks
            seq.private_blocks += fresh
            taken += fresh
        if engine.prefix_caching and (
            seq.computed_tokens >= (seq.resident_blocks + 1) * block_size
        ):
            if seq.resident_blocks >= seq.shared_blocks:  # as in make_resident
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
    """Make shared blocks resident in the order of the last ``num_passes`` passes.

    A lookup finds the oldest of several copies, so the order matters if copies are possible.
    """
    running = t.queues[queue_of(rank.id, RUNNING)]
    for later in range(num_passes - 1, -1, -1):
        s = running.first
        while s != NONE:
            make_resident(t, engine, rank, t.seqs[s], t.seqs[s].computed_tokens - later)
            s = t.seqs[s].next

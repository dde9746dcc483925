"""vLLM-style rank scheduler: what one pass computes, admits, preempts, rejects and emits.

Rules: engine-vllm-trtllm.md §3, §4, §6. Everything is decided when the pass starts; tokens, ends
and metrics are shown when it ends, so the pass leaves them behind: a list of signals, a list of
admissions and the sums in its :class:`PassRow`.
"""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.kv_pool import (
    active_blocks,
    allocate,
    blocks_for,
    count_hits,
    make_resident,
    release_blocks,
)
from aisim_gym.engine.queue_load import add_to_load, remove_from_load
from aisim_gym.engine.seq_queue import push_back, push_front, unlink
from aisim_gym.engine.tables import (
    END_COMPLETED,
    END_NONE,
    END_REJECTED,
    NONE,
    PENDING,
    QUEUES_PER_RANK,
    ROLE_AGGREGATED,
    ROLE_DECODE,
    ROLE_PREFILL,
    RUNNING,
    SEQ_ENDED,
    SEQ_HELD,
    SEQ_RUNNING,
    SEQ_WAITING,
    WAITING,
    ArenaRow,
    BlockRow,
    EngineRow,
    PassRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.engine.timing import decode_ms, prefill_ms
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table

_SCHEDULED, _BLOCKED, _SELF_PREEMPTED = 0, 1, 2
_COST_REJECT, _COST_WAIT = -2, -1


@kernel
def run_pass(
    engine: EngineRow,
    rank: RankRow,
    work: PassRow,
    queues: Table[QueueRow],
    seqs: Table[SeqRow],
    blocks: Table[BlockRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    contents: NDArray[np.int64],
    now_ms: float,
    wave: int,
) -> None:
    """Start a pass on an idle rank: schedule, admit, emit; ``work`` is filled, ``end_ms`` too.

    Args:
        engine: Role of the rank.
        rank: Modified, like all tables.
        work: Sums and lists of this pass.
        queues: All queues; the rank's are found by its id.
        seqs: Sequence table.
        blocks: Block table; the caller makes sure that enough rows are free.
        arena: Free lists.
        entries: Block lists of the sequences.
        contents: Identities of shared prompt blocks.
        now_ms: Start of the pass.
        wave: Ordinal of this group pass since the worker was last drained (§11).
    """
    waiting = queues[QUEUES_PER_RANK * rank.id + WAITING]
    running = queues[QUEUES_PER_RANK * rank.id + RUNNING]
    pending = queues[QUEUES_PER_RANK * rank.id + PENDING]
    begin_work(engine, rank, work)
    defer = _defers_prefill(engine, rank, running, seqs, wave)

    s = running.first
    while s != NONE and work.budget > 0:
        if defer and not _is_prebuilt(seqs[s]):
            s = seqs[s].next
            continue
        following = seqs[s].next
        outcome, skip = _schedule(
            engine, rank, work, waiting, running, seqs, s, blocks, arena, entries, contents, NONE
        )
        if outcome == _BLOCKED:
            break
        if outcome == _SCHEDULED:
            s = seqs[s].next
        else:  # it preempted itself, as the last (lifo) or the first (fifo) of the list
            s = following if engine.preempts_first == 1 else NONE
        while skip > 0 and s != NONE:
            s = seqs[s].next
            skip -= 1

    only_prebuilt = pending.count > 0
    rejected_first = NONE
    rejected_last = NONE
    while work.preempted == 0 and running.count < engine.max_seqs:
        s = _earliest_prebuilt(waiting, seqs) if only_prebuilt else waiting.first
        if s == NONE:
            break
        seq = seqs[s]
        if _is_prebuilt(seq):
            cached = seq.prompt_tokens
        else:
            cached = _admission_cost(engine, rank, seq, blocks, contents)
        if cached == _COST_REJECT or seq.prompt_tokens >= engine.max_model_len:
            remove_from_load(rank, seq)
            unlink(waiting, seqs, s)
            seq.status = SEQ_ENDED
            seq.signal_token = 0
            seq.signal_end = END_REJECTED
            seq.signal_next = NONE
            if rejected_first == NONE:
                rejected_first = s
            else:
                seqs[rejected_last].signal_next = s
            rejected_last = s
            continue
        if cached == _COST_WAIT:
            break
        if defer and _length(seq) - cached > 1:
            break
        budget = work.budget
        outcome, skip = _schedule(
            engine, rank, work, waiting, running, seqs, s, blocks, arena, entries, contents, cached
        )
        if outcome != _SCHEDULED:
            break
        if budget == 0 and work.budget == budget:
            break

    if not defer and work.preempted == 0:
        rank.is_capacity_bound = 1 if waiting.count > 0 else 0

    _emit(engine, rank, work, running, seqs, blocks, entries)
    while rejected_first != NONE:
        s = rejected_first
        rejected_first = seqs[s].signal_next
        _append_signal(work, seqs, s)

    work.queued_new = rank.queued_new
    work.queued_new_tokens = rank.queued_new_tokens
    work.queued_new_squares = rank.queued_new_squares
    work.queued_decode = rank.queued_decode
    work.queued_decode_tokens = rank.queued_decode_tokens
    work.queued_decode_squares = rank.queued_decode_squares
    prefill_end_ms = now_ms + prefill_ms(
        engine,
        0 if engine.role == ROLE_DECODE else work.num_prefill,
        work.prompt_ends,
        work.prefix_tokens,
    )
    work.end_ms = prefill_end_ms + decode_ms(engine, work.timed_decodes, work.timed_tokens)


@kernel
def begin_work(engine: EngineRow, rank: RankRow, work: PassRow) -> None:
    """Clear the work row for a new pass; a rank that idles in a group pass leaves it so."""
    rank.passes += 1
    work.budget = engine.max_batched_tokens
    work.preempted = 0
    work.num_prefill = 0
    work.prefill_tokens = 0
    work.prefill_lengths = 0
    work.prefill_squares = 0
    work.prefix_tokens = 0
    work.prompt_ends = 0
    work.num_decode = 0
    work.decode_tokens = 0
    work.decode_squares = 0
    work.timed_decodes = 0
    work.timed_tokens = 0
    work.accept_forwards = 0
    work.accepted_tokens = 0
    work.start_effects = 0
    work.num_complete = 0
    work.admit_first = NONE
    work.admit_last = NONE
    work.signal_first = NONE
    work.signal_last = NONE
    work.signal_count = 0
    work.queued_new = 0
    work.queued_new_tokens = 0
    work.queued_new_squares = 0
    work.queued_decode = 0
    work.queued_decode_tokens = 0
    work.queued_decode_squares = 0


@kernel
def remaining_tokens(engine: EngineRow, seq: SeqRow) -> int:
    """Return how many tokens a sequence still generates; 0 means it is complete (§3)."""
    left = seq.max_output_tokens - seq.generated_tokens
    return max(0, min(left, engine.max_model_len - _length(seq)))


@kernel
def _length(seq: SeqRow) -> int:
    return seq.prompt_tokens + seq.generated_tokens


@kernel
def _is_prebuilt(seq: SeqRow) -> bool:
    """Return whether the whole prompt has KV (a running decode, an activated destination)."""
    return seq.computed_tokens >= seq.prompt_tokens and seq.covered_tokens >= seq.prompt_tokens


@kernel
def _earliest_prebuilt(waiting: QueueRow, seqs: Table[SeqRow]) -> int:
    """Return the activated destination that arrived first, or ``NONE``.

    The only one that may be admitted while destinations wait for blocks. It need not come first in
    the queue: preempted requests with later arrivals can have been put in front of it, and others
    in front of those (the reference's behaviour; engine-vllm-trtllm.md §4 says "first").
    """
    earliest = NONE
    s = waiting.first
    while s != NONE:
        if _is_prebuilt(seqs[s]) and (earliest == NONE or seqs[s].order < seqs[earliest].order):
            earliest = s
        s = seqs[s].next
    return earliest


@kernel
def _defers_prefill(
    engine: EngineRow, rank: RankRow, running: QueueRow, seqs: Table[SeqRow], wave: int
) -> bool:
    """Return whether the prefill cadence of a data-parallel group skips prefill now (§11)."""
    if engine.dp_size == 1 or wave % engine.prefill_interval == 0 or rank.is_capacity_bound == 1:
        return False
    s = running.first
    while s != NONE:
        if _is_prebuilt(seqs[s]):
            return True
        s = seqs[s].next
    return False


@kernel
def _cached_tokens(
    engine: EngineRow,
    rank: RankRow,
    seq: SeqRow,
    blocks: Table[BlockRow],
    contents: NDArray[np.int64],
) -> tuple[int, int]:
    """Return (cached tokens, of these in use) after the recompute rule (§5.4)."""
    length = _length(seq)
    hits, active = count_hits(engine, rank, seq, blocks, contents, length // engine.block_size)
    cached = hits * engine.block_size
    if seq.max_output_tokens > seq.generated_tokens:
        cached = min(cached, (length - 1) // engine.block_size * engine.block_size)
    return cached, min(active * engine.block_size, cached)


@kernel
def _admission_cost(
    engine: EngineRow,
    rank: RankRow,
    seq: SeqRow,
    blocks: Table[BlockRow],
    contents: NDArray[np.int64],
) -> int:
    """Return the cached tokens of a sequence that fits, else ``_COST_WAIT`` or ``_COST_REJECT``.

    The check covers the whole known sequence; evictable blocks count as free, also the ones that
    will be hit (§4.2).
    """
    need = blocks_for(_length(seq), engine.block_size)
    if seq.was_admitted == 0 and need > engine.num_blocks:
        return _COST_REJECT
    cached, active = _cached_tokens(engine, rank, seq, blocks, contents)
    if need - active // engine.block_size > engine.num_blocks - active_blocks(rank):
        return _COST_WAIT
    return cached


@kernel
def _schedule(
    engine: EngineRow,
    rank: RankRow,
    work: PassRow,
    waiting: QueueRow,
    running: QueueRow,
    seqs: Table[SeqRow],
    s: int,
    blocks: Table[BlockRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    contents: NDArray[np.int64],
    admission_cached: int,
) -> tuple[int, int]:
    """Give a sequence its share of the pass (§4.1).

    Args:
        engine: Role of the rank.
        rank: The rank.
        work: Sums of the pass.
        waiting: Its waiting queue.
        running: Its running queue.
        seqs: Sequence table.
        s: The sequence, in ``running``, or in ``waiting`` if it is to be admitted.
        blocks: Block table.
        arena: Free lists.
        entries: Block lists.
        contents: Identities of shared prompt blocks.
        admission_cached: Cached tokens of a sequence to admit, ``NONE`` for a running one.

    Returns:
        Outcome, and how many running sequences the pass must skip because preempted ones in front
        of this one moved the list (§4, fifo quirk).
    """
    seq = seqs[s]
    skip = 0
    cached = 0
    if seq.computed_tokens == 0:
        cached = admission_cached
        if cached == NONE:
            cached, _ = _cached_tokens(engine, rank, seq, blocks, contents)
    length = _length(seq)
    before = seq.computed_tokens + cached
    prompt_before = min(before, seq.prompt_tokens)
    prompt_left = seq.prompt_tokens - prompt_before
    left = max(0, length - before)
    if prompt_left > 0 and engine.chunked_prefill == 0 and prompt_left > work.budget:
        return _BLOCKED, skip
    tokens = min(left, work.budget)
    if tokens == 0 and left > 0:
        return _BLOCKED, skip
    after = before + tokens
    fits = True
    while after > seq.covered_tokens and not allocate(
        engine,
        rank,
        seq,
        blocks,
        arena,
        entries,
        contents,
        after,
        cached // engine.block_size,
    ):
        victim = running.first if engine.preempts_first == 1 else running.last
        if victim == NONE:
            fits = False
            break
        _preempt(engine, rank, work, waiting, running, seqs, victim, blocks, entries)
        if victim == s:
            return _SELF_PREEMPTED, skip
        if engine.preempts_first == 1:
            skip += 1
    if fits:
        seq.computed_tokens = after
    else:
        after = before
    if after == before and after < length:
        return _BLOCKED, skip
    make_resident(engine, rank, seq, blocks, arena, entries, contents, after)

    seq.stamp = rank.passes
    seq.pass_tokens = after - before
    seq.pass_prompt_tokens = max(0, min(after, seq.prompt_tokens) - prompt_before)
    seq.pass_prefix_tokens = prompt_before
    _count_work(engine, work, seq, 1)
    if admission_cached != NONE:
        remove_from_load(rank, seq)
        unlink(waiting, seqs, s)
        push_back(running, seqs, s)
        seq.status = SEQ_RUNNING
        seq.was_admitted = 1
        seq.reused_tokens = cached
        seq.admit_next = NONE
        if work.admit_first == NONE:
            work.admit_first = s
        else:
            seqs[work.admit_last].admit_next = s
        work.admit_last = s
        work.start_effects += 1
    return _SCHEDULED, skip


@kernel
def _count_work(engine: EngineRow, work: PassRow, seq: SeqRow, sign: int) -> None:
    """Add a scheduled sequence to the sums of the pass, or take it out (``sign`` -1)."""
    work.budget -= sign * seq.pass_tokens
    if seq.pass_prompt_tokens > 0:
        prompt = seq.prompt_tokens
        work.num_prefill += sign
        work.prefill_tokens += sign * seq.pass_tokens
        work.prefill_lengths += sign * prompt
        work.prefill_squares += sign * prompt * prompt
        work.prefix_tokens += sign * seq.pass_prefix_tokens
        work.prompt_ends += sign * (seq.pass_prefix_tokens + seq.pass_prompt_tokens)
    elif remaining_tokens(engine, seq) > 0:
        length = _length(seq)
        work.num_decode += sign
        work.decode_tokens += sign * length
        work.decode_squares += sign * length * length
    if remaining_tokens(engine, seq) == 0:
        work.num_complete += sign


@kernel
def _preempt(
    engine: EngineRow,
    rank: RankRow,
    work: PassRow,
    waiting: QueueRow,
    running: QueueRow,
    seqs: Table[SeqRow],
    victim: int,
    blocks: Table[BlockRow],
    entries: NDArray[np.int64],
) -> None:
    """Take all blocks from a running sequence and put it in front of the queue (§6.4)."""
    seq = seqs[victim]
    if seq.stamp == rank.passes:
        # Its blocks that became resident in this pass stay so (rulings.md 6).
        _count_work(engine, work, seq, -1)
        seq.stamp = NONE
    unlink(running, seqs, victim)
    seq.status = SEQ_WAITING
    seq.computed_tokens = 0
    release_blocks(rank, seq, blocks, entries)
    push_front(waiting, seqs, victim)
    add_to_load(rank, seq)
    rank.preemptions += 1
    rank.capacity_generation += 1
    work.preempted = 1
    work.start_effects += 1


@kernel
def _emit(
    engine: EngineRow,
    rank: RankRow,
    work: PassRow,
    running: QueueRow,
    seqs: Table[SeqRow],
    blocks: Table[BlockRow],
    entries: NDArray[np.int64],
) -> None:
    """Let every running sequence whose KV is complete emit a token or end (§6.1, §6.2).

    Signals keep the order: ends without a token, then tokens in running order.
    """
    if work.num_complete > 0:
        s = running.first
        while s != NONE:
            following = seqs[s].next
            seq = seqs[s]
            if seq.computed_tokens >= _length(seq) and remaining_tokens(engine, seq) == 0:
                seq.signal_token = 0
                _finish(rank, running, seqs, s, blocks, entries)
                _append_signal(work, seqs, s)
            s = following
    s = running.first
    while s != NONE:
        following = seqs[s].next
        seq = seqs[s]
        length = _length(seq)
        if seq.computed_tokens >= length:
            decodes = seq.pass_prompt_tokens == 0
            if engine.role != ROLE_PREFILL:
                first_is_free = (
                    engine.role == ROLE_AGGREGATED and seq.generated_tokens == 0 and not decodes
                )
                if not first_is_free:
                    work.timed_decodes += 1
                    work.timed_tokens += length
                if decodes:
                    work.accept_forwards += 1
                    work.accepted_tokens += 1
            seq.generated_tokens += 1
            seq.signal_token = 1
            seq.signal_end = END_NONE
            if remaining_tokens(engine, seq) == 0:
                _finish(rank, running, seqs, s, blocks, entries)
            _append_signal(work, seqs, s)
        s = following


@kernel
def _finish(
    rank: RankRow,
    running: QueueRow,
    seqs: Table[SeqRow],
    s: int,
    blocks: Table[BlockRow],
    entries: NDArray[np.int64],
) -> None:
    """End a running sequence; a handoff source keeps its blocks until it is released."""
    seq = seqs[s]
    unlink(running, seqs, s)
    seq.signal_end = END_COMPLETED
    rank.capacity_generation += 1
    if seq.is_source == 1:
        seq.status = SEQ_HELD
    else:
        seq.status = SEQ_ENDED
        release_blocks(rank, seq, blocks, entries)


@kernel
def _append_signal(work: PassRow, seqs: Table[SeqRow], s: int) -> None:
    """Put a sequence at the end of the pass's signals."""
    seqs[s].signal_next = NONE
    if work.signal_first == NONE:
        work.signal_first = s
    else:
        seqs[work.signal_last].signal_next = s
    work.signal_last = s
    work.signal_count += 1

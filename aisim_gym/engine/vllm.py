"""vLLM-style rank scheduler: one pass computes, admits, preempts, rejects and emits.

Rules: engine-vllm-trtllm.md §3, §4, §6. All decisions are made when the pass starts. Tokens,
ends and metrics become visible when it ends; until then they are stored as a list of signals, a
list of admissions and the sums in its :class:`PassRow`.

TensorRT-LLM uses the same pass with another admission rule and without preemption. A pass emits
either one token per request or speculative bursts (:mod:`~aisim_gym.engine.bursts`). Both
variations are kernels passed to :func:`run_block_pass`.
"""

from collections.abc import Callable
from typing import NamedTuple

from aisim_gym.engine.backend import Backend, RankTables
from aisim_gym.engine.block_commands import (
    accept_destination,
    activate_destination,
    block_demand,
    block_list_size,
    cancel,
    command_demand,
    finish_group,
    gauge_blocks,
    node_demand,
    reservation_demand,
    reserve_destination,
    submit,
)
from aisim_gym.engine.bursts import emit_bursts
from aisim_gym.engine.emission import (
    append_admission,
    append_signal,
    begin_work,
    emit_tokens,
    seq_length,
)
from aisim_gym.engine.kv_pool import (
    active_blocks,
    allocate,
    blocks_for,
    count_hits,
    make_resident,
)
from aisim_gym.engine.preemption import count_work, preempt, victim
from aisim_gym.engine.queue_load import copy_load, remove_from_load
from aisim_gym.engine.seq_queue import push_back, queue_of, unlink
from aisim_gym.engine.steady_decode import (
    advance_decodes,
    join_decodes,
    rows_for_decodes,
    steady_passes,
)
from aisim_gym.engine.tables import (
    END_REJECTED,
    NONE,
    PENDING,
    PREEMPT_FIRST,
    ROLE_DECODE,
    ROLE_PREFILL,
    RUNNING,
    SEQ_ENDED,
    SEQ_RUNNING,
    WAITING,
    EngineRow,
    PassRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.engine.timing import cached_decode_ms, cached_prefill_ms
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table

ADMISSION_REJECTED, ADMISSION_WAITS = -2, -1
"""Results of an admission rule other than a number of cached tokens."""

_SCHEDULED, _BLOCKED, _SELF_PREEMPTED = 0, 1, 2


@kernel
def run_block_pass(
    t: RankTables,
    engine: EngineRow,
    rank: RankRow,
    work: PassRow,
    now_ms: float,
    wave: int,
    admission_cost: Callable[..., int],
    emit: Callable[..., None],
) -> None:
    """Start a pass on an idle rank (schedule, admit, emit) and fill ``work``, also ``end_ms``.

    Args:
        t: Shared tables; must have enough free block rows.
        engine: Role of the rank.
        rank: Modified in place, as are all tables.
        work: Sums and lists of this pass.
        now_ms: Start of the pass.
        wave: Ordinal of this group pass since the worker was last drained (§11).
        admission_cost: ``(t, engine, rank, seq)``: cached tokens of a sequence that may be
            admitted, or ``ADMISSION_...``.
        emit: :func:`~aisim_gym.engine.emission.emit_tokens` or
            :func:`~aisim_gym.engine.bursts.emit_bursts`.
    """
    seqs = t.seqs
    waiting = t.queues[queue_of(rank.id, WAITING)]
    running = t.queues[queue_of(rank.id, RUNNING)]
    pending = t.queues[queue_of(rank.id, PENDING)]
    begin_work(engine, rank, work)
    defer = _defers_prefill(engine, rank, running, seqs, wave)

    s = running.first
    while s != NONE and work.budget > 0:
        if defer and not is_prebuilt(seqs[s]):
            s = seqs[s].next
            continue
        following = seqs[s].next
        outcome, skip = _schedule(t, engine, rank, work, s, NONE)
        if outcome == _BLOCKED:
            break
        if outcome == _SCHEDULED:
            s = seqs[s].next
        else:  # it preempted itself, being last (lifo) or first (fifo) in the list
            s = following if engine.preemption == PREEMPT_FIRST else NONE
        while skip > 0 and s != NONE:
            s = seqs[s].next
            skip -= 1

    only_prebuilt = pending.count > 0
    rejected_first = NONE
    rejected_last = NONE
    while not work.preempted and running.count < engine.max_seqs:
        s = _earliest_prebuilt(waiting, seqs) if only_prebuilt else waiting.first
        if s == NONE:
            break
        seq = seqs[s]
        cached = seq.prompt_tokens if is_prebuilt(seq) else admission_cost(t, engine, rank, seq)
        if cached == ADMISSION_REJECTED or seq.prompt_tokens >= engine.max_model_len:
            remove_from_load(rank, seq)
            unlink(waiting, seqs, s)
            seq.status = SEQ_ENDED
            seq.signal_tokens = 0
            seq.signal_end = END_REJECTED
            seq.signal_next = NONE
            if rejected_first == NONE:
                rejected_first = s
            else:
                seqs[rejected_last].signal_next = s
            rejected_last = s
            continue
        if cached == ADMISSION_WAITS:
            break
        if defer and seq_length(seq) - cached > 1:
            break
        budget = work.budget
        outcome, skip = _schedule(t, engine, rank, work, s, cached)
        if outcome != _SCHEDULED:
            break
        if budget == 0 and work.budget == budget:
            break

    if not defer and not work.preempted:
        rank.is_capacity_bound = bool(waiting.count > 0)

    emit(t, engine, rank, work)
    while rejected_first != NONE:
        s = rejected_first
        rejected_first = seqs[s].signal_next
        append_signal(work, seqs, s)

    copy_load(rank, work)
    pool = 0 if engine.role == ROLE_PREFILL else 1
    prefill_end_ms = now_ms + cached_prefill_ms(
        engine,
        t.timing_grids,
        t.prefill_times_ms[pool],
        0 if engine.role == ROLE_DECODE else work.num_prefill,
        work.prompt_ends,
        work.prefix_tokens,
    )
    work.end_ms = prefill_end_ms
    if work.timed_decodes > 0:
        work.end_ms += cached_decode_ms(
            engine,
            t.timing_grids,
            t.decode_times_ms[pool],
            work.timed_decodes,
            work.timed_tokens,
        )


@kernel
def is_prebuilt(seq: SeqRow) -> bool:
    """Return whether the whole prompt has KV (a running decode, an activated destination)."""
    return seq.computed_tokens >= seq.prompt_tokens and seq.covered_tokens >= seq.prompt_tokens


@kernel
def _earliest_prebuilt(waiting: QueueRow, seqs: Table[SeqRow]) -> int:
    """Return the activated destination that arrived first, or ``NONE``.

    Only this one may be admitted while destinations wait for blocks. It is not necessarily first in
    the queue: preempted requests with later arrivals may be in front of it, and others in front of
    those (the reference's behaviour; engine-vllm-trtllm.md §4 says "first").
    """
    earliest = NONE
    s = waiting.first
    while s != NONE:
        if is_prebuilt(seqs[s]) and (earliest == NONE or seqs[s].order < seqs[earliest].order):
            earliest = s
        s = seqs[s].next
    return earliest


@kernel
def _defers_prefill(
    engine: EngineRow, rank: RankRow, running: QueueRow, seqs: Table[SeqRow], wave: int
) -> bool:
    """Return whether the prefill cadence of a data-parallel group defers prefill now (§11)."""
    if engine.dp_size == 1 or wave % engine.prefill_interval == 0 or rank.is_capacity_bound:
        return False
    s = running.first
    while s != NONE:
        if is_prebuilt(seqs[s]):
            return True
        s = seqs[s].next
    return False


@kernel
def cached_tokens(t: RankTables, engine: EngineRow, rank: RankRow, seq: SeqRow) -> tuple[int, int]:
    """Return (cached tokens, cached tokens in use) after the recompute rule (§5.4).

    vLLM recomputes at least the last token of a sequence that continues to generate, and one more
    block with speculative decoding. TensorRT-LLM recomputes nothing.
    """
    length = seq_length(seq)
    hits, active = count_hits(t, engine, rank, seq, length // engine.block_size)
    cached = hits * engine.block_size
    if engine.recomputes_last and seq.max_output_tokens > seq.generated_tokens:
        cached = min(cached, (length - 1) // engine.block_size * engine.block_size)
        if engine.draft_tokens > 0 and cached >= engine.block_size:
            cached -= engine.block_size
    return cached, min(active * engine.block_size, cached)


@kernel
def admission_cost(t: RankTables, engine: EngineRow, rank: RankRow, seq: SeqRow) -> int:
    """Return the cached tokens of a sequence that fits now, or ``ADMISSION_...`` (§4.2).

    The check covers the whole known sequence. Evictable blocks count as free, including those that
    the sequence will reuse.
    """
    need = blocks_for(seq_length(seq), engine.block_size)
    if not seq.was_admitted and need > engine.num_blocks:
        return ADMISSION_REJECTED
    cached, active = cached_tokens(t, engine, rank, seq)
    if need - active // engine.block_size > engine.num_blocks - active_blocks(rank):
        return ADMISSION_WAITS
    return cached


@kernel
def _decodes_in_place(engine: EngineRow, seq: SeqRow) -> bool:
    """Return whether a running sequence only computes its last token and has a block for it."""
    length = seq_length(seq)
    return bool(
        seq.computed_tokens == length - 1
        and seq.computed_tokens >= seq.prompt_tokens
        and seq.computed_tokens > 0
        and seq.computed_tokens == seq.covered_tokens
        and length <= (seq.resident_blocks + seq.private_blocks) * engine.block_size
    )


@kernel
def _schedule_decode(
    t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow, seq: SeqRow
) -> None:
    """Schedule the last token of a sequence: the fast path of :func:`_schedule`."""
    length = seq_length(seq)
    seq.computed_tokens = length
    seq.covered_tokens = length
    if length >= (seq.resident_blocks + 1) * engine.block_size:
        make_resident(t, engine, rank, seq, length)
    seq.stamp = rank.passes
    seq.pass_tokens = 1
    seq.pass_prompt_tokens = 0
    seq.pass_prefix_tokens = seq.prompt_tokens
    count_work(engine, work, seq, 1)


@kernel
def _schedule(
    t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow, s: int, admission_cached: int
) -> tuple[int, int]:
    """Schedule the tokens that a sequence computes in the pass (§4.1).

    Args:
        t: Shared tables.
        engine: Role of the rank.
        rank: The rank.
        work: Sums of the pass.
        s: The sequence: running, or waiting for admission.
        admission_cached: Cached tokens of a sequence to admit, ``NONE`` for a running one.

    Returns:
        Outcome, and the number of running sequences to skip because preempted ones in front of this
        one shifted the list (§4, fifo quirk).
    """
    seq = t.seqs[s]
    if admission_cached == NONE and _decodes_in_place(engine, seq):
        _schedule_decode(t, engine, rank, work, seq)
        return _SCHEDULED, 0
    waiting = t.queues[queue_of(rank.id, WAITING)]
    running = t.queues[queue_of(rank.id, RUNNING)]
    skip = 0
    cached = 0
    if seq.computed_tokens == 0:
        cached = admission_cached
        if cached == NONE:
            cached, _ = cached_tokens(t, engine, rank, seq)
    length = seq_length(seq)
    before = seq.computed_tokens + cached
    prompt_before = min(before, seq.prompt_tokens)
    prompt_left = seq.prompt_tokens - prompt_before
    left = max(0, length - before)
    if prompt_left > 0 and not engine.chunked_prefill and prompt_left > work.budget:
        return _BLOCKED, skip
    tokens = min(left, work.budget)
    if tokens == 0 and left > 0:
        return _BLOCKED, skip
    after = before + tokens
    fits = True
    while after > seq.covered_tokens and not allocate(
        t, engine, rank, seq, after, cached // engine.block_size
    ):
        v = victim(engine, running)
        if v == NONE:
            fits = False
            break
        preempt(t, engine, rank, work, v)
        if v == s:
            return _SELF_PREEMPTED, skip
        if engine.preemption == PREEMPT_FIRST:
            skip += 1
    if fits:
        seq.computed_tokens = after
    else:
        after = before
    if after == before and after < length:
        return _BLOCKED, skip
    make_resident(t, engine, rank, seq, after)

    seq.stamp = rank.passes
    seq.pass_tokens = after - before
    seq.pass_prompt_tokens = max(0, min(after, seq.prompt_tokens) - prompt_before)
    seq.pass_prefix_tokens = prompt_before
    count_work(engine, work, seq, 1)
    if admission_cached != NONE:
        remove_from_load(rank, seq)
        unlink(waiting, t.seqs, s)
        push_back(running, t.seqs, s)
        seq.status = SEQ_RUNNING
        append_admission(work, t.seqs, s, cached)
    return _SCHEDULED, skip


@kernel
def _output_limit(t: RankTables, engine: EngineRow, prompt_tokens: int, output_tokens: int) -> int:
    """Return the requested output tokens; vLLM never limits them."""
    return output_tokens


@kernel
def is_held_up(
    t: RankTables,
    engine: EngineRow,
    rank: RankRow,
    s: int,
    admission_cost: Callable[..., int],
) -> bool:
    """Return whether a waiting sequence cannot be admitted before blocks or slots are released."""
    seq = t.seqs[s]
    if is_prebuilt(seq) or seq.prompt_tokens >= engine.max_model_len:
        return False
    return bool(admission_cost(t, engine, rank, seq) == ADMISSION_WAITS)


class BlockPasses(NamedTuple):
    """The kernels of a block scheduler that depend on its admission rule."""

    run_pass: Callable[..., None]
    run_drafting_pass: Callable[..., None]
    steady_passes: Callable[..., int]


def passes_by(admission_cost: Callable[..., int]) -> BlockPasses:
    """Return the pass kernels of a block scheduler.

    Args:
        admission_cost: Its admission rule; see :func:`run_block_pass`.
    """

    @kernel
    def run_pass(
        t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow, now_ms: float, wave: int
    ) -> None:
        run_block_pass(t, engine, rank, work, now_ms, wave, admission_cost, emit_tokens)

    @kernel
    def run_drafting_pass(
        t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow, now_ms: float, wave: int
    ) -> None:
        if engine.draft_tokens > 0:
            run_block_pass(t, engine, rank, work, now_ms, wave, admission_cost, emit_bursts)
        else:  # only the other role of the fleet uses drafts
            run_block_pass(t, engine, rank, work, now_ms, wave, admission_cost, emit_tokens)

    @kernel
    def passes_ahead(t: RankTables, engine: EngineRow, rank: RankRow, last_entry: int) -> int:
        return int(steady_passes(t, engine, rank, last_entry, is_held_up, admission_cost))

    return BlockPasses(run_pass, run_drafting_pass, passes_ahead)


_PASSES = passes_by(admission_cost)

VLLM = Backend(
    reserves_first=False,
    has_tree=False,
    preempts=True,
    recomputes_last=True,
    output_limit=_output_limit,
    list_size=block_list_size,
    submit=submit,
    cancel=cancel,
    release_source=cancel,
    accept_destination=accept_destination,
    reserve_destination=reserve_destination,
    activate_destination=activate_destination,
    run_pass=_PASSES.run_pass,
    steady_passes=_PASSES.steady_passes,
    join_decodes=join_decodes,
    advance_decodes=advance_decodes,
    rows_for_decodes=rows_for_decodes,
    finish_group=finish_group,
    block_demand=block_demand,
    node_demand=node_demand,
    command_demand=command_demand,
    reservation_demand=reservation_demand,
    gauge_blocks=gauge_blocks,
)
VLLM_DRAFTING = VLLM._replace(run_pass=_PASSES.run_drafting_pass)

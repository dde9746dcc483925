"""Results of a pass: admissions, and signals with tokens and ends.

Rules: engine-vllm-trtllm.md §3, §6.1, §6.2.
"""

from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.kv_pool import release_blocks
from aisim_gym.engine.seq_queue import queue_of, unlink
from aisim_gym.engine.tables import (
    END_COMPLETED,
    END_NONE,
    NONE,
    RETRY_LATER,
    ROLE_AGGREGATED,
    ROLE_PREFILL,
    RUNNING,
    SEQ_ENDED,
    SEQ_HELD,
    EngineRow,
    PassRow,
    RankRow,
    SeqRow,
)
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table


@kernel
def begin_work(engine: EngineRow, rank: RankRow, work: PassRow) -> None:
    """Clear the work row for a new pass; it stays clear on a rank that idles in a group pass."""
    rank.passes += 1
    rank.steady_is_summed = False
    work.budget = engine.max_batched_tokens
    work.preempted = False
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
    work.cache_hit_tokens = 0
    work.cache_total_tokens = 0
    work.retry = RETRY_LATER
    work.is_undone = False
    work.ran_prefill = False
    work.ran_model = False


@kernel
def remaining_tokens(engine: EngineRow, seq: SeqRow) -> int:
    """Return the number of tokens a sequence still generates; 0 if it is complete (§3)."""
    left = seq.max_output_tokens - seq.generated_tokens
    return max(0, min(left, engine.max_model_len - seq_length(seq)))


@kernel
def seq_length(seq: SeqRow) -> int:
    """Return the number of prompt and generated tokens of a sequence."""
    return seq.prompt_tokens + seq.generated_tokens


@kernel
def emit_tokens(t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow) -> None:
    """Emit a token from, or end, every running sequence whose KV is complete (§6.1, §6.2).

    The order of signals is ends without a token, then tokens in running order. The arguments are
    those of :func:`~aisim_gym.engine.bursts.emit_bursts`, its speculative counterpart.
    """
    end_complete_seqs(t, engine, rank, work)
    seqs = t.seqs
    s = t.queues[queue_of(rank.id, RUNNING)].first
    while s != NONE:
        seq = seqs[s]
        following = seq.next
        length = seq_length(seq)
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
            seq.signal_tokens = 1
            seq.signal_end = END_NONE
            if remaining_tokens(engine, seq) == 0:
                finish_seq(t, rank, s)
            append_signal(work, seqs, s)
        s = following


@kernel
def end_complete_seqs(t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow) -> None:
    """End the running sequences with complete KV and no token left to generate."""
    if work.num_complete == 0:
        return
    s = t.queues[queue_of(rank.id, RUNNING)].first
    while s != NONE:
        seq = t.seqs[s]
        following = seq.next
        if seq.computed_tokens >= seq_length(seq) and remaining_tokens(engine, seq) == 0:
            seq.signal_tokens = 0
            finish_seq(t, rank, s)
            append_signal(work, t.seqs, s)
        s = following


@kernel
def finish_seq(t: RankTables, rank: RankRow, s: int) -> None:
    """End a running sequence; a handoff source keeps its blocks until it is released."""
    seq = t.seqs[s]
    unlink(t.queues[queue_of(rank.id, RUNNING)], t.seqs, s)
    seq.signal_end = END_COMPLETED
    rank.capacity_generation += 1
    if seq.is_source:
        seq.status = SEQ_HELD
    else:
        seq.status = SEQ_ENDED
        release_blocks(t, rank, seq, False)


@kernel
def append_signal(work: PassRow, seqs: Table[SeqRow], s: int) -> None:
    """Append a sequence to the signals of the pass."""
    seqs[s].signal_next = NONE
    if work.signal_first == NONE:
        work.signal_first = s
    else:
        seqs[work.signal_last].signal_next = s
    work.signal_last = s
    work.signal_count += 1


@kernel
def append_admission(work: PassRow, seqs: Table[SeqRow], s: int, reused_tokens: int) -> None:
    """Append a sequence to the admissions of the pass."""
    seq = seqs[s]
    seq.was_admitted = True
    seq.reused_tokens = reused_tokens
    seq.admit_next = NONE
    if work.admit_first == NONE:
        work.admit_first = s
    else:
        seqs[work.admit_last].admit_next = s
    work.admit_last = s
    work.start_effects += 1

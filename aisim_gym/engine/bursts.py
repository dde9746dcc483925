"""Speculative decoding of a block scheduler: one step yields a burst of tokens.

Rules: engine-vllm-trtllm.md §7.
"""

from aisim_gym.engine.acceptance import draw_accepted
from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.emission import (
    append_signal,
    end_complete_seqs,
    finish_seq,
    remaining_tokens,
    seq_length,
)
from aisim_gym.engine.kv_pool import blocks_for, make_resident, take_blocks
from aisim_gym.engine.preemption import preempt, victim
from aisim_gym.engine.seq_queue import queue_of
from aisim_gym.engine.tables import (
    END_NONE,
    NONE,
    ROLE_PREFILL,
    RUNNING,
    EngineRow,
    PassRow,
    RankRow,
    SeqRow,
)
from aisim_gym.kernel import kernel


@kernel
def emit_bursts(t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow) -> None:
    """Emit a burst of tokens from, or end, every running sequence whose KV is complete.

    Blocks for full bursts are reserved first, preempting sequences until they fit. The work of the
    preempted sequences in this pass still counts.
    """
    end_complete_seqs(t, engine, rank, work)
    reserved = _reserve(t, engine, rank, work)
    if reserved == NONE:
        return
    work.is_undone = False
    rank.reserved_blocks += reserved
    seqs = t.seqs
    s = t.queues[queue_of(rank.id, RUNNING)].first
    while s != NONE:
        seq = seqs[s]
        following = seq.next
        if _is_ready(engine, seq):
            length = seq_length(seq)
            accepted = 1
            if engine.role != ROLE_PREFILL:
                work.timed_decodes += 1
                work.timed_tokens += length
                accepted = draw_accepted(engine, rank, t.draws)
                if seq.pass_prompt_tokens == 0:
                    work.accept_forwards += 1
                    work.accepted_tokens += accepted
            tokens = min(accepted, remaining_tokens(engine, seq))
            fresh = blocks_for(length + tokens, engine.block_size) - blocks_for(
                length, engine.block_size
            )
            reserved -= fresh
            rank.reserved_blocks -= fresh
            rank.private_blocks += fresh
            seq.private_blocks += fresh
            seq.generated_tokens += tokens
            seq.computed_tokens = length + tokens - 1
            seq.covered_tokens = max(seq.covered_tokens, length + tokens)
            make_resident(t, engine, rank, seq, seq.computed_tokens)
            seq.signal_tokens = tokens
            seq.signal_end = END_NONE
            if remaining_tokens(engine, seq) == 0:
                finish_seq(t, rank, s)
            append_signal(work, seqs, s)
        s = following
    rank.reserved_blocks -= reserved


@kernel
def _is_ready(engine: EngineRow, seq: SeqRow) -> bool:
    return seq.computed_tokens >= seq_length(seq) and remaining_tokens(engine, seq) > 0


@kernel
def _reserve(t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow) -> int:
    """Reserve blocks for full bursts of all ready sequences; return their number or ``NONE``."""
    seqs = t.seqs
    running = t.queues[queue_of(rank.id, RUNNING)]
    while True:
        ready = 0
        fresh = 0
        s = running.first
        last_ready = NONE
        while s != NONE:
            seq = seqs[s]
            if _is_ready(engine, seq):
                ready += 1
                last_ready = s
                burst = 1 if engine.role == ROLE_PREFILL else engine.draft_tokens + 1
                length = seq_length(seq)
                after = length + min(burst, remaining_tokens(engine, seq))
                fresh += blocks_for(after, engine.block_size) - blocks_for(
                    length, engine.block_size
                )
            s = seq.next
        if ready == 0:
            return NONE
        if take_blocks(t, engine, rank, seqs[last_ready], 0, fresh):
            return fresh
        v = victim(engine, running)
        if v == NONE:
            return NONE
        seqs[v].stamp = NONE  # its work still counts
        preempt(t, engine, rank, work, v)
        work.is_undone = True

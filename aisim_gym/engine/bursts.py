"""Speculative decoding of a block scheduler: one step yields a burst of tokens.

Rules: engine-vllm-trtllm.md §7.
"""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.acceptance import draw_accepted
from aisim_gym.engine.emission import (
    append_signal,
    end_complete_seqs,
    finish_seq,
    remaining_tokens,
    seq_length,
)
from aisim_gym.engine.kv_pool import blocks_for, make_resident, take_blocks
from aisim_gym.engine.preemption import preempt, victim
from aisim_gym.engine.tables import (
    END_NONE,
    NONE,
    ROLE_PREFILL,
    ArenaRow,
    BlockRow,
    EngineRow,
    PassRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table


@kernel
def emit_bursts(
    engine: EngineRow,
    rank: RankRow,
    work: PassRow,
    waiting: QueueRow,
    running: QueueRow,
    seqs: Table[SeqRow],
    blocks: Table[BlockRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    contents: NDArray[np.int64],
    draws: NDArray[np.int64],
) -> None:
    """Let every running sequence whose KV is complete emit a burst of tokens or end.

    Blocks for full bursts are set aside first; sequences are preempted until they fit, and what the
    preempted ones did in this pass still counts.
    """
    end_complete_seqs(engine, rank, work, running, seqs, blocks, entries)
    reserved = _reserve(
        engine, rank, work, waiting, running, seqs, blocks, arena, entries, contents
    )
    if reserved == NONE:
        return
    work.is_undone = 0
    rank.reserved_blocks += reserved
    s = running.first
    while s != NONE:
        following = seqs[s].next
        seq = seqs[s]
        if _is_ready(engine, seq):
            length = seq_length(seq)
            accepted = 1
            if engine.role != ROLE_PREFILL:
                work.timed_decodes += 1
                work.timed_tokens += length
                accepted = draw_accepted(engine, rank, draws)
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
            make_resident(engine, rank, seq, blocks, arena, entries, contents, seq.computed_tokens)
            seq.signal_tokens = tokens
            seq.signal_end = END_NONE
            if remaining_tokens(engine, seq) == 0:
                finish_seq(rank, running, seqs, s, blocks, entries)
            append_signal(work, seqs, s)
        s = following
    rank.reserved_blocks -= reserved


@kernel
def _is_ready(engine: EngineRow, seq: SeqRow) -> bool:
    return seq.computed_tokens >= seq_length(seq) and remaining_tokens(engine, seq) > 0


@kernel
def _reserve(
    engine: EngineRow,
    rank: RankRow,
    work: PassRow,
    waiting: QueueRow,
    running: QueueRow,
    seqs: Table[SeqRow],
    blocks: Table[BlockRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    contents: NDArray[np.int64],
) -> int:
    """Make room for full bursts of all ready sequences; return the blocks, ``NONE`` without."""
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
        if take_blocks(engine, rank, seqs[last_ready], blocks, arena, entries, contents, 0, fresh):
            return fresh
        v = victim(engine, running)
        if v == NONE:
            return NONE
        seqs[v].stamp = NONE  # what it did still counts
        preempt(engine, rank, work, waiting, running, seqs, v, blocks, entries)
        work.is_undone = 1

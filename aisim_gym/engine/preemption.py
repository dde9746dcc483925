"""Preemption in a block scheduler: victim choice and accounting of the pass.

Rule: engine-vllm-trtllm.md §6.4.
"""

from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.emission import remaining_tokens, seq_length
from aisim_gym.engine.kv_pool import release_blocks
from aisim_gym.engine.queue_load import add_to_load
from aisim_gym.engine.seq_queue import push_front, queue_of, unlink
from aisim_gym.engine.tables import (
    NONE,
    PREEMPT_FIRST,
    PREEMPT_NONE,
    RUNNING,
    SEQ_WAITING,
    WAITING,
    EngineRow,
    PassRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.kernel import kernel


@kernel
def victim(engine: EngineRow, running: QueueRow) -> int:
    """Return the running sequence to preempt, or ``NONE`` if there is none or preemption is off."""
    if engine.preemption == PREEMPT_NONE:
        return NONE
    return int(running.first if engine.preemption == PREEMPT_FIRST else running.last)


@kernel
def count_work(engine: EngineRow, work: PassRow, seq: SeqRow, sign: int) -> None:
    """Add a scheduled sequence to the sums of the pass, or subtract it (``sign`` -1)."""
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
        length = seq_length(seq)
        work.num_decode += sign
        work.decode_tokens += sign * length
        work.decode_squares += sign * length * length
    if remaining_tokens(engine, seq) == 0:
        work.num_complete += sign


@kernel
def preempt(t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow, s: int) -> None:
    """Release all blocks of a running sequence and move it to the front of the queue.

    Its work in this pass is no longer counted. Blocks that became resident stay resident
    (rulings.md 6).
    """
    seq = t.seqs[s]
    if seq.stamp == rank.passes:
        count_work(engine, work, seq, -1)
        seq.stamp = NONE
    unlink(t.queues[queue_of(rank.id, RUNNING)], t.seqs, s)
    seq.status = SEQ_WAITING
    seq.computed_tokens = 0
    release_blocks(t, rank, seq, True)
    push_front(t.queues[queue_of(rank.id, WAITING)], t.seqs, s)
    add_to_load(rank, seq)
    rank.preemptions += 1
    rank.capacity_generation += 1
    work.preempted = True
    work.start_effects += 1

"""TensorRT-LLM-style rank scheduler: admission reserves a request's blocks up to its last token.

Rules: engine-vllm-trtllm.md §10. The pass itself is vLLM's. No request is ever preempted, and a
fully cached prompt is not recomputed (as set in the engine row).
"""

from aisim_gym.engine import block_commands
from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.block_commands import hold_reservation, next_destination, queue_destination
from aisim_gym.engine.kv_pool import active_blocks, blocks_for, take_blocks
from aisim_gym.engine.seq_queue import queue_of
from aisim_gym.engine.tables import (
    NONE,
    RUNNING,
    SEQ_RESERVED,
    UNLIMITED,
    WAITING,
    EngineRow,
    RankRow,
    SeqRow,
)
from aisim_gym.engine.vllm import (
    ADMISSION_REJECTED,
    ADMISSION_WAITS,
    VLLM,
    cached_tokens,
    passes_by,
)
from aisim_gym.kernel import kernel


@kernel
def output_limit(t: RankTables, engine: EngineRow, prompt_tokens: int, output_tokens: int) -> int:
    """Return the output tokens that fit the model length and, with the prompt, the pool."""
    limit = output_tokens
    if engine.max_model_len < UNLIMITED:
        limit = min(limit, max(0, engine.max_model_len - prompt_tokens))
    pool_tokens = engine.num_blocks * engine.block_size
    if prompt_tokens < pool_tokens:
        limit = min(limit, pool_tokens - prompt_tokens)
    return limit


@kernel
def admission_cost(t: RankTables, engine: EngineRow, rank: RankRow, seq: SeqRow) -> int:
    """Return the cached tokens of a sequence that fits to its last token, or ``ADMISSION_...``."""
    if not seq.was_admitted and _full_blocks(engine, seq) > engine.num_blocks:
        return ADMISSION_REJECTED
    cached, active = cached_tokens(t, engine, rank, seq)
    left = _full_blocks(engine, seq) - active // engine.block_size
    if left > _available_blocks(t, engine, rank):
        return ADMISSION_WAITS
    return cached


@kernel
def accept_destination(t: RankTables, engine: EngineRow, rank: RankRow, s: int) -> bool:
    """Queue a destination to reserve blocks; False if it can never complete on the rank."""
    seq = t.seqs[s]
    if seq.prompt_tokens >= engine.max_model_len:
        return False
    if _full_blocks(engine, seq) > engine.num_blocks:
        return False
    queue_destination(t, rank, s)
    return True


@kernel
def reserve_destination(t: RankTables, engine: EngineRow, rank: RankRow) -> int:
    """Try to reserve blocks for the first pending destination; return it on success.

    Its prompt takes fresh blocks, bypassing the cache, and its whole generation must fit.
    """
    s = next_destination(t, engine, rank)
    if s == NONE:
        return NONE
    seq = t.seqs[s]
    if _full_blocks(engine, seq) > _available_blocks(t, engine, rank):
        return NONE
    fresh = blocks_for(seq.prompt_tokens, engine.block_size)
    if not take_blocks(t, engine, rank, seq, 0, fresh):
        return NONE
    rank.promised_blocks += _full_blocks(engine, seq) - fresh
    hold_reservation(t, rank, s, fresh)
    return s


@kernel
def activate_destination(t: RankTables, engine: EngineRow, rank: RankRow, s: int) -> None:
    """Turn a reservation into a queued request, as vLLM does."""
    _forget_promise(engine, rank, t.seqs[s])
    block_commands.activate_destination(t, engine, rank, s)


@kernel
def cancel(t: RankTables, engine: EngineRow, rank: RankRow, s: int) -> None:
    """Remove a live sequence from an idle rank, as vLLM does."""
    if t.seqs[s].status == SEQ_RESERVED:
        _forget_promise(engine, rank, t.seqs[s])
    block_commands.cancel(t, engine, rank, s)


@kernel
def _full_blocks(engine: EngineRow, seq: SeqRow) -> int:
    """Return the number of blocks of a sequence at the end of its generation."""
    return blocks_for(seq.prompt_tokens + seq.max_output_tokens, engine.block_size)


@kernel
def _forget_promise(engine: EngineRow, rank: RankRow, seq: SeqRow) -> None:
    rank.promised_blocks -= _full_blocks(engine, seq) - seq.reserved_blocks


@kernel
def _blocks_left(engine: EngineRow, seq: SeqRow) -> int:
    """Return the number of blocks a sequence with blocks still needs to its last token."""
    return _full_blocks(engine, seq) - blocks_for(seq.covered_tokens, engine.block_size)


@kernel
def _available_blocks(t: RankTables, engine: EngineRow, rank: RankRow) -> int:
    """Return the number of blocks neither in use nor promised."""
    promised = 0
    s = t.queues[queue_of(rank.id, RUNNING)].first
    while s != NONE:
        promised += _blocks_left(engine, t.seqs[s])
        s = t.seqs[s].next
    available = max(0, max(0, engine.num_blocks - active_blocks(rank)) - promised)
    promised = rank.promised_blocks
    s = t.queues[queue_of(rank.id, WAITING)].first
    while s != NONE:
        if t.seqs[s].covered_tokens > 0:  # an activated destination
            promised += _blocks_left(engine, t.seqs[s])
        s = t.seqs[s].next
    return max(0, available - promised)


_PASSES = passes_by(admission_cost)

TRTLLM = VLLM._replace(
    preempts=False,
    recomputes_last=False,
    output_limit=output_limit,
    cancel=cancel,
    release_source=cancel,
    accept_destination=accept_destination,
    reserve_destination=reserve_destination,
    activate_destination=activate_destination,
    run_pass=_PASSES.run_pass,
    steady_passes=_PASSES.steady_passes,
)
TRTLLM_DRAFTING = TRTLLM._replace(run_pass=_PASSES.run_drafting_pass)

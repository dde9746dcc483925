"""SGLang admission: the waiting requests that a pass prefills, fully or partially.

Rules: engine-sglang.md §4 (steps 3, 5, 6), §5. The first request that does not fit blocks all
requests behind it.
"""

from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.emission import append_admission, seq_length
from aisim_gym.engine.kv_pool import blocks_for
from aisim_gym.engine.radix_pool import (
    cached_pages,
    commit_pages,
    cover_fresh,
    cover_more,
    free_pages,
)
from aisim_gym.engine.seq_queue import push_back, push_front, queue_of, unlink
from aisim_gym.engine.sglang_load import add_to_load, remove_from_load
from aisim_gym.engine.tables import (
    NONE,
    PREBUILT,
    ROLE_DECODE,
    RUNNING,
    SEQ_RUNNING,
    SEQ_WAITING,
    WAITING,
    EngineRow,
    PassRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.engine.timing import prefill_ms
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table


@kernel
def output_left(seq: SeqRow) -> int:
    """Return the number of tokens a sequence still generates."""
    return max(0, seq.max_output_tokens - seq.generated_tokens)


@kernel
def promote_destinations(t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow) -> None:
    """Move activated destinations to the running queue, in order, while slots are free."""
    prebuilt = t.queues[queue_of(rank.id, PREBUILT)]
    running = t.queues[queue_of(rank.id, RUNNING)]
    while running.count < engine.max_seqs and prebuilt.count > 0:
        s = prebuilt.first
        _start_running(rank, prebuilt, running, t.seqs, s)
        append_admission(work, t.seqs, s, 0)


@kernel
def admit_prefills(
    t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow, now_ms: float
) -> tuple[int, int]:
    """Admit waiting requests; store their sums and the end of the prefill in ``work``.

    Fully computed requests start to run. Partially computed ones return to the front of the queue
    and keep their pages.

    Returns:
        (number of requests admitted, first of them that runs or ``NONE``; the others follow it).
    """
    waiting = t.queues[queue_of(rank.id, WAITING)]
    running = t.queues[queue_of(rank.id, RUNNING)]
    if waiting.count == 0:
        return 0, NONE
    size = engine.block_size
    left_total = float((free_pages(engine, rank) + rank.evictable_blocks) * size) - _promised(
        engine, rank, running, t.seqs
    )
    left_input = engine.max_prefill_tokens
    left_chunk = engine.chunk_tokens
    stalled_last = running.last
    admitted = 0
    ends = 0
    prefixes = 0
    while running.count < engine.max_seqs and waiting.count > 0:
        s = waiting.first
        seq = t.seqs[s]
        is_first = seq.computed_tokens == 0
        start = _known_tokens(t, engine, rank, seq)
        length = seq_length(seq)
        missing = length - start
        if missing == 0 and not is_first:
            break
        tokens = missing
        reserve = min(output_left(seq), engine.clip_tokens)
        if _round_up(engine, missing) > left_chunk:
            tokens = min(left_chunk // size * size, missing)
            if tokens == 0:
                break
        if tokens < missing:
            reserve = 0
        charge = _round_up(engine, tokens)
        if charge + reserve >= left_total or charge > left_input or charge > left_chunk:
            break
        end = start + tokens
        prefix = start
        if is_first:
            pages = cover_fresh(t, engine, rank, seq, end, start // size)
            if pages == NONE:
                break
            prefix = pages * size
            append_admission(work, t.seqs, s, prefix)
            work.cache_hit_tokens += prefix
            work.cache_total_tokens += prefix
        elif not cover_more(t, engine, rank, seq, end):
            break
        seq.computed_tokens = end
        work.cache_total_tokens += end - prefix
        _count_prefill(work, seq, prefix, end)
        admitted += 1
        ends += end
        prefixes += prefix
        left_total -= charge + reserve
        left_input -= charge
        left_chunk -= charge
        _start_running(rank, waiting, running, t.seqs, s)
        if left_chunk <= 0:
            break
    _return_partial(t, engine, rank, waiting, running, stalled_last)
    count = 0 if engine.role == ROLE_DECODE else admitted
    work.end_ms = now_ms + prefill_ms(engine, t.timing_grids, count, ends, prefixes)
    return admitted, _after(running, t.seqs, stalled_last)


@kernel
def _round_up(engine: EngineRow, tokens: int) -> int:
    return blocks_for(tokens, engine.block_size) * engine.block_size


@kernel
def _promised(engine: EngineRow, rank: RankRow, running: QueueRow, seqs: Table[SeqRow]) -> float:
    """Return the tokens reserved for the output of running requests."""
    tokens = 0.0
    s = running.first
    while s != NONE:
        tokens += min(output_left(seqs[s]), engine.clip_tokens) * rank.reserve_ratio
        s = seqs[s].next
    return tokens


@kernel
def _known_tokens(t: RankTables, engine: EngineRow, rank: RankRow, seq: SeqRow) -> int:
    """Return the number of tokens with existing KV: computed earlier, or found in the cache."""
    if seq.computed_tokens > 0:
        return seq.computed_tokens
    useful = seq_length(seq)
    if seq.max_output_tokens > 0:
        useful -= 1  # recompute the last token to generate the next one
    pages = cached_pages(t, engine, rank, seq, useful // engine.block_size)
    return pages * engine.block_size


@kernel
def _count_prefill(work: PassRow, seq: SeqRow, prefix: int, end: int) -> None:
    """Add the tokens that a request computes to the sums of the pass."""
    if end == prefix:
        return
    prompt = seq.prompt_tokens
    work.num_prefill += 1
    work.prefill_tokens += end - prefix
    work.prefill_lengths += prompt
    work.prefill_squares += prompt * prompt
    work.prefix_tokens += prefix
    work.prompt_ends += end


@kernel
def _start_running(
    rank: RankRow, queue: QueueRow, running: QueueRow, seqs: Table[SeqRow], s: int
) -> None:
    remove_from_load(rank, seqs[s])
    unlink(queue, seqs, s)
    push_back(running, seqs, s)
    seqs[s].status = SEQ_RUNNING


@kernel
def _return_partial(
    t: RankTables,
    engine: EngineRow,
    rank: RankRow,
    waiting: QueueRow,
    running: QueueRow,
    stalled_last: int,
) -> None:
    """Return unfinished requests behind ``stalled_last`` to the waiting queue."""
    s = _after(running, t.seqs, stalled_last)
    while s != NONE:
        following = t.seqs[s].next
        seq = t.seqs[s]
        if seq.computed_tokens < seq_length(seq):
            commit_pages(t, engine, rank, seq)
            unlink(running, t.seqs, s)
            push_front(waiting, t.seqs, s)
            seq.status = SEQ_WAITING
            add_to_load(rank, seq)
        s = following


@kernel
def _after(queue: QueueRow, seqs: Table[SeqRow], s: int) -> int:
    """Return the sequence after ``s`` in a queue; the first one for ``NONE``."""
    return int(queue.first) if s == NONE else int(seqs[s].next)

"""SGLang decode steps: retract requests if pages are short, then all running requests emit.

Rules: engine-sglang.md §7, §9. Requests that end in a step keep their pages until all requests
have emitted.
"""

from aisim_gym.engine.acceptance import draw_accepted
from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.emission import append_signal, seq_length
from aisim_gym.engine.radix_pool import (
    commit_pages,
    finish_pages,
    fits,
    make_pages_free,
    missing_pages,
    own_pages,
    release_pages,
)
from aisim_gym.engine.seq_queue import push_back, queue_of, unlink
from aisim_gym.engine.sglang_admission import output_left
from aisim_gym.engine.sglang_load import add_to_load
from aisim_gym.engine.tables import (
    END_COMPLETED,
    END_NONE,
    NONE,
    ROLE_PREFILL,
    RUNNING,
    SEQ_ENDED,
    SEQ_HELD,
    SEQ_WAITING,
    WAITING,
    EngineRow,
    PassRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.engine.timing import decode_ms
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table

RETRACT_DECODE_STEPS = 20.0
"""Additional output tokens reserved per running request after a retraction."""


@kernel
def end_those_with_left(
    running: QueueRow, seqs: Table[SeqRow], work: PassRow, first: int, tokens: int
) -> int:
    """End the running requests from ``first`` on that generate 0 or 1 more tokens.

    Their last token needs no space in a page.

    Returns:
        The first of the remaining requests, or ``NONE``.
    """
    first_left = NONE
    s = first
    while s != NONE:
        following = seqs[s].next
        if output_left(seqs[s]) == tokens:
            seqs[s].generated_tokens += tokens
            _end(running, seqs, work, s, tokens)
        elif first_left == NONE:
            first_left = s
        s = following
    return first_left


@kernel
def decode(
    t: RankTables,
    engine: EngineRow,
    rank: RankRow,
    work: PassRow,
    now_ms: float,
    is_paused: bool,
) -> None:
    """Emit from all running requests, after retracting some if pages are short (§7, §9)."""
    running = t.queues[queue_of(rank.id, RUNNING)]
    end_those_with_left(running, t.seqs, work, running.first, 0)
    growth = _count_decodes(engine, work, running, t.seqs)
    retractions = 0
    while running.count > 1 and not fits(engine, rank, growth):
        growth -= _retract(t, engine, rank, work)
        retractions += 1
    has_room = make_pages_free(t, engine, rank, growth)
    if retractions > 0:
        rank.capacity_generation += 1
        rank.reserve_ratio = _estimated_ratio(running, t.seqs)
    elif work.num_decode > 0 or not is_paused:
        rank.reserve_ratio = max(rank.reserve_ratio - engine.ratio_decay, engine.min_ratio)
    if not has_room:
        nothing_else = work.start_effects == 0 and work.signal_count == 0
        work.is_undone = bool(nothing_else)
        return
    tokens = 0
    s = running.first
    while s != NONE:
        tokens += seq_length(t.seqs[s])
        s = t.seqs[s].next
    work.end_ms = now_ms + decode_ms(engine, t.timing_grids, running.count, tokens)
    s = running.first
    while s != NONE:
        following = t.seqs[s].next
        _emit_burst(t, engine, rank, work, running, s)
        s = following


@kernel
def _burst_tokens(engine: EngineRow, seq: SeqRow) -> int:
    """Return the maximum number of tokens of a decode step."""
    most = 1 if engine.role == ROLE_PREFILL else engine.draft_tokens + 1
    return min(most, output_left(seq))


@kernel
def _growth(engine: EngineRow, seq: SeqRow) -> int:
    """Return the number of pages a running request needs for its next decode step."""
    return missing_pages(engine, seq, seq_length(seq) + _burst_tokens(engine, seq))


@kernel
def _count_decodes(engine: EngineRow, work: PassRow, running: QueueRow, seqs: Table[SeqRow]) -> int:
    """Add the running requests to the sums of the pass; return the pages they need."""
    growth = 0
    s = running.first
    while s != NONE:
        length = seq_length(seqs[s])
        work.num_decode += 1
        work.decode_tokens += length
        work.decode_squares += length * length
        growth += _growth(engine, seqs[s])
        s = seqs[s].next
    return growth


@kernel
def _retract(t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow) -> int:
    """Return the running request with the least output to the queue and free its pages.

    Returns:
        Number of pages that its next step would have needed.
    """
    running = t.queues[queue_of(rank.id, RUNNING)]
    victim = running.first
    s = t.seqs[victim].next
    while s != NONE:
        if t.seqs[s].generated_tokens < t.seqs[victim].generated_tokens:
            victim = s
        s = t.seqs[s].next
    seq = t.seqs[victim]
    growth = _growth(engine, seq)
    release_pages(t, rank, seq)
    unlink(running, t.seqs, victim)
    push_back(t.queues[queue_of(rank.id, WAITING)], t.seqs, victim)
    seq.status = SEQ_WAITING
    add_to_load(rank, seq)
    work.start_effects += 1
    return growth


@kernel
def _estimated_ratio(running: QueueRow, seqs: Table[SeqRow]) -> float:
    """Return the fraction of their output that running requests reach after some more steps."""
    generated = 0
    limits = 0
    s = running.first
    while s != NONE:
        generated += seqs[s].generated_tokens
        limits += seqs[s].max_output_tokens
        s = seqs[s].next
    return min(
        1.0, (float(generated) + RETRACT_DECODE_STEPS * running.count) / (float(limits) + 1.0)
    )


@kernel
def _emit_burst(
    t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow, running: QueueRow, s: int
) -> None:
    """Emit the tokens of a running request; its complete pages move to the tree one by one."""
    seq = t.seqs[s]
    accepted = 1
    if engine.role != ROLE_PREFILL:
        accepted = draw_accepted(engine, rank, t.draws)
    work.accept_forwards += 1
    work.accepted_tokens += accepted
    tokens = min(accepted, output_left(seq))
    for _ in range(tokens):
        place_token(engine, rank, seq)
        if output_left(seq) > 0:
            commit_pages(t, engine, rank, seq)
    if output_left(seq) == 0:
        _end(running, t.seqs, work, s, tokens)
        return
    seq.signal_tokens = tokens
    seq.signal_end = END_NONE
    append_signal(work, t.seqs, s)


@kernel
def place_token(engine: EngineRow, rank: RankRow, seq: SeqRow) -> None:
    """Append a generated token to a sequence, taking a free page if its last one is full."""
    if seq.computed_tokens % engine.block_size == 0:
        own_pages(rank, seq, 1)
    seq.generated_tokens += 1
    seq.computed_tokens += 1


@kernel
def _end(running: QueueRow, seqs: Table[SeqRow], work: PassRow, s: int, tokens: int) -> None:
    """End a running request with its last tokens; it keeps its pages until all have emitted."""
    unlink(running, seqs, s)
    seqs[s].signal_tokens = tokens
    seqs[s].signal_end = END_COMPLETED
    append_signal(work, seqs, s)


@kernel
def finish_complete(t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow) -> None:
    """Release the pages of ended requests in order of their end; handoff sources keep theirs."""
    s = work.signal_first
    while s != NONE:
        seq = t.seqs[s]
        if seq.signal_end == END_COMPLETED and seq.is_source:
            seq.status = SEQ_HELD
        elif seq.signal_end == END_COMPLETED:
            finish_pages(t, engine, rank, seq)
            seq.status = SEQ_ENDED
            rank.capacity_generation += 1
        s = seq.signal_next

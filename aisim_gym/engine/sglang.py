"""SGLang-style rank scheduler: what one pass prefills or decodes, retracts, rejects and emits.

Rules: engine-sglang.md §4, §6-§10. A pass prefills or decodes, never both: while anything can be
admitted, running requests stall. Everything is decided when the pass starts; tokens, ends and
metrics are shown when it ends, so the pass leaves them behind in its :class:`PassRow` and in the
lists of signals and admissions that start there.
"""

from aisim_gym.engine.acceptance import draw_accepted
from aisim_gym.engine.backend import Backend, RankTables
from aisim_gym.engine.emission import append_signal, begin_work, seq_length
from aisim_gym.engine.queue_load import copy_load
from aisim_gym.engine.radix_pool import (
    commit_pages,
    finish_pages,
    fits,
    make_pages_free,
    missing_pages,
    own_pages,
    release_pages,
)
from aisim_gym.engine.seq_queue import push_back, unlink
from aisim_gym.engine.sglang_admission import admit_prefills, output_left, promote_destinations
from aisim_gym.engine.sglang_commands import (
    accept_destination,
    activate_destination,
    block_demand,
    cancel,
    gauge_blocks,
    list_size,
    node_demand,
    output_limit,
    release_source,
    reserve_destination,
    submit,
)
from aisim_gym.engine.sglang_load import add_to_load, remove_from_load
from aisim_gym.engine.sglang_lpm import sort_waiting
from aisim_gym.engine.tables import (
    END_COMPLETED,
    END_NONE,
    END_REJECTED,
    NONE,
    PENDING,
    PREBUILT,
    QUEUES_PER_RANK,
    RETRY_COUNTED,
    RETRY_EXHAUSTED,
    RETRY_FREE,
    ROLE_PREFILL,
    RUNNING,
    SEQ_ENDED,
    SEQ_HELD,
    SEQ_WAITING,
    UNLIMITED,
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
"""After a retraction, so many more output tokens per running request are set aside."""


@kernel
def run_pass(
    t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow, now_ms: float, wave: int
) -> None:
    """Start a pass on an idle rank; ``work`` is filled, ``end_ms`` too.

    Args:
        t: Shared tables; enough rows of blocks and nodes are free.
        engine: Role of the rank.
        rank: Modified, like the tables.
        work: Sums and lists of this pass.
        now_ms: Start of the pass.
        wave: Not used.
    """
    begin_work(engine, rank, work)
    work.end_ms = now_ms
    is_paused = rank.pause_rounds > 0
    ratio = rank.reserve_ratio
    rejected = _take_overlong(t, engine, rank)
    promote_destinations(t, engine, rank, work)
    if engine.sorts_by_prefix == 1:
        sort_waiting(t, engine, rank)
    admitted = 0
    fresh = NONE
    if not is_paused and _all_destinations_run(t, rank):
        admitted, fresh = admit_prefills(t, engine, rank, work, now_ms)
    if admitted > 0:
        _emit_first_tokens(t, engine, rank, work, fresh)
    else:
        _decode(t, engine, rank, work, now_ms, is_paused)
    _finish_complete(t, engine, rank, work)
    while rejected != NONE:
        following = t.seqs[rejected].signal_next
        append_signal(work, t.seqs, rejected)
        rejected = following
    copy_load(rank, work)
    work.ran_prefill = 1 if work.num_prefill > 0 else 0
    work.ran_model = 1 if work.num_prefill + work.num_decode > 0 else 0
    if is_paused:
        work.retry = RETRY_FREE
    elif rank.reserve_ratio != ratio:
        work.retry = RETRY_COUNTED
    else:
        work.retry = RETRY_EXHAUSTED


@kernel
def finish_group(
    t: RankTables,
    engine: EngineRow,
    ranks: Table[RankRow],
    passes: Table[PassRow],
    first_rank: int,
) -> None:
    """Count the rounds without prefill of a worker's ranks, after their passes (§10).

    A prefill on any of them starts the count for all. In a round in which nobody ran the model, the
    reservation ratio is reset.
    """
    if engine.prefill_pause == 0:
        return
    ran_prefill = 0
    ran_model = 0
    for r in range(first_rank, first_rank + engine.dp_size):
        ran_prefill = max(ran_prefill, passes[r].ran_prefill)
        ran_model = max(ran_model, passes[r].ran_model)
    for r in range(first_rank, first_rank + engine.dp_size):
        rank = ranks[r]
        if rank.pause_rounds > 0 and ran_model == 0:
            rank.reserve_ratio = engine.init_ratio
        if ran_prefill == 1:
            rank.pause_rounds = engine.prefill_pause
        else:
            rank.pause_rounds = max(0, rank.pause_rounds - 1)


@kernel
def _all_destinations_run(t: RankTables, rank: RankRow) -> bool:
    """Return whether no destination waits for pages or for a slot: only then others may prefill."""
    first_queue = QUEUES_PER_RANK * rank.id
    return bool(
        t.queues[first_queue + PREBUILT].count == 0 and t.queues[first_queue + PENDING].count == 0
    )


@kernel
def _take_overlong(t: RankTables, engine: EngineRow, rank: RankRow) -> int:
    """Take prompts that leave no room for output off the queue; return the first of their chain.

    Only those submitted since the last pass, at the end of the queue, can be such.
    """
    candidates = rank.new_seqs
    rank.new_seqs = 0
    if engine.max_model_len == UNLIMITED or candidates == 0:
        return NONE
    waiting = t.queues[QUEUES_PER_RANK * rank.id + WAITING]
    rejected = NONE
    s = waiting.last
    while s != NONE and candidates > 0:
        seq = t.seqs[s]
        previous = seq.previous
        if seq.prompt_tokens >= engine.max_model_len:
            remove_from_load(rank, seq)
            unlink(waiting, t.seqs, s)
            seq.status = SEQ_ENDED
            seq.signal_tokens = 0
            seq.signal_end = END_REJECTED
            seq.signal_next = rejected
            rejected = s
        candidates -= 1
        s = previous
    return rejected


@kernel
def _emit_first_tokens(
    t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow, fresh: int
) -> None:
    """Let the requests from ``fresh`` on, just prefilled, emit a token or end (§6).

    Signals keep the order: ends without a token, ends with one, then those that go on. These need
    a place for their token; if there is none for all of them, none emits.
    """
    running = t.queues[QUEUES_PER_RANK * rank.id + RUNNING]
    going_on = _end_those_with_left(running, t.seqs, work, fresh, 0)
    going_on = _end_those_with_left(running, t.seqs, work, going_on, 1)
    need = 0
    s = going_on
    while s != NONE:
        need += missing_pages(engine, t.seqs[s], seq_length(t.seqs[s]) + 1)
        s = t.seqs[s].next
    if not make_pages_free(t, engine, rank, need):
        return
    s = going_on
    while s != NONE:
        seq = t.seqs[s]
        _place_token(engine, rank, seq)
        commit_pages(t, engine, rank, seq)
        seq.signal_tokens = 1
        seq.signal_end = END_NONE
        append_signal(work, t.seqs, s)
        s = seq.next


@kernel
def _end_those_with_left(
    running: QueueRow, seqs: Table[SeqRow], work: PassRow, first: int, tokens: int
) -> int:
    """End the running requests from ``first`` on that generate 0 or 1 more tokens.

    Their last token needs no place here.

    Returns:
        The first of the others, or ``NONE``.
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
def _decode(
    t: RankTables,
    engine: EngineRow,
    rank: RankRow,
    work: PassRow,
    now_ms: float,
    is_paused: bool,
) -> None:
    """Let all running requests emit, after retracting some if there is no room (§7, §9)."""
    running = t.queues[QUEUES_PER_RANK * rank.id + RUNNING]
    _end_those_with_left(running, t.seqs, work, running.first, 0)
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
        work.is_undone = 1 if nothing_else else 0
        return
    tokens = 0
    s = running.first
    while s != NONE:
        tokens += seq_length(t.seqs[s])
        s = t.seqs[s].next
    work.end_ms = now_ms + decode_ms(engine, running.count, tokens)
    s = running.first
    while s != NONE:
        following = t.seqs[s].next
        _emit_burst(t, engine, rank, work, running, s)
        s = following


@kernel
def _burst_tokens(engine: EngineRow, seq: SeqRow) -> int:
    """Return how many tokens a decode step may yield."""
    most = 1 if engine.role == ROLE_PREFILL else engine.draft_tokens + 1
    return min(most, output_left(seq))


@kernel
def _growth(engine: EngineRow, seq: SeqRow) -> int:
    """Return the pages a running request needs for its next decode step."""
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
    """Queue the running request with the least output again, without its pages.

    Returns:
        The pages it would have needed for its next step.
    """
    running = t.queues[QUEUES_PER_RANK * rank.id + RUNNING]
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
    push_back(t.queues[QUEUES_PER_RANK * rank.id + WAITING], t.seqs, victim)
    seq.status = SEQ_WAITING
    add_to_load(rank, seq)
    work.start_effects += 1
    return growth


@kernel
def _estimated_ratio(running: QueueRow, seqs: Table[SeqRow]) -> float:
    """Return the share of their output that running requests will have after some more steps."""
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
    """Let a running request emit its tokens; its complete pages go to the tree one by one."""
    seq = t.seqs[s]
    accepted = 1
    if engine.role != ROLE_PREFILL:
        accepted = draw_accepted(engine, rank, t.draws)
    work.accept_forwards += 1
    work.accepted_tokens += accepted
    tokens = min(accepted, output_left(seq))
    for _ in range(tokens):
        _place_token(engine, rank, seq)
        if output_left(seq) > 0:
            commit_pages(t, engine, rank, seq)
    if output_left(seq) == 0:
        _end(running, t.seqs, work, s, tokens)
        return
    seq.signal_tokens = tokens
    seq.signal_end = END_NONE
    append_signal(work, t.seqs, s)


@kernel
def _place_token(engine: EngineRow, rank: RankRow, seq: SeqRow) -> None:
    """Append a generated token to a sequence, in a free page if its last one is full."""
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
def _finish_complete(t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow) -> None:
    """Give up the pages of requests that ended, in that order; handoff sources keep theirs."""
    s = work.signal_first
    while s != NONE:
        seq = t.seqs[s]
        if seq.signal_end == END_COMPLETED and seq.is_source == 1:
            seq.status = SEQ_HELD
        elif seq.signal_end == END_COMPLETED:
            finish_pages(t, engine, rank, seq)
            seq.status = SEQ_ENDED
            rank.capacity_generation += 1
        s = seq.signal_next


@kernel
def _steady_passes(t: RankTables, engine: EngineRow, rank: RankRow, last_entry: int) -> int:
    return 0


@kernel
def _advance_decodes(
    t: RankTables, engine: EngineRow, rank: RankRow, num_passes: int, last_entry: int
) -> None:
    pass


@kernel
def _end_decodes(t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow) -> None:
    pass


@kernel
def _rows_for_decodes(t: RankTables, engine: EngineRow, rank: RankRow, num_passes: int) -> int:
    return 0


SGLANG = Backend(
    reserves_first=True,
    has_tree=True,
    preempts=True,
    recomputes_last=False,
    output_limit=output_limit,
    list_size=list_size,
    submit=submit,
    cancel=cancel,
    release_source=release_source,
    accept_destination=accept_destination,
    reserve_destination=reserve_destination,
    activate_destination=activate_destination,
    run_pass=run_pass,
    steady_passes=_steady_passes,
    advance_decodes=_advance_decodes,
    end_decodes=_end_decodes,
    rows_for_decodes=_rows_for_decodes,
    finish_group=finish_group,
    block_demand=block_demand,
    node_demand=node_demand,
    gauge_blocks=gauge_blocks,
)

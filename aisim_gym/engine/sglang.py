"""SGLang-style rank scheduler: one pass prefills or decodes, retracts, rejects and emits.

Rules: engine-sglang.md §4, §6-§10. A pass either prefills or decodes: while any request can
be admitted, running requests stall. All decisions are made when the pass starts. Tokens, ends and
metrics become visible when it ends; until then they are stored in its :class:`PassRow` and in the
lists of signals and admissions that start there.
"""

from aisim_gym.engine.backend import Backend, RankTables
from aisim_gym.engine.block_commands import command_demand
from aisim_gym.engine.emission import append_signal, begin_work, seq_length
from aisim_gym.engine.queue_load import copy_load
from aisim_gym.engine.radix_pool import (
    commit_pages,
    make_pages_free,
    missing_pages,
)
from aisim_gym.engine.seq_queue import queue_of, unlink
from aisim_gym.engine.sglang_admission import admit_prefills, promote_destinations
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
    reservation_demand,
    reserve_destination,
    submit,
)
from aisim_gym.engine.sglang_decode import (
    decode,
    end_those_with_left,
    finish_complete,
    place_token,
)
from aisim_gym.engine.sglang_load import remove_from_load
from aisim_gym.engine.sglang_lpm import sort_waiting
from aisim_gym.engine.sglang_steady import advance_decodes, rows_for_decodes, steady_passes
from aisim_gym.engine.tables import (
    END_NONE,
    END_REJECTED,
    NONE,
    PENDING,
    PREBUILT,
    RETRY_COUNTED,
    RETRY_EXHAUSTED,
    RETRY_FREE,
    RUNNING,
    SEQ_ENDED,
    UNLIMITED,
    WAITING,
    EngineRow,
    PassRow,
    RankRow,
)
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table


@kernel
def run_pass(
    t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow, now_ms: float, wave: int
) -> None:
    """Start a pass on an idle rank and fill ``work``, including ``end_ms``.

    Args:
        t: Shared tables; must have enough free block and node rows.
        engine: Role of the rank.
        rank: Modified in place, as are the tables.
        work: Sums and lists of this pass.
        now_ms: Start of the pass.
        wave: Unused.
    """
    begin_work(engine, rank, work)
    work.end_ms = now_ms
    is_paused = rank.pause_rounds > 0
    ratio = rank.reserve_ratio
    rejected = _take_overlong(t, engine, rank)
    promote_destinations(t, engine, rank, work)
    if engine.sorts_by_prefix:
        sort_waiting(t, engine, rank)
    admitted = 0
    fresh = NONE
    if not is_paused and _all_destinations_run(t, rank):
        admitted, fresh = admit_prefills(t, engine, rank, work, now_ms)
    if admitted > 0:
        _emit_first_tokens(t, engine, rank, work, fresh)
    else:
        decode(t, engine, rank, work, now_ms, is_paused)
    finish_complete(t, engine, rank, work)
    while rejected != NONE:
        following = t.seqs[rejected].signal_next
        append_signal(work, t.seqs, rejected)
        rejected = following
    copy_load(rank, work)
    work.ran_prefill = bool(work.num_prefill > 0)
    work.ran_model = bool(work.num_prefill + work.num_decode > 0)
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
    """Count the prefill-free rounds of a worker's ranks, after their passes (§10).

    A prefill on any rank restarts the count for all. In a round in which no rank runs the model,
    the reservation ratio is reset.
    """
    if engine.prefill_pause == 0:
        return
    ran_prefill = False
    ran_model = False
    for r in range(first_rank, first_rank + engine.dp_size):
        ran_prefill = ran_prefill or passes[r].ran_prefill
        ran_model = ran_model or passes[r].ran_model
    for r in range(first_rank, first_rank + engine.dp_size):
        rank = ranks[r]
        if rank.pause_rounds > 0 and not ran_model:
            rank.reserve_ratio = engine.init_ratio
        if ran_prefill:
            rank.pause_rounds = engine.prefill_pause
        else:
            rank.pause_rounds = max(0, rank.pause_rounds - 1)


@kernel
def _all_destinations_run(t: RankTables, rank: RankRow) -> bool:
    """Return whether no destination waits for pages or a slot; only then may others prefill."""
    return bool(
        t.queues[queue_of(rank.id, PREBUILT)].count == 0
        and t.queues[queue_of(rank.id, PENDING)].count == 0
    )


@kernel
def _take_overlong(t: RankTables, engine: EngineRow, rank: RankRow) -> int:
    """Remove prompts too long for any output from the queue; return the first of their chain.

    Only requests submitted since the last pass, at the end of the queue, can be too long.
    """
    candidates = rank.new_seqs
    rank.new_seqs = 0
    if engine.max_model_len == UNLIMITED or candidates == 0:
        return NONE
    waiting = t.queues[queue_of(rank.id, WAITING)]
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
    """Emit a token from, or end, the just prefilled requests from ``fresh`` on (§6).

    The order of signals is ends without a token, ends with one, then continuing requests. A
    continuing request needs space in a page; unless all of them fit, none emits.
    """
    running = t.queues[queue_of(rank.id, RUNNING)]
    going_on = end_those_with_left(running, t.seqs, work, fresh, 0)
    going_on = end_those_with_left(running, t.seqs, work, going_on, 1)
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
        place_token(engine, rank, seq)
        commit_pages(t, engine, rank, seq)
        seq.signal_tokens = 1
        seq.signal_end = END_NONE
        append_signal(work, t.seqs, s)
        s = seq.next


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
    steady_passes=steady_passes,
    join_decodes=promote_destinations,
    advance_decodes=advance_decodes,
    rows_for_decodes=rows_for_decodes,
    finish_group=finish_group,
    block_demand=block_demand,
    node_demand=node_demand,
    command_demand=command_demand,
    reservation_demand=reservation_demand,
    gauge_blocks=gauge_blocks,
)

"""A forward pass of a worker: all its ranks together, from start to the effects of its end.

Rules: replay-runtime.md §4 (steps 2, 5), §5 (steps 3, 11), §6.4-6.6; engine-vllm-trtllm.md
§11, §13.
"""

from aisim_gym.engine.backend import block_demand, finish_group, node_demand, run_pass
from aisim_gym.engine.emission import begin_work
from aisim_gym.engine.fpm import write_fpm
from aisim_gym.engine.seq_queue import queue_of
from aisim_gym.engine.tables import (
    END_COMPLETED,
    END_NONE,
    END_REJECTED,
    NONE,
    PREBUILT,
    RETRY_COUNTED,
    RETRY_EXHAUSTED,
    RETRY_FREE,
    SEQ_HELD,
    WAITING,
)
from aisim_gym.fleet.events import push_pass_end, remove_pass_end
from aisim_gym.fleet.gauges import commit_gauges
from aisim_gym.fleet.handoff import (
    destination_reserved,
    finish_logical_request,
    handoff_failed,
    retry_reservation,
    source_held,
    wake_deferred,
)
from aisim_gym.fleet.request_seq import (
    conclude_request,
    drop_request_seq,
    end_request,
    record_admission_of,
)
from aisim_gym.fleet.room import (
    BREAKS,
    request_room_for_admissions,
    request_room_in_cache,
    request_rows,
)
from aisim_gym.fleet.rosters import append_worker, heap_pop, heap_push
from aisim_gym.fleet.stages import await_receipt, detokenize
from aisim_gym.fleet.steady import (
    cut_short_beside,
    end_decode,
    plan_decode,
    show_all_tokens,
    start_decode,
    sync_fleet,
)
from aisim_gym.fleet.tables import (
    DECODE,
    NUM_WINDOWS,
    PREFILL,
    ROSTER_DEFERRED,
    ROSTER_READY,
)
from aisim_gym.fleet.token_stream import (
    close_stream,
    log_pass,
    request_room_in_log,
    send_tokens,
)
from aisim_gym.fleet.worker_life import is_rank_startable, is_startable, refresh_worker
from aisim_gym.fleet.worker_ranks import ranks_of
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel
from aisim_gym.metrics.request_times import (
    REQUEST_COMPLETED,
    REQUEST_REJECTED,
    breaks_fit,
    elements_for_breaks,
)
from aisim_gym.metrics.traffic_window import SAMPLE_WINDOW, TICK_WINDOW, record_completion

STARTED_NOTHING, STARTED_PASS, NEEDS_ROOM, IS_LIVELOCKED = 0, 1, 2, 3

MAX_RETRIES = 1024
"""Maximum number of passes of a worker without effect at one instant (§6.4), or undone without
progress elsewhere in the fleet (rulings.md 2); beyond it a run is aborted."""


@kernel
def drive_pool(w: World, pool_id: int) -> int:
    """Start the pass of the smallest startable worker of a pool (§6.4).

    A zero-duration pass without effects is retried at the next call, after all other startable
    workers.

    Returns:
        ``STARTED_PASS`` if a pass with effects started: it is scheduled, or already complete, or
        left in ``resume.immediate_worker`` to be completed now. ``NEEDS_ROOM`` if a table must grow
        first. ``IS_LIVELOCKED`` if the pass of ``resume.livelocked_worker`` would repeat forever.
    """
    pool = w.pools[pool_id]
    deferred = w.rosters[ROSTER_DEFERRED + pool_id]
    if not w.resume.resumes_drive:
        pool.had_deferred = bool(pool.deferred_count > 0)
        for i in range(pool.deferred_count):
            w.workers[deferred[i]].is_deferred = False
            refresh_worker(w, deferred[i])
        pool.deferred_count = 0
    w.resume.resumes_drive = False
    ready = w.rosters[ROSTER_READY + pool_id]
    while pool.ready_count > 0:
        if not _request_room_for_pass(w, ready[0]):
            w.resume.resumes_drive = True
            return NEEDS_ROOM
        row = heap_pop(ready, pool.ready_count)
        pool.ready_count -= 1
        worker = w.workers[row]
        worker.is_queued_ready = False
        if not is_startable(w, row):
            continue
        steady_passes = plan_decode(w, row)
        if steady_passes == NONE:
            worker.is_queued_ready = True
            heap_push(ready, pool.ready_count, row)
            pool.ready_count += 1
            w.resume.resumes_drive = True
            return NEEDS_ROOM
        if steady_passes > 0:
            end_ms = start_decode(w, row, steady_passes)
            push_pass_end(w, row, end_ms)
            return STARTED_PASS
        has_effects = _start_pass(w, row)
        if w.resume.livelocked_worker != NONE and worker.pass_end_ms == w.clock.now_ms:
            return IS_LIVELOCKED
        if worker.pass_end_ms > w.clock.now_ms:
            worker.retries = 0
            push_pass_end(w, row, worker.pass_end_ms)
            return STARTED_PASS
        if has_effects or _shows_progress(w, row):
            worker.retries = 0
            w.resume.immediate_worker = row
            w.resume.immediate_effects = bool(has_effects)
            return STARTED_PASS
        # No signals: at most a reservation takes nodes, which node_demand of the pass includes.
        if complete_pass(w, row, False):
            worker.retries = 0
            refresh_worker(w, row)
            return STARTED_PASS
        if not is_startable(w, row):
            worker.retries = 0
            refresh_worker(w, row)
            continue
        hint = _retry_hint(w, row)
        if hint == RETRY_COUNTED:
            worker.retries += 1
        if worker.retries == MAX_RETRIES or (
            hint == RETRY_EXHAUSTED and not w.options.is_disaggregated
        ):
            w.resume.livelocked_worker = row
            return IS_LIVELOCKED
        if hint in (RETRY_FREE, RETRY_COUNTED):
            worker.is_queued_ready = True
            heap_push(ready, pool.ready_count, row)
            pool.ready_count += 1
            continue
        worker.retries = 0
        if not worker.is_deferred:
            worker.is_deferred = True
            cut_short_beside(w, row)
            append_worker(deferred, pool.deferred_count, row)
            pool.deferred_count += 1
    return STARTED_NOTHING


@kernel
def complete_immediate_pass(w: World) -> bool:
    """End the zero-duration pass that just started; False if a table must grow first."""
    row = w.resume.immediate_worker
    if not request_room_for_pass_end(w, row):
        return False
    w.resume.immediate_worker = NONE
    complete_pass(w, row, w.resume.immediate_effects)
    refresh_worker(w, row)
    return True


@kernel
def request_room_for_pass_end(w: World, row: int) -> bool:
    """Return whether the tables have room for the effects of a worker's pass end."""
    worker = w.workers[row]
    engine = w.engines[worker.pool]
    tokens = 0
    node_rows = 0
    # Steady passes have no signals yet: their tokens are in step, so they break no stream.
    for r in ranks_of(worker):
        tokens += w.passes[r].signal_count
        node_rows += node_demand(w, engine, w.ranks[r])
    if not breaks_fit(w.breaks, w.break_heads, tokens):
        return request_rows(w, BREAKS, elements_for_breaks(tokens))
    return request_room_in_cache(w, 0, node_rows)


@kernel
def end_pass(w: World, row: int) -> None:
    """End the pass of a worker at its due event; the tables must have room."""
    remove_pass_end(w, row)
    if w.workers[row].steady_passes > 0:
        _complete_pass(w, row, True, end_decode(w, row))
    else:
        complete_pass(w, row, True)
    refresh_worker(w, row)


@kernel
def complete_pass(w: World, row: int, shows_all: bool) -> bool:
    """End the pass in flight of a worker and publish what each rank did.

    Args:
        w: Modified in place; the caller refreshes the worker.
        row: The worker.
        shows_all: Publish every rank, otherwise only ranks that made progress.

    Returns:
        Whether anything was published.
    """
    return _complete_pass(w, row, shows_all, log_pass(w, row))


@kernel
def _complete_pass(w: World, row: int, shows_all: bool, entry: int) -> bool:
    worker = w.workers[row]
    worker.is_busy = False
    shown = False
    for r in ranks_of(worker):
        reserved = NONE
        if worker.pool == DECODE and w.options.is_disaggregated:
            reserved = retry_reservation(w, r)
        if shows_all or reserved != NONE or _rank_shows_progress(w, r):
            _publish_rank(w, row, r, entry)
            if reserved != NONE:
                destination_reserved(w, reserved)
            shown = True
        commit_gauges(w, r)
    return shown


@kernel
def _request_room_for_pass(w: World, row: int) -> bool:
    """Return whether block rows, events and the admission log suffice for a worker's next pass."""
    worker = w.workers[row]
    engine = w.engines[worker.pool]
    block_rows = 0
    node_rows = 0
    admissions = 0
    for r in ranks_of(worker):
        block_rows += block_demand(w, engine, w.ranks[r])
        node_rows += node_demand(w, engine, w.ranks[r])
        # A pass admits each queued sequence at most once, and no more than can run.
        queued = w.queues[queue_of(r, WAITING)].count
        queued += w.queues[queue_of(r, PREBUILT)].count
        admissions += min(queued, engine.max_seqs)
    if not request_room_in_cache(w, block_rows, node_rows):
        return False
    if worker.pool == DECODE and not request_room_in_log(w, row, 1):
        return False
    return request_room_for_admissions(w, admissions)


@kernel
def _start_pass(w: World, row: int) -> bool:
    """Run the pass of every rank with work; return whether a sequence was admitted or preempted."""
    worker = w.workers[row]
    engine = w.engines[worker.pool]
    now_ms = w.clock.now_ms
    show_all_tokens(w, row)
    worker.is_busy = True
    worker.pass_start_ms = now_ms
    worker.pass_end_ms = now_ms
    has_effects = False
    is_undone = False
    for r in ranks_of(worker):
        rank = w.ranks[r]
        work = w.passes[r]
        if not is_rank_startable(w, r):
            begin_work(engine, rank, work)
            continue
        run_pass(w, engine, rank, work, now_ms, worker.wave)
        worker.pass_end_ms = max(worker.pass_end_ms, work.end_ms)
        if work.start_effects > 0:
            has_effects = True
        s = work.admit_first
        while s != NONE:
            record_admission_of(w, worker.pool, s)
            s = w.seqs[s].admit_next
        if work.is_undone:
            is_undone = True
    if is_undone:
        sync_fleet(w)
        if worker.progress_seen != w.clock.progress:
            worker.progress_seen = w.clock.progress
            worker.undone_passes = 0
        worker.undone_passes += 1
    if worker.undone_passes >= MAX_RETRIES:
        w.resume.livelocked_worker = row
    finish_group(w, engine, w.ranks, w.passes, worker.first_rank)
    worker.wave += 1
    return has_effects


@kernel
def _retry_hint(w: World, row: int) -> int:
    """Return how to retry a zero-duration pass without effects, ``RETRY_...``."""
    worker = w.workers[row]
    hint = 0
    for r in ranks_of(worker):
        if hint == 0 or (w.passes[r].retry != 0 and w.passes[r].retry < hint):
            hint = w.passes[r].retry
    return int(hint)


@kernel
def _shows_progress(w: World, row: int) -> bool:
    worker = w.workers[row]
    for r in ranks_of(worker):
        if _rank_shows_progress(w, r):
            return True
    return False


@kernel
def _rank_shows_progress(w: World, r: int) -> bool:
    """Return whether a pass had an effect on a rank (§6.4); an empty batch has none."""
    work = w.passes[r]
    return bool(work.signal_count > 0 or work.num_prefill > 0 or work.num_decode > 0)


@kernel
def _publish_rank(w: World, row: int, r: int, entry: int) -> None:
    """Publish the results of a finished pass on one rank; ``entry`` is its token-log entry."""
    worker = w.workers[row]
    work = w.passes[r]
    now_ms = w.clock.now_ms
    is_decode = worker.pool == DECODE
    w.clock.committed_prefill_tokens += work.prefill_tokens
    w.clock.progress += work.signal_count
    pool = w.pools[worker.pool]
    pool.sample_hit_tokens += work.cache_hit_tokens
    pool.sample_total_tokens += work.cache_total_tokens
    if w.options.is_disaggregated:
        wake_deferred(w, r)
    if w.telemetry.collects_fpm:
        write_fpm(w.fpms[r], work, worker.pass_end_ms - worker.pass_start_ms)
        w.fpms[r].published_ms = now_ms
    if is_decode:
        for window in range(NUM_WINDOWS):
            w.traffic[window].accept_forwards += work.accept_forwards
            w.traffic[window].accepted_tokens += work.accepted_tokens
    s = work.signal_first
    while s != NONE:
        following = w.seqs[s].signal_next
        if is_decode:
            _process_client_signal(w, s, entry)
        elif w.seqs[s].signal_end == END_REJECTED:
            _reject_prefill(w, s)
        s = following
    if worker.pool == PREFILL:
        s = work.signal_first
        while s != NONE:
            following = w.seqs[s].signal_next
            if w.seqs[s].status == SEQ_HELD and w.seqs[s].signal_end == END_COMPLETED:
                w.seqs[s].signal_end = END_NONE
                source_held(w, w.seqs[s].request)
            s = following
    work.signal_first = NONE
    work.signal_count = 0


@kernel
def _process_client_signal(w: World, s: int, entry: int) -> None:
    """Send tokens and the end of a request to the client, through detokenization."""
    seq = w.seqs[s]
    request = seq.request
    row = w.requests[request]
    end = seq.signal_end
    received_ms = w.clock.now_ms
    if end != END_REJECTED:
        worker, tokens = int(w.ranks[seq.rank].worker), int(seq.signal_tokens)
        received_ms = detokenize(w, int(request), worker, tokens)
    if seq.signal_tokens > 0:
        send_tokens(w, s, entry, received_ms)
    if end == END_NONE:
        return
    if end == END_COMPLETED:
        close_stream(w, s)
    drop_request_seq(w, s)
    if received_ms > w.clock.now_ms:
        await_receipt(w, request, received_ms)
    else:
        status = REQUEST_COMPLETED if end == END_COMPLETED else REQUEST_REJECTED
        conclude_request(w, request, status)
    if end == END_COMPLETED:
        record_completion(w.traffic[TICK_WINDOW], row)
        if w.telemetry.is_on:
            record_completion(w.traffic[SAMPLE_WINDOW], row)
    if w.options.is_disaggregated:
        w.handoffs[request].decode_seq = NONE
        finish_logical_request(w, request)


@kernel
def _reject_prefill(w: World, s: int) -> None:
    """Reject a prompt that the prefill worker can never run, and clean up its handoff."""
    request = w.seqs[s].request
    drop_request_seq(w, s)
    end_request(w, request, REQUEST_REJECTED)
    w.handoffs[request].prefill_seq = NONE
    handoff_failed(w, request)

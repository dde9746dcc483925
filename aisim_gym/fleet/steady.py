"""Steady decode of a worker: many passes as one event.

While every rank of a worker either only decodes or is idle, the end times of its passes are known
in advance. They are appended to its token log at the start, and the worker gets a single event at
the end of the last pass. The effects of the passes are applied lazily, in three degrees:

* *touched*: a command is about to reach the worker (placement, reservation, activation, …). Steady
  decode ends with the pass in flight; if a pass ends now, the worker is idle.
* *synced*: the fleet is read (a tick, a sample, the end of a run). The effects of all ended passes
  become visible; the event stays.
* *ended*: the event is due. Sequences and blocks catch up, and the last pass ends like any other.

The results equal those of running pass by pass; ``options.fast_forwards`` selects the mode.
"""

import math

from aisim_gym.engine.backend import (
    advance_decodes,
    join_decodes,
    rows_for_decodes,
    steady_passes,
)
from aisim_gym.engine.duration import phase_ms
from aisim_gym.engine.emission import begin_work
from aisim_gym.engine.fpm import write_fpm
from aisim_gym.engine.queue_load import copy_load
from aisim_gym.engine.seq_queue import queue_of
from aisim_gym.engine.tables import (
    NONE,
    PENDING,
    RUNNING,
    TIMING_TABLE,
    WAITING,
)
from aisim_gym.engine.timing import cached_decode_ms, most_table_tokens
from aisim_gym.engine.timing_table import (
    between_edges_ms,
    bounded_ms,
    cell_at,
    cell_edges,
    cell_end,
    clamped,
)
from aisim_gym.errors import TableFullError
from aisim_gym.fleet.events import advance_pass_end, remove_pass_end
from aisim_gym.fleet.gauges import commit_gauges
from aisim_gym.fleet.request_seq import record_admission_of
from aisim_gym.fleet.room import request_room_in_cache
from aisim_gym.fleet.tables import DECODE, NUM_WINDOWS, PREFILL, ROSTER_LIVE, PoolRow
from aisim_gym.fleet.token_stream import request_room_in_log, show_tokens, start_stream
from aisim_gym.fleet.worker_life import is_rank_startable, refresh_worker
from aisim_gym.fleet.worker_ranks import ranks_of
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel
from aisim_gym.metrics.token_log import entry_row, free_entries
from aisim_gym.tables import IS_CHECKED

MAX_PASSES = 1024
"""Maximum number of passes planned at a time."""


@kernel
def plan_decode(w: World, row: int) -> int:
    """Return the number of steady decode passes an idle worker can run; ``NONE`` without room.

    A deferred worker retries at every instant, so no pass end may be skipped while there is one.
    """
    worker = w.workers[row]
    if (
        worker.pool != DECODE
        or not w.options.fast_forwards
        or _somebody_is_deferred(w.pools[PREFILL])
        or _somebody_is_deferred(w.pools[DECODE])
        or w.server_stages[DECODE].num_servers > 0
    ):
        return 0
    engine = w.engines[DECODE]
    last_entry = int(w.token_logs[row].next) - 1
    passes = MAX_PASSES
    # Gauges show allocations and releases immediately: a pass that ends requests stays an event.
    ends_apart = int(w.telemetry.is_on)
    for r in ranks_of(worker):
        if _reserves_next(w, r):
            return 0
        w.ranks[r].steady_seqs = 0
        if is_rank_startable(w, r):
            passes = min(passes, steady_passes(w, engine, w.ranks[r], last_entry) - ends_apart)
            if passes <= 0:
                return 0
    worker.steady_block_rows, worker.steady_node_rows = _rows_for_passes(w, row, passes)
    grants = w.arena.block_grant, w.arena.node_grant
    if not request_room_in_log(w, row, passes) or not request_room_in_cache(
        w, worker.steady_block_rows, worker.steady_node_rows
    ):
        return NONE
    if IS_CHECKED:  # of the pass that runs if no steady decode is possible
        w.arena.block_grant, w.arena.node_grant = grants
    return _write_ends(w, row, passes)


@kernel
def start_decode(w: World, row: int, passes: int) -> float:
    """Start the planned passes as one event; return when the last one ends."""
    worker = w.workers[row]
    engine = w.engines[worker.pool]
    worker.is_busy = True
    worker.steady_passes = passes
    worker.steady_start_ms = w.clock.now_ms
    worker.steady_entry = w.token_logs[row].next
    worker.steady_published = 0
    worker.steady_applied = 0
    w.arena.block_free_count -= worker.steady_block_rows  # set aside
    w.arena.node_free_count -= worker.steady_node_rows
    if IS_CHECKED:
        worker.steady_block_grant = worker.steady_block_rows
        worker.steady_node_grant = worker.steady_node_rows
    for r in ranks_of(worker):
        rank = w.ranks[r]
        work = w.passes[r]
        begin_work(engine, rank, work)
        if not is_rank_startable(w, r):
            rank.steady_tokens = 0
            rank.steady_squares = 0
            continue
        join_decodes(w, engine, rank, work)
        s = work.admit_first
        while s != NONE:
            start_stream(w, s, int(worker.steady_entry))
            record_admission_of(w, int(worker.pool), s)
            s = w.seqs[s].admit_next
        count = w.queues[queue_of(r, RUNNING)].count
        rank.is_capacity_bound = bool(w.queues[queue_of(r, WAITING)].count > 0)
        work.budget -= count
        work.num_decode = count
        work.timed_decodes = count
        work.accept_forwards = count
        work.accepted_tokens = count
        copy_load(rank, work)
    _put_in_flight(w, row, 1)
    return _end_ms(w, row, passes)


@kernel
def touch_worker(w: World, row: int) -> None:
    """Prepare a worker for a command: bring its busy state and its next event up to date."""
    worker = w.workers[row]
    if worker.steady_passes == 0:
        return
    ended = _count_ended(w, row, w.clock.now_ms)
    if ended > 0 and not w.resume.is_driven and _end_ms(w, row, ended) == w.clock.now_ms:
        _sync_worker(w, row, ended)
        _catch_up(w, row, ended)
        worker.is_busy = False
        remove_pass_end(w, row)
        refresh_worker(w, row)
        return
    _cut_short(w, row, ended)
    if w.telemetry.is_on:  # gauges include the allocations of the pass in flight
        _sync_worker(w, row, ended)
        _apply(w, row, ended + 1)


@kernel
def cut_short_all(w: World) -> None:
    """Turn every pass end into an event; all passes that start at this instant have started."""
    for i in range(w.pools[DECODE].live_count):
        row = int(w.rosters[ROSTER_LIVE + DECODE, i])
        if w.workers[row].steady_passes > 0:
            _cut_short(w, row, _count_ended(w, row, w.clock.now_ms))


@kernel
def cut_short_beside(w: World, deferred: int) -> None:
    """Turn every pass end into an event, because a worker has just been deferred.

    The deferred worker retries whenever another worker of its pool starts a pass, so workers after
    it that start a pass at this instant must actually start it.
    """
    is_decode = w.workers[deferred].pool == DECODE
    for i in range(w.pools[DECODE].live_count):
        row = int(w.rosters[ROSTER_LIVE + DECODE, i])
        if w.workers[row].steady_passes > 0:
            if is_decode and row > deferred:
                touch_worker(w, row)
            else:
                _cut_short(w, row, _count_ended(w, row, w.clock.now_ms))


@kernel
def end_decode(w: World, row: int) -> int:
    """End the steady decode of a worker; the caller completes its last pass, which ends now.

    Returns:
        The token-log entry of this pass.
    """
    worker = w.workers[row]
    passes = worker.steady_passes
    log = w.token_logs[row]
    _publish(w, row, passes - 1)
    log.next += 1
    _put_in_flight(w, row, passes)
    _catch_up(w, row, passes)
    worker.steady_stale_rows = True
    for r in ranks_of(worker):
        _sum_pass(w, r, passes)
        w.passes[r].signal_count = w.passes[r].num_decode
    return int(log.next) - 1


@kernel
def sync_fleet(w: World) -> None:
    """Publish the effects of all passes that have ended on all workers."""
    for i in range(w.pools[DECODE].live_count):
        row = int(w.rosters[ROSTER_LIVE + DECODE, i])
        if w.workers[row].steady_passes > 0:
            _sync_worker(w, row, _count_ended(w, row, w.clock.now_ms))
        else:
            show_all_tokens(w, row)


@kernel
def show_all_tokens(w: World, row: int) -> None:
    """Update the requests of a worker with all their visible tokens, if they are stale.

    During steady decode, requests are updated only at breaks in their streams. A pass outside
    steady decode updates them itself, so this function must run before it.
    """
    worker = w.workers[row]
    if not worker.steady_stale_rows:
        return
    worker.steady_stale_rows = False
    entry = int(w.token_logs[row].next) - 1
    fresh = 0
    if worker.steady_passes > 0:
        fresh = int(worker.steady_published - worker.steady_applied)
    for r in ranks_of(worker):
        s = w.queues[queue_of(r, RUNNING)].first
        while s != NONE:
            tokens = int(w.seqs[s].generated_tokens) + fresh
            if tokens > 0:
                show_tokens(w, s, tokens, entry)
            s = w.seqs[s].next


@kernel
def last_hidden_end_ms(w: World, until_ms: float) -> float:
    """Return the latest pass end up to a time that has no event; -inf if there is none."""
    last_ms = -math.inf
    for i in range(w.pools[DECODE].live_count):
        row = int(w.rosters[ROSTER_LIVE + DECODE, i])
        if w.workers[row].steady_passes > 0:
            ended = _count_ended(w, row, until_ms)
            if ended > 0:
                last_ms = max(last_ms, _end_ms(w, row, ended))
    return last_ms


@kernel
def _somebody_is_deferred(pool: PoolRow) -> bool:
    return bool(pool.deferred_count > 0 or pool.had_deferred)


@kernel
def _rows_for_passes(w: World, row: int, passes: int) -> tuple[int, int]:
    """Return the maximum number of block rows and node rows that the passes may take."""
    worker = w.workers[row]
    engine = w.engines[worker.pool]
    block_rows = 0
    node_rows = 0
    for r in ranks_of(worker):
        rows = rows_for_decodes(w, engine, w.ranks[r], passes)
        block_rows += rows[0]
        node_rows += rows[1]
    return block_rows, node_rows


@kernel
def _reserves_next(w: World, r: int) -> bool:
    """Return whether a rank, even if idle, may reserve for a destination at the next pass end."""
    rank = w.ranks[r]
    first = w.queues[queue_of(r, PENDING)].first
    return bool(
        first != NONE
        and not (rank.tried_seq == first and rank.tried_generation == rank.capacity_generation)
    )


@kernel
def _write_ends(w: World, row: int, passes: int) -> int:
    """Append the end times of the next passes to the token log.

    Returns:
        Number of passes before the first with zero duration.
    """
    worker = w.workers[row]
    engine = w.engines[worker.pool]
    log = w.token_logs[row]
    entries = w.log_entries
    if free_entries(log) < passes:
        raise TableFullError("log_entries")
    log_start, mask, entry = int(log.start), int(log.capacity) - 1, int(log.next)
    times_ms = w.decode_times_ms[worker.pool]
    start_ms = w.clock.now_ms
    if engine.dp_size == 1:
        if engine.timing == TIMING_TABLE:
            return _write_ends_by_table(w, row, passes)
        count = int(w.ranks[worker.first_rank].steady_seqs)
        tokens = int(w.ranks[worker.first_rank].steady_tokens)
        cap = most_table_tokens(engine)
        for n in range(passes):
            at = min(tokens, cap)
            pass_ms = times_ms[at] if at < len(times_ms) else 0.0
            if pass_ms == 0.0:
                pass_ms = cached_decode_ms(engine, w.timing_grids, times_ms, count, tokens)
            end_ms = start_ms + pass_ms
            if end_ms <= start_ms:
                return n
            entries[log_start + ((entry + n) & mask)].end_ms = end_ms
            start_ms = end_ms
            tokens += count
        return passes
    for n in range(passes):
        end_ms = start_ms
        for r in ranks_of(worker):
            count = int(w.ranks[r].steady_seqs)
            if count > 0:
                tokens = int(w.ranks[r].steady_tokens) + n * count
                pass_ms = cached_decode_ms(engine, w.timing_grids, times_ms, count, tokens)
                end_ms = max(end_ms, start_ms + pass_ms)
        if end_ms <= start_ms:
            return n
        entries[log_start + ((entry + n) & mask)].end_ms = end_ms
        start_ms = end_ms
    return passes


@kernel
def _write_ends_by_table(w: World, row: int, passes: int) -> int:
    """Append the end times for a worker with one rank and a timing table.

    From pass to pass the context grows by one and the active tokens by the number of sequences. The
    grid cell is searched only when the previous one no longer applies.
    """
    worker = w.workers[row]
    engine = w.engines[worker.pool]
    log = w.token_logs[row]
    entries = w.log_entries
    log_start, mask, entry = int(log.start), int(log.capacity) - 1, int(log.next)
    grids, grid = w.timing_grids, int(engine.decode_grid)
    rows, columns = int(engine.decode_rows), int(engine.decode_columns)
    clamps, floor_ms = engine.table_clamps, engine.decode_floor_ms
    speedup = engine.decode_speedup
    count = int(w.ranks[worker.first_rank].steady_seqs)
    tokens = int(w.ranks[worker.first_rank].steady_tokens)
    growth = 0.0 if engine.table_rows_are_seqs else float(count)
    x = float(count if engine.table_rows_are_seqs else tokens)
    y = float(tokens // count)
    edges = cell_edges(grids, grid, rows, columns, 0, 0)
    x_end, y_end = -math.inf, -math.inf
    start_ms = w.clock.now_ms
    for n in range(passes):
        if x >= x_end or y >= y_end:
            i, j = cell_at(grids, grid, rows, x), cell_at(grids, grid + rows, columns, y)
            edges = cell_edges(grids, grid, rows, columns, i, j)
            x_end = cell_end(grids, grid, rows, i)
            y_end = cell_end(grids, grid + rows, columns, j)
        if clamps:
            raw_ms = between_edges_ms(
                edges, clamped(grids, grid, rows, x), clamped(grids, grid + rows, columns, y)
            )
        else:
            raw_ms = between_edges_ms(edges, x, y)
        end_ms = start_ms + phase_ms(bounded_ms(raw_ms, floor_ms), speedup)
        if end_ms <= start_ms:
            return n
        entries[log_start + ((entry + n) & mask)].end_ms = end_ms
        start_ms = end_ms
        x += growth
        y += 1.0
    return passes


@kernel
def _end_ms(w: World, row: int, n: int) -> float:
    """Return the end of the ``n``-th pass of a worker's steady decode, or its start for n = 0."""
    worker = w.workers[row]
    if n == 0:
        return float(worker.steady_start_ms)
    return float(w.log_entries[entry_row(w.token_logs[row], worker.steady_entry + n - 1)].end_ms)


@kernel
def _count_ended(w: World, row: int, until_ms: float) -> int:
    """Return the number of ended passes of a worker's steady decode, excluding the last pass."""
    first = int(w.workers[row].steady_published)
    last = int(w.workers[row].steady_passes) - 1
    if first >= last or _end_ms(w, row, first + 1) > until_ms:
        return first
    if _end_ms(w, row, last) <= until_ms:
        return last
    first_ms, last_ms = _end_ms(w, row, first), _end_ms(w, row, last)
    # Passes take nearly equal time, so this estimate is at most a few passes off.
    ended = first + int((until_ms - first_ms) / (last_ms - first_ms) * (last - first))
    while _end_ms(w, row, ended) > until_ms:
        ended -= 1
    while _end_ms(w, row, ended + 1) <= until_ms:
        ended += 1
    return ended


@kernel
def _cut_short(w: World, row: int, ended: int) -> None:
    """End the steady decode of a worker with the pass in flight."""
    worker = w.workers[row]
    if ended + 1 < worker.steady_passes:
        worker.steady_passes = ended + 1
        advance_pass_end(w, row, _end_ms(w, row, ended + 1))


@kernel
def _put_in_flight(w: World, row: int, n: int) -> None:
    """Set the times of the ``n``-th pass as those of the pass in flight."""
    worker = w.workers[row]
    worker.pass_start_ms = _end_ms(w, row, n - 1)
    worker.pass_end_ms = _end_ms(w, row, n)


@kernel
def _publish(w: World, row: int, passes: int) -> None:
    """Count the tokens and accepted tokens of the first ``passes`` passes."""
    worker = w.workers[row]
    fresh = passes - worker.steady_published
    w.token_logs[row].next += fresh
    worker.steady_published = passes
    for r in ranks_of(worker):
        tokens = fresh * w.passes[r].num_decode
        w.clock.progress += tokens
        for window in range(NUM_WINDOWS):
            w.traffic[window].accept_forwards += tokens
            w.traffic[window].accepted_tokens += tokens


@kernel
def _sync_worker(w: World, row: int, passes: int) -> None:
    """Publish the effects of the first ``passes`` passes; another pass is in flight."""
    worker = w.workers[row]
    if passes <= worker.steady_published:
        show_all_tokens(w, row)
        return
    _publish(w, row, passes)
    _put_in_flight(w, row, passes)
    wall_ms = worker.pass_end_ms - worker.pass_start_ms
    if w.telemetry.is_on:
        _apply(w, row, passes)
    for r in ranks_of(worker):
        _sum_pass(w, r, passes)
        if w.telemetry.collects_fpm:
            write_fpm(w.fpms[r], w.passes[r], wall_ms)
            w.fpms[r].published_ms = worker.pass_end_ms
        commit_gauges(w, r)
    worker.steady_stale_rows = True
    show_all_tokens(w, row)
    if passes < worker.steady_passes:
        _put_in_flight(w, row, passes + 1)


@kernel
def _sum_pass(w: World, r: int, n: int) -> None:
    """Set the batch sums of a rank to those of the ``n``-th pass."""
    rank = w.ranks[r]
    work = w.passes[r]
    before = n - 1
    count = work.num_decode
    work.decode_tokens = rank.steady_tokens + before * count
    work.decode_squares = rank.steady_squares + before * (2 * rank.steady_tokens + before * count)
    work.timed_tokens = work.decode_tokens


@kernel
def _apply(w: World, row: int, passes: int) -> None:
    """Apply the first ``passes`` passes to sequences and blocks."""
    worker = w.workers[row]
    engine = w.engines[worker.pool]
    last_entry = int(w.token_logs[row].next) - 1
    fresh = passes - int(worker.steady_applied)
    worker.steady_applied = passes
    if IS_CHECKED:
        _swap_grants(w, row)
    for r in ranks_of(worker):
        advance_decodes(w, engine, w.ranks[r], w.passes[r], fresh, last_entry)
    if IS_CHECKED:
        _swap_grants(w, row)


@kernel
def _swap_grants(w: World, row: int) -> None:
    """Exchange the block grant of the next step with the one reserved for a worker."""
    worker, arena = w.workers[row], w.arena
    worker.steady_block_grant, arena.block_grant = arena.block_grant, worker.steady_block_grant
    worker.steady_node_grant, arena.node_grant = arena.node_grant, worker.steady_node_grant


@kernel
def _catch_up(w: World, row: int, passes: int) -> None:
    """Bring a worker to its state after ``passes`` passes, no longer in steady decode."""
    worker = w.workers[row]
    w.arena.block_free_count += worker.steady_block_rows
    w.arena.node_free_count += worker.steady_node_rows
    _apply(w, row, passes)
    for r in ranks_of(worker):
        w.ranks[r].passes += passes - 1
    worker.wave += passes
    worker.steady_passes = 0

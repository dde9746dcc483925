"""Lifecycle of a worker (starting, active, draining, removed) and scaling targets.

Rules: replay-runtime.md §6.1, §6.3, §6.7, §7, §8.
"""

from aisim_gym.engine.seq_queue import queue_of
from aisim_gym.engine.tables import NONE, PREBUILT, QUEUES_PER_RANK, RUNNING, WAITING
from aisim_gym.errors import TableFullError
from aisim_gym.fleet.action_queue import clear_queue
from aisim_gym.fleet.events import EVENT_WORKER_READY, push_event, worker_order
from aisim_gym.fleet.rosters import heap_push, insert_ascending, remove_ascending
from aisim_gym.fleet.tables import (
    CAUSE_DRAINED,
    CAUSE_PLANNER,
    CAUSE_READY,
    QUEUE_DEFERRED,
    ROSTER_ACTIVE,
    ROSTER_LIVE,
    ROSTER_READY,
    WORKER_ACTIVE,
    WORKER_DRAINING,
    WORKER_REMOVED,
    WORKER_STARTING,
    PoolRow,
)
from aisim_gym.fleet.worker_ranks import next_rows, non_draining, ranks_of
from aisim_gym.fleet.world import World
from aisim_gym.kernel import entry_point, kernel


@entry_point
def create_first_workers(w: World, pool_id: int, count: int) -> None:
    """Add the active workers of a pool at time 0; their table rows must exist."""
    for _ in range(count):
        create_worker(w, pool_id, WORKER_ACTIVE, NONE)


@kernel
def create_worker(w: World, pool_id: int, state: int, operation: int) -> int:
    """Add a worker in state ``WORKER_STARTING`` or ``WORKER_ACTIVE``; return its row."""
    pool = w.pools[pool_id]
    row, rank_row = next_rows(w)
    if row >= len(w.workers):
        raise TableFullError("workers")
    if rank_row + w.engines[pool_id].dp_size > len(w.ranks):
        raise TableFullError("ranks")
    worker = w.workers[row]
    worker.pool = pool_id
    worker.id = pool.num_workers
    worker.state = WORKER_STARTING
    worker.first_rank = rank_row
    worker.num_ranks = w.engines[pool_id].dp_size
    worker.created_ms = w.clock.now_ms
    worker.created_operation = operation
    worker.ready_ms = -1.0
    worker.ready_operation = NONE
    worker.draining_ms = -1.0
    worker.draining_operation = NONE
    worker.removed_ms = -1.0
    worker.removed_operation = NONE
    for dp_rank in range(w.engines[pool_id].dp_size):
        rank = w.ranks[rank_row + dp_rank]
        rank.id = rank_row + dp_rank
        rank.worker = row
        rank.dp_rank = dp_rank
        rank.scheduler_id = pool.num_ranks + dp_rank
        rank.tried_seq = NONE
        rank.lru_first = NONE
        rank.lru_last = NONE
        rank.root = NONE
        rank.reserve_ratio = w.engines[pool_id].init_ratio
        w.fpms[rank.id].published_ms = -1.0
        clear_queue(w.action_queues[QUEUE_DEFERRED + rank.id])
        for kind in range(QUEUES_PER_RANK):
            queue = w.queues[queue_of(rank.id, kind)]
            queue.first = NONE
            queue.last = NONE
    pool.num_workers += 1
    pool.num_ranks += w.engines[pool_id].dp_size
    insert_ascending(w.rosters[ROSTER_LIVE + pool_id], pool.live_count, row)
    pay_workers(pool, w.clock.now_ms)
    pool.live_count += 1
    pool.starting_count += 1
    if state == WORKER_ACTIVE:
        activate_worker(w, row, operation)
    return int(row)


@kernel
def pay_workers(pool: PoolRow, now_ms: float) -> None:
    """Pay for the live workers of a pool up to now (§2.6), before their number changes."""
    pool.worker_seconds += float(pool.live_count) * (now_ms - pool.paid_until_ms) / 1000.0
    pool.paid_until_ms = now_ms


@kernel
def activate_worker(w: World, row: int, operation: int) -> None:
    """Activate a starting worker, so that placement can choose it."""
    worker = w.workers[row]
    pool = w.pools[worker.pool]
    worker.state = WORKER_ACTIVE
    worker.ready_ms = w.clock.now_ms
    worker.ready_operation = operation
    pool.starting_count -= 1
    insert_ascending(w.rosters[ROSTER_ACTIVE + worker.pool], pool.active_count, row)
    pool.active_count += 1
    if w.telemetry.collects_fpm:
        for r in ranks_of(worker):
            if w.fpms[r].published_ms < 0.0:
                w.fpms[r].published_ms = w.clock.now_ms


@kernel
def apply_target(w: World, pool_id: int, target: int, tick_ordinal: int) -> None:
    """Scale the non-draining workers of a pool to ``target`` (§7.1); table rows must suffice.

    Args:
        w: Modified in place.
        pool_id: ``PREFILL`` or ``DECODE``.
        target: Target number of starting and active workers, >= 0.
        tick_ordinal: Tick that decided it.
    """
    pool = w.pools[pool_id]
    effective = non_draining(pool)
    if target == effective:
        return
    w.clock.progress += 1
    operation = record_operation(w, pool_id, CAUSE_PLANNER, tick_ordinal)
    if target > effective:
        startup_ms = w.engines[pool_id].startup_ms
        for _ in range(target - effective):
            if startup_ms > 0.0:
                row = create_worker(w, pool_id, WORKER_STARTING, operation)
                order = worker_order(pool_id, w.workers[row].id)
                push_event(w, w.clock.now_ms + startup_ms, EVENT_WORKER_READY, order, row)
            else:
                create_worker(w, pool_id, WORKER_ACTIVE, operation)
        return
    excess = effective - target
    at = pool.live_count - 1
    while excess > 0 and pool.starting_count > 0:
        row = w.rosters[ROSTER_LIVE + pool_id, at]
        at -= 1
        if w.workers[row].state == WORKER_STARTING:
            pool.starting_count -= 1
            _remove_worker(w, row, operation)
            excess -= 1
    while excess > 0:
        begin_drain(w, w.rosters[ROSTER_ACTIVE + pool_id, pool.active_count - 1], operation)
        excess -= 1
    _remove_drained_workers(w, pool_id, operation)


@kernel
def begin_drain(w: World, row: int, operation: int) -> None:
    """Remove an active worker from placement; it finishes its work."""
    worker = w.workers[row]
    pool = w.pools[worker.pool]
    worker.state = WORKER_DRAINING
    worker.draining_ms = w.clock.now_ms
    worker.draining_operation = operation
    remove_ascending(w.rosters[ROSTER_ACTIVE + worker.pool], pool.active_count, row)
    pool.active_count -= 1
    pool.draining_count += 1
    pool.drain_check = True


@kernel
def settle_drained(w: World, pool_id: int) -> bool:
    """Remove draining workers without work; return whether there were any."""
    pool = w.pools[pool_id]
    if pool.draining_count == 0 or not pool.drain_check:
        return False
    for i in range(pool.live_count):
        row = w.rosters[ROSTER_LIVE + pool_id, i]
        if w.workers[row].state == WORKER_DRAINING and is_drained(w, row):
            operation = record_operation(w, pool_id, CAUSE_DRAINED, -1)
            _remove_drained_workers(w, pool_id, operation)
            return True
    pool.drain_check = False
    return False


@kernel
def settle_ready(w: World, row: int) -> bool:
    """Activate a worker whose startup has ended; False if it was cancelled meanwhile."""
    worker = w.workers[row]
    if worker.state != WORKER_STARTING:
        return False
    w.clock.progress += 1
    activate_worker(w, row, record_operation(w, worker.pool, CAUSE_READY, -1))
    return True


@kernel
def is_drained(w: World, row: int) -> bool:
    """Return whether a worker has no pass in flight, no request, no held KV, no paused round."""
    worker = w.workers[row]
    if worker.is_busy:
        return False
    for r in ranks_of(worker):
        if w.ranks[r].owned_seqs > 0 or w.ranks[r].pause_rounds > 0:
            return False
    return True


@kernel
def is_startable(w: World, row: int) -> bool:
    """Return whether a worker has no pass in flight and something to run (§6.3)."""
    worker = w.workers[row]
    if worker.is_busy:
        return False
    for r in ranks_of(worker):
        if is_rank_startable(w, r):
            return True
    return False


@kernel
def is_rank_startable(w: World, r: int) -> bool:
    """Return whether a rank has work to run, not counting destinations without KV."""
    return bool(
        w.queues[queue_of(r, WAITING)].count > 0
        or w.queues[queue_of(r, RUNNING)].count > 0
        or w.queues[queue_of(r, PREBUILT)].count > 0
        or w.ranks[r].pause_rounds > 0
    )


@kernel
def refresh_worker(w: World, row: int) -> None:
    """Re-evaluate a worker after a command or the end of a pass."""
    worker = w.workers[row]
    pool = w.pools[worker.pool]
    if is_startable(w, row):
        if not worker.is_queued_ready:
            worker.is_queued_ready = True
            heap_push(w.rosters[ROSTER_READY + worker.pool], pool.ready_count, row)
            pool.ready_count += 1
    elif is_drained(w, row):
        worker.wave = 0
        if worker.state == WORKER_DRAINING:
            pool.drain_check = True


@kernel
def record_operation(w: World, pool_id: int, cause: int, tick_ordinal: int) -> int:
    """Return the ordinal of a new lifecycle operation, ``NONE`` if they are not captured."""
    if not w.options.captures_operations:
        return NONE
    ordinal = w.clock.operation_count
    if ordinal >= len(w.operations):
        raise TableFullError("operations")
    w.clock.operation_count += 1
    operation = w.operations[ordinal]
    operation.at_ms = w.clock.now_ms
    operation.pool = pool_id
    operation.cause = cause
    operation.tick_ordinal = tick_ordinal
    return int(ordinal)


@kernel
def _remove_drained_workers(w: World, pool_id: int, operation: int) -> None:
    pool = w.pools[pool_id]
    i = 0
    while i < pool.live_count:
        row = w.rosters[ROSTER_LIVE + pool_id, i]
        if w.workers[row].state == WORKER_DRAINING and is_drained(w, row):
            pool.draining_count -= 1
            _remove_worker(w, row, operation)
        else:
            i += 1
    pool.drain_check = False


@kernel
def _remove_worker(w: World, row: int, operation: int) -> None:
    worker = w.workers[row]
    pool = w.pools[worker.pool]
    worker.state = WORKER_REMOVED
    worker.removed_ms = w.clock.now_ms
    worker.removed_operation = operation
    remove_ascending(w.rosters[ROSTER_LIVE + worker.pool], pool.live_count, row)
    pay_workers(pool, w.clock.now_ms)
    pool.live_count -= 1

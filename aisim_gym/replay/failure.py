"""Errors of failed runs: the reference's wording, plus request, worker and time.

Rules: replay-runtime.md §19, rulings.md 1.
"""

import math

import numpy as np

from aisim_gym.engine.slices import MISSING
from aisim_gym.engine.tables import NONE
from aisim_gym.errors import InternalError, ReplayError
from aisim_gym.fleet.events import heaps
from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.fleet.worker_ranks import ranks_of
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.metrics.request_times import REQUEST_OPEN
from aisim_gym.replay.settle import (
    STATUS_BROKEN,
    STATUS_LIVELOCK,
    STATUS_NO_WORKER,
    STATUS_STUCK,
    STATUS_UNKNOWN_RANK,
)

DEAD_ENDS = (STATUS_STUCK, STATUS_LIVELOCK)
FAILURES = (STATUS_BROKEN, STATUS_NO_WORKER, STATUS_UNKNOWN_RANK, *DEAD_ENDS)


def failure(state: WorldState, status: int) -> ReplayError | InternalError:
    """Return the error for a run that ended with one of ``FAILURES``."""
    if status == STATUS_BROKEN:
        return overflow(state)
    if status == STATUS_NO_WORKER:
        return _no_worker(state)
    if status == STATUS_UNKNOWN_RANK:
        return _unknown_rank(state)
    if status == STATUS_LIVELOCK:
        return _livelock(state)
    return _stuck(state)


def no_tick_waits(state: WorldState, method: str) -> ReplayError:
    """Return the error for answering a tick when none is waiting."""
    now_ms = float(state.world.clock.now_ms)
    return ReplayError(f"{method}(): no tick waits for a decision at {now_ms} ms")


def _no_worker(state: WorldState) -> ReplayError:
    clock, pool = state.world.clock, state.world.pools[DECODE]
    request = state.world.requests[int(state.world.resume.failed_request)]
    return ReplayError(
        "placement policy error: no active workers for round-robin placement "
        f"(request {request.source_index + 1} arrives at {clock.now_ms} ms, "
        f"{pool.starting_count} workers are starting, {pool.draining_count} draining)"
    )


def _unknown_rank(state: WorldState) -> ReplayError:
    clock = state.world.clock
    request = int(state.world.resume.failed_request)
    number = state.world.requests[request].source_index + 1
    rank = state.world.ranks[state.world.handoffs[request].prefill_rank]
    return ReplayError(
        f"replay invariant violated: offline replay selected unknown rank {rank.scheduler_id} "
        f"(request {number} was refused at {clock.now_ms} ms by "
        f"prefill worker {state.world.workers[rank.worker].id}, which was draining and is gone)"
    )


def _stuck(state: WorldState) -> ReplayError:
    clock = state.world.clock
    if not state.world.options.is_disaggregated:
        what = "offline replay detected an effect-free zero-duration pass"
    elif sum(state.world.pools["ready_count"] + state.world.pools["deferred_count"]) > 0:
        what = "offline disagg replay encountered an effect-free zero-duration pass"
    else:
        what = "offline disagg replay reached a dead end"
    return ReplayError(
        f"replay invariant violated: {what} "
        f"with {clock.in_flight} in-flight requests remaining ({_stuck_requests(state)})"
    )


def _livelock(state: WorldState) -> ReplayError:
    """Return the error for a worker that repeats passes without effect."""
    worker = state.world.workers[int(state.world.resume.livelocked_worker)]
    ranks = list(ranks_of(worker))
    return ReplayError(
        "replay invariant violated: offline replay detected an effect-free zero-duration pass "
        f"with {int(state.world.ranks['owned_seqs'][ranks].sum())} in-flight requests remaining "
        f"on {_pool_name(state, int(worker.pool))} worker {worker.id} ({_stuck_requests(state)})"
    )


def _stuck_requests(state: WorldState) -> str:
    """Describe the stuck requests: time, number, and place of the first."""
    rows = np.asarray(state.world.requests)
    stuck = np.flatnonzero((rows["status"] == REQUEST_OPEN) & rows["is_arrived"])
    request = int(stuck[np.argmin(rows["source_index"][stuck])])
    return (
        f"stuck at {state.world.clock.now_ms} ms: {len(stuck)}, "
        f"first request {rows['source_index'][request] + 1} {_place_of(state, request)}"
    )


def _place_of(state: WorldState, request: int) -> str:
    """Describe where an unfinished request is."""
    row = state.world.requests[request]
    if row.prefill_scheduler != NONE and (
        row.decode_scheduler == NONE or math.isnan(row.source_held_ms)
    ):
        pool_id, scheduler = PREFILL, int(row.prefill_scheduler)
    elif row.decode_scheduler != NONE:
        pool_id, scheduler = DECODE, int(row.decode_scheduler)
    else:
        first = "decode" if state.world.options.reserves_first else "prefill"
        return f"waiting for a {first} worker"
    worker = scheduler // int(state.world.engines[pool_id].dp_size)
    return f"on {_pool_name(state, pool_id)} worker {worker}, {row.input_tokens} input tokens"


def _pool_name(state: WorldState, pool_id: int) -> str:
    if not state.world.options.is_disaggregated:
        return "aggregated"
    return ("prefill", "decode")[pool_id]


def overflow(state: WorldState, name: str = "") -> InternalError:
    """Return the error for a run in which compiled code needed a free row and found none.

    Args:
        state: The tables.
        name: What ``TableFullError`` says; if empty, the table is derived where that is possible.
    """
    w, need = state.world, 1
    if name in ("", "slices"):
        for table, heads in (("entries", w.entry_heads), ("breaks", w.break_heads)):
            if heads[MISSING] > 0:
                name, need = table, int(heads[MISSING])
    elif name == "time heap":
        full = (table for table, heap, rows in heaps(w) if 0 < len(rows) <= heap.count)
        name = next(full, name)
    elif name == "ranks":
        need = int(max(w.engines["dp_size"]))
    table = name.removesuffix(" granted")
    size = f", it has {len(state.tables[table])} rows" if table in state.tables else ""
    return InternalError(
        f"internal error: no room in table {name or '(unknown)'} at {w.clock.now_ms} ms: {need} "
        f"more needed{size} (please report this, with the run that led to it)"
    )

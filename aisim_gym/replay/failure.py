"""Runs that cannot go on: the reference's words, and which request, worker and time.

Rules: replay-runtime.md §19, rulings.md 1.
"""

import numpy as np

from aisim_gym.engine.tables import NONE
from aisim_gym.errors import ReplayError
from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.metrics.request_times import REQUEST_OPEN
from aisim_gym.replay.settle import STATUS_NO_WORKER, STATUS_STUCK, STATUS_UNKNOWN_RANK

FAILURES = (STATUS_NO_WORKER, STATUS_UNKNOWN_RANK, STATUS_STUCK)


def failure(state: WorldState, status: int) -> ReplayError:
    """Return the error for a run that ended with one of ``FAILURES``."""
    if status == STATUS_NO_WORKER:
        return _no_worker(state)
    if status == STATUS_UNKNOWN_RANK:
        return _unknown_rank(state)
    return _stuck(state)


def _no_worker(state: WorldState) -> ReplayError:
    clock, pool = state.clock[0], state.pools[DECODE]
    request = state.requests[int(clock.next_arrival)]
    return ReplayError(
        "placement policy error: no active workers for round-robin placement "
        f"(request {request.row + 1} arrives at {clock.now_ms} ms, "
        f"{pool.starting_count} workers are starting, {pool.draining_count} draining)"
    )


def _unknown_rank(state: WorldState) -> ReplayError:
    clock = state.clock[0]
    request = int(clock.failed_request)
    rank = state.ranks[state.handoffs[request].prefill_rank]
    return ReplayError(
        f"replay invariant violated: offline replay selected unknown rank {rank.scheduler_id} "
        f"(request {state.requests[request].row + 1} was refused at {clock.now_ms} ms by prefill "
        f"worker {state.workers[rank.worker].id}, which was draining and is gone)"
    )


def _stuck(state: WorldState) -> ReplayError:
    clock = state.clock[0]
    if clock.is_disaggregated == 0:
        what = "offline replay detected an effect-free zero-duration pass"
    elif sum(state.pools["ready_count"] + state.pools["deferred_count"]) > 0:
        what = "offline disagg replay encountered an effect-free zero-duration pass"
    else:
        what = "offline disagg replay reached a dead end"
    rows = np.asarray(state.requests)[: clock.next_arrival]
    stuck = np.flatnonzero(rows["status"] == REQUEST_OPEN)
    request = int(stuck[np.argmin(rows["row"][stuck])])
    return ReplayError(
        f"replay invariant violated: {what} "
        f"with {clock.in_flight} in-flight requests remaining "
        f"(stuck at {clock.now_ms} ms: {len(stuck)}, first request {rows['row'][request] + 1} "
        f"{_place_of(state, request)})"
    )


def _place_of(state: WorldState, request: int) -> str:
    """Say where an unfinished request is."""
    row = state.requests[request]
    if row.decode_scheduler != NONE:
        pool_id, scheduler = DECODE, int(row.decode_scheduler)
    elif row.prefill_scheduler != NONE:
        pool_id, scheduler = PREFILL, int(row.prefill_scheduler)
    else:
        return "waiting for a prefill worker"
    is_disaggregated = state.clock[0].is_disaggregated == 1
    name = ("prefill", "decode")[pool_id] if is_disaggregated else "aggregated"
    worker = scheduler // int(state.engines[pool_id].dp_size)
    return f"on {name} worker {worker}, {row.input_tokens} input tokens"

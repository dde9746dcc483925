"""A scaling tick: preparing metrics for the planner, and applying its decision.

Rules: replay-runtime.md §13.3, §14.2, §14.3, §7.3.
"""

import math

from aisim_gym.engine.fpm import write_idle_fpm
from aisim_gym.fleet.events import EVENT_TICK, num_busy_workers, push_event
from aisim_gym.fleet.handoff import wake_waiting_for_worker
from aisim_gym.fleet.room import (
    request_room_for_events,
    request_room_for_operations,
    request_room_for_workers,
)
from aisim_gym.fleet.tables import (
    DECODE,
    NUM_POOLS,
    PREFILL,
    ROSTER_LIVE,
    WORKER_ACTIVE,
)
from aisim_gym.fleet.worker_life import apply_target
from aisim_gym.fleet.worker_ranks import non_draining, ranks_of
from aisim_gym.fleet.world import World
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.metrics.traffic_window import TICK_WINDOW, restart_window

KEEP = -1
"""Target that leaves a pool unchanged."""

APPLIED, NO_TICK, NO_ROOM = 0, 1, 2
"""Outcomes of applying a decision; only ``APPLIED`` changes state."""

_IDLE_MS = 1000.0


@kernel
def is_workload_done(w: World) -> bool:
    """Return whether all requests have arrived, ended and been cleaned up in the fleet (§3.3)."""
    clock = w.clock
    return bool(
        clock.in_flight == 0
        and clock.sources_left == 0
        and num_busy_workers(w) == 0
        and clock.transfers == 0
        and clock.open_handoffs == 0
    )


@kernel
def prepare_metrics(w: World, pool_id: int) -> None:
    """Drop metrics of inactive workers, and give idle ranks all-zero records."""
    now_ms = w.clock.now_ms
    for i in range(w.pools[pool_id].live_count):
        worker = w.workers[w.rosters[ROSTER_LIVE + pool_id, i]]
        for r in ranks_of(worker):
            fpm = w.fpms[r]
            if worker.state != WORKER_ACTIVE:
                fpm.is_new = False
                fpm.published_ms = -1.0
                continue
            if fpm.published_ms < 0.0:
                fpm.published_ms = now_ms
            idle_ms = now_ms - fpm.published_ms
            if idle_ms >= _IDLE_MS:
                fpm.published_ms += math.floor(idle_ms / _IDLE_MS) * _IDLE_MS
                write_idle_fpm(fpm)


@entry_point
def apply_decision(w: World, target_prefill: int, target_decode: int, next_tick_ms: float) -> int:
    """Apply the planner's decision to the pending tick.

    Args:
        w: Modified in place.
        target_prefill: Target number of workers, or ``KEEP``; ignored by an aggregated fleet.
        target_decode: Target number of workers, or ``KEEP``.
        next_tick_ms: Time of the next tick; if not finite or not in the future, ticks end.

    Returns:
        ``APPLIED``; ``NO_TICK`` if no tick is pending; ``NO_ROOM`` if a table must grow first.
    """
    clock = w.clock
    if not clock.tick_shown:
        return NO_TICK
    if not _request_room_for_decision(w, target_prefill, target_decode):
        return NO_ROOM
    for pool_id in range(PREFILL, DECODE + 1):
        for i in range(w.pools[pool_id].live_count):
            worker = w.workers[w.rosters[ROSTER_LIVE + pool_id, i]]
            for r in ranks_of(worker):
                w.fpms[r].is_new = False
    restart_window(w.traffic[TICK_WINDOW], clock.now_ms)
    if w.options.is_disaggregated and target_prefill != KEEP:
        _scale(w, PREFILL, target_prefill)
    if target_decode != KEEP:
        _scale(w, DECODE, target_decode)
    if math.isfinite(next_tick_ms) and next_tick_ms > clock.now_ms and not is_workload_done(w):
        push_event(w, next_tick_ms, EVENT_TICK, 0, 0)
    else:
        end_ticks(w)
    clock.tick_ordinal += 1
    clock.tick_shown = False
    w.resume.changed = True
    return APPLIED


@kernel
def end_ticks(w: World) -> None:
    """Mark ticks as over; forward-pass metrics are no longer read."""
    w.clock.ticks_are_over = True
    w.telemetry.collects_fpm = False


@kernel
def _request_room_for_decision(w: World, target_prefill: int, target_decode: int) -> bool:
    """Return whether there is room for added workers, their startup events and the next tick."""
    prefill = _missing_workers(w, PREFILL, target_prefill)
    decode = _missing_workers(w, DECODE, target_decode)
    return bool(
        request_room_for_workers(w, prefill, decode)
        and request_room_for_events(w, prefill + decode + 1)
        and request_room_for_operations(w, NUM_POOLS)
    )


@kernel
def _missing_workers(w: World, pool_id: int, target: int) -> int:
    """Return the number of workers that a target (or ``KEEP``) adds to a pool."""
    if pool_id == PREFILL and not w.options.is_disaggregated:
        return 0
    return max(0, target - non_draining(w.pools[pool_id]))


@kernel
def _scale(w: World, pool_id: int, target: int) -> None:
    active_before = w.pools[pool_id].active_count
    apply_target(w, pool_id, target, w.clock.tick_ordinal)
    if w.options.is_disaggregated and w.pools[pool_id].active_count > active_before:
        wake_waiting_for_worker(w, pool_id)

"""A scaling tick: what the planner is shown, and what its decision does.

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
from aisim_gym.fleet.worker_ranks import ranks_of
from aisim_gym.fleet.world import World
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.metrics.traffic_window import restart_window

KEEP = -1
"""Target that leaves a pool as it is."""

APPLIED, NO_TICK, NO_ROOM = 0, 1, 2
"""What became of a decision; only the first changes anything."""

_IDLE_MS = 1000.0


@kernel
def is_workload_done(w: World) -> bool:
    """Return whether every request has arrived, ended and left no trace in the fleet (§3.3)."""
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
    """Forget metrics of workers that are not active; give idle ranks their all-zero records."""
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
    """Apply the planner's answer to the tick that waits for it.

    Args:
        w: Modified in place.
        target_prefill: Workers wanted, or ``KEEP``; ignored by an aggregated fleet.
        target_decode: Workers wanted, or ``KEEP``.
        next_tick_ms: Next tick; not finite or not in the future means no more ticks.

    Returns:
        ``APPLIED``; ``NO_TICK`` if no tick waits; ``NO_ROOM`` if a table must grow first.
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
    restart_window(w.traffic[0], clock.now_ms)
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
    """Take note that no tick comes any more, so that nobody reads forward-pass metrics."""
    w.clock.ticks_are_over = True
    w.telemetry.collects_fpm = False


@kernel
def _request_room_for_decision(w: World, target_prefill: int, target_decode: int) -> bool:
    """Return whether workers can be added, their starts and the next tick be events."""
    prefill = _missing_workers(w, PREFILL, target_prefill)
    decode = _missing_workers(w, DECODE, target_decode)
    return bool(
        request_room_for_workers(w, prefill, decode)
        and request_room_for_events(w, prefill + decode + 1)
        and request_room_for_operations(w, NUM_POOLS)
    )


@kernel
def _missing_workers(w: World, pool_id: int, target: int) -> int:
    """Return how many workers a target, or ``KEEP``, adds to a pool."""
    if pool_id == PREFILL and not w.options.is_disaggregated:
        return 0
    pool = w.pools[pool_id]
    return max(0, target - (pool.active_count + pool.starting_count))


@kernel
def _scale(w: World, pool_id: int, target: int) -> None:
    active_before = w.pools[pool_id].active_count
    apply_target(w, pool_id, target, w.clock.tick_ordinal)
    if w.options.is_disaggregated and w.pools[pool_id].active_count > active_before:
        wake_waiting_for_worker(w, pool_id)

"""The run loop: advance between instants until a tick, the end, a pause or a dead end.

Rules: replay-runtime.md §3, rulings.md 1. One compiled call per tick.
"""

import math

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.arrivals import next_arrival_ms
from aisim_gym.fleet.events import (
    EVENT_TICK,
    next_event_is_tick,
    next_event_ms,
    next_pass_end_ms,
    num_busy_workers,
    push_event,
)
from aisim_gym.fleet.room import request_room_for_events
from aisim_gym.fleet.stages import next_stage_ms
from aisim_gym.fleet.steady import last_hidden_end_ms, sync_fleet
from aisim_gym.fleet.tables import (
    DECODE,
    OPENING_DONE,
    OPENING_SAMPLED,
    OPENING_UNSETTLED,
    PREFILL,
    QUEUE_NO_WORKER,
)
from aisim_gym.fleet.tick import end_ticks, is_workload_done
from aisim_gym.fleet.token_stream import settle_logs
from aisim_gym.fleet.world import World
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.replay.settle import (
    PHASE_PASS_ENDS,
    STATUS_DONE,
    STATUS_LIVELOCK,
    STATUS_NEEDS_ROOM,
    STATUS_PAUSED,
    STATUS_SAMPLE,
    STATUS_SETTLED,
    STATUS_STUCK,
    STATUS_TIME_LIMIT,
    settle,
)

MAX_STUCK_TICKS = 1024
"""Maximum number of ticks in a stuck run. The reference continues as long as the planner schedules
ticks, so a run whose planner stops before this limit ends exactly as in the reference."""


@entry_point
def advance(w: World) -> int:
    """Run to the next tick, or as far as possible; return a ``STATUS_...``.

    Args:
        w: Modified in place. After ``STATUS_TICK`` the decision must be applied, after
            ``STATUS_NEEDS_ROOM`` the table grown; then call again.
    """
    status = _advance(w)
    if status == STATUS_NEEDS_ROOM:
        return status
    sync_fleet(w)
    if status in (STATUS_DONE, STATUS_TIME_LIMIT):
        settle_logs(w)
    return status


@kernel
def _advance(w: World) -> int:
    clock = w.clock
    while True:
        status = settle(w)
        if status != STATUS_SETTLED:
            return status
        if clock.opening == OPENING_UNSETTLED:
            clock.opening = OPENING_SAMPLED
            if w.telemetry.is_on:
                return STATUS_SAMPLE
        if clock.opening == OPENING_SAMPLED:
            if not request_room_for_events(w, 1):
                return STATUS_NEEDS_ROOM
            clock.opening = OPENING_DONE
            _arm_first_tick(w)
            if _next_event_ms(w) == clock.now_ms:
                w.resume.phase = PHASE_PASS_ENDS
                continue
        if is_workload_done(w):
            return STATUS_DONE
        if w.resume.livelocked_worker != NONE:
            if _only_passes_can_follow(w):
                return STATUS_LIVELOCK
            w.workers[w.resume.livelocked_worker].undone_passes = 0
            w.resume.livelocked_worker = NONE
        if clock.instants_left <= 0:
            return STATUS_PAUSED
        at_ms = min(_next_event_ms(w), _next_source_ms(w))
        if at_ms == math.inf:
            return STATUS_STUCK
        if at_ms > clock.max_sim_ms:
            last_ms = max(clock.now_ms, last_hidden_end_ms(w, clock.max_sim_ms))
            if w.telemetry.next_sample_ms <= last_ms:
                _move_clock(w, w.telemetry.next_sample_ms)
                return STATUS_SAMPLE
            _move_clock(w, last_ms)
            return STATUS_TIME_LIMIT
        if w.telemetry.next_sample_ms < at_ms:
            _move_clock(w, w.telemetry.next_sample_ms)
            return STATUS_SAMPLE
        clock.instants_left -= 1
        if not _only_ticks_can_follow(w):
            clock.stuck_ticks = 0
        elif next_event_is_tick(w):
            clock.stuck_ticks += 1
            if clock.stuck_ticks > MAX_STUCK_TICKS:
                return STATUS_STUCK
        _move_clock(w, at_ms)
        w.resume.phase = PHASE_PASS_ENDS


@kernel
def _next_event_ms(w: World) -> float:
    """Return the time of the next pass end, ready worker, transfer end or tick."""
    return min(next_event_ms(w), next_pass_end_ms(w))


@kernel
def _arm_first_tick(w: World) -> None:
    clock = w.clock
    if math.isfinite(clock.next_tick_ms):
        push_event(w, max(clock.next_tick_ms, clock.now_ms), EVENT_TICK, 0, 0)
    else:
        end_ticks(w)


@kernel
def _next_source_ms(w: World) -> float:
    """Return the time of the next event outside the event heap (§2.4), +inf if there is none."""
    arrival_ms = next_arrival_ms(w)
    return arrival_ms if not w.options.has_stages else min(arrival_ms, next_stage_ms(w))


@kernel
def _only_ticks_can_follow(w: World) -> bool:
    """Return whether no event, arrival, startup or later decision can advance an open request."""
    return num_busy_workers(w) + w.clock.transfers == 0 and _nothing_is_coming(w)


@kernel
def _only_passes_can_follow(w: World) -> bool:
    """Return whether only pass ends and ticks can advance an open request."""
    return w.clock.transfers == 0 and _nothing_is_coming(w)


@kernel
def _nothing_is_coming(w: World) -> bool:
    """Return whether no arrival, stage, startup or later decision can advance an open request."""
    clock = w.clock
    waits_for_worker = (
        w.action_queues[QUEUE_NO_WORKER + PREFILL].first != NONE
        or w.action_queues[QUEUE_NO_WORKER + DECODE].first != NONE
    )
    return bool(
        _next_source_ms(w) == math.inf
        and w.pools[PREFILL].starting_count + w.pools[DECODE].starting_count == 0
        and not (waits_for_worker and not clock.ticks_are_over)  # without ticks, no new workers
        and clock.max_sim_ms == math.inf
    )


@kernel
def _move_clock(w: World, at_ms: float) -> None:
    if at_ms > w.clock.now_ms:
        w.clock.now_ms = at_ms
        w.resume.is_driven = False

"""Settling an instant: all events at one point of simulated time, in order.

Rules: replay-runtime.md §4 (aggregated), §5 (disaggregated), rulings.md 3. One iteration runs the
steps of the table in :mod:`aisim_gym.fleet.events` once. Iterations repeat until one changes
nothing, or until no further work exists.

Steps 2, 4, 5, 6 and 8 exist only in a disaggregated fleet. There, the first action of an arrival or
a delivery runs in the next iteration. In an aggregated fleet an arrival is placed immediately.
A phase is the point where settling resumes after a table has grown: one step, or several steps of
which only the first may need room.
"""

from aisim_gym.engine.backend import submit
from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.arrivals import due_request, take_due_request
from aisim_gym.fleet.events import (
    EVENT_TICK,
    EVENT_TRANSFER_END,
    EVENT_WORKER_READY,
    due_subject,
    due_worker,
    next_event_ms,
    next_pass_end_ms,
    pop_due,
)
from aisim_gym.fleet.gauges import commit_gauges
from aisim_gym.fleet.group_pass import (
    IS_LIVELOCKED,
    NEEDS_ROOM,
    STARTED_NOTHING,
    complete_immediate_pass,
    drive_pool,
    end_pass,
    request_room_for_pass_end,
)
from aisim_gym.fleet.handoff import (
    addresses_removed_worker,
    begin_handoff,
    execute_first_action,
    request_room_for_action,
    submit_prefill,
    transfer_completed,
    wake_waiting_for_worker,
)
from aisim_gym.fleet.placement import place_aggregated
from aisim_gym.fleet.request_seq import (
    add_request_seq,
    conclude_request,
    request_room_for_seq,
)
from aisim_gym.fleet.room import request_room_for_operations
from aisim_gym.fleet.stages import (
    encode,
    pop_encoded,
    pop_received,
    pop_tokenized,
    pop_transferred,
)
from aisim_gym.fleet.steady import sync_fleet, touch_worker
from aisim_gym.fleet.tables import (
    DECODE,
    PREFILL,
    QUEUE_PENDING,
)
from aisim_gym.fleet.tick import is_workload_done, prepare_metrics
from aisim_gym.fleet.worker_life import refresh_worker, settle_drained, settle_ready
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel
from aisim_gym.metrics.request_times import REQUEST_COMPLETED

STATUS_BROKEN, STATUS_TICK, STATUS_NEEDS_ROOM, STATUS_DONE, STATUS_TIME_LIMIT = 0, 1, 2, 3, 4
STATUS_PAUSED, STATUS_NO_WORKER, STATUS_STUCK, STATUS_UNKNOWN_RANK = 5, 6, 7, 8
STATUS_LIVELOCK, STATUS_SAMPLE, STATUS_SETTLED = 9, 10, 11
"""``STATUS_BROKEN`` is returned by a compiled call through an address that raised an error."""

PHASE_SETTLED, PHASE_PASS_ENDS, PHASE_READY, PHASE_TRANSFERS, PHASE_ACTIONS = 0, 1, 2, 3, 4
PHASE_ARRIVALS, PHASE_DRIVE_PREFILL, PHASE_DRIVE_DECODE, PHASE_DRAINED, PHASE_TICK = 5, 6, 7, 8, 9


@kernel
def settle(w: World) -> int:
    """Settle the current instant, resuming in ``resume.phase``.

    Returns:
        ``STATUS_SETTLED``; or ``STATUS_TICK``, ``STATUS_NEEDS_ROOM``, ``STATUS_NO_WORKER``,
        ``STATUS_UNKNOWN_RANK``, ``STATUS_LIVELOCK``, ``STATUS_SAMPLE``, with the phase set to where
        the next call resumes.
    """
    clock = w.clock
    while w.resume.phase != PHASE_SETTLED:
        if w.resume.phase == PHASE_PASS_ENDS:
            if not _end_passes(w):
                return STATUS_NEEDS_ROOM
            if w.options.has_stages:
                _receive_last_outputs(w)
            w.resume.phase = PHASE_READY
        if w.resume.phase == PHASE_READY:
            if _has_due_event(w) and not _activate_ready_workers(w):
                return STATUS_NEEDS_ROOM
            w.resume.phase = PHASE_TRANSFERS
        if w.resume.phase == PHASE_TRANSFERS:
            if w.options.has_stages:
                _end_shared_transfers(w)
            if w.options.is_disaggregated and _has_due_event(w):
                _end_transfers(w)
            w.resume.phase = PHASE_ACTIONS
        if w.resume.phase == PHASE_ACTIONS:
            if w.options.is_disaggregated:
                status = _execute_actions(w)
                if status != STATUS_SETTLED:
                    return status
            if w.options.has_stages:
                _deliver_encoded(w)
            w.resume.phase = PHASE_ARRIVALS
        if w.resume.phase == PHASE_ARRIVALS:
            status = _admit_arrivals(w)
            if status != STATUS_SETTLED:
                return status
            if w.options.has_stages:
                _submit_tokenized(w)
            w.resume.phase = PHASE_DRIVE_PREFILL
        if w.resume.phase == PHASE_DRIVE_PREFILL:
            if w.options.is_disaggregated:
                status = _drive(w, PREFILL) if _has_candidates(w, PREFILL) else STATUS_SETTLED
                if status != STATUS_SETTLED:
                    return status
            w.resume.phase = PHASE_DRIVE_DECODE
        if w.resume.phase == PHASE_DRIVE_DECODE:
            status = _drive(w, DECODE) if _has_candidates(w, DECODE) else STATUS_SETTLED
            if status != STATUS_SETTLED:
                return status
            w.resume.is_driven = True
            w.resume.phase = PHASE_DRAINED
        if w.resume.phase == PHASE_DRAINED:
            if w.pools[PREFILL].drain_check or w.pools[DECODE].drain_check:
                if not request_room_for_operations(w, 2):
                    return STATUS_NEEDS_ROOM
                if settle_drained(w, PREFILL):
                    w.resume.changed = True
                if settle_drained(w, DECODE):
                    w.resume.changed = True
            w.resume.phase = PHASE_TICK
        if w.resume.phase == PHASE_TICK:
            if w.telemetry.next_sample_ms <= clock.now_ms:
                return STATUS_SAMPLE
            while _has_due_event(w) and pop_due(w, EVENT_TICK) != NONE:
                if not is_workload_done(w):
                    sync_fleet(w)
                    prepare_metrics(w, PREFILL)
                    prepare_metrics(w, DECODE)
                    clock.tick_shown = True
                    return STATUS_TICK
            goes_on = w.resume.changed and _has_more_to_do(w)
            w.resume.phase = PHASE_PASS_ENDS if goes_on else PHASE_SETTLED
            w.resume.changed = False
    return STATUS_SETTLED


@kernel
def _has_due_event(w: World) -> bool:
    """Return whether a ready worker, a transfer end or a tick is due now."""
    return next_event_ms(w) <= w.clock.now_ms


@kernel
def _has_more_to_do(w: World) -> bool:
    """Return whether another iteration at this instant could have work."""
    clock = w.clock
    prefill, decode = w.pools[PREFILL], w.pools[DECODE]
    return bool(
        w.action_queues[QUEUE_PENDING].first != NONE
        or prefill.ready_count + prefill.deferred_count > 0
        or decode.ready_count + decode.deferred_count > 0
        or prefill.drain_check
        or decode.drain_check
        or next_pass_end_ms(w) <= clock.now_ms
        or _has_due_event(w)
        or w.telemetry.next_sample_ms <= clock.now_ms
        or due_request(w) != NONE
        or w.options.has_stages
    )


@kernel
def _end_passes(w: World) -> bool:
    while True:
        row = due_worker(w)
        if row == NONE:
            return True
        if not request_room_for_pass_end(w, row):
            return False
        end_pass(w, row)
        w.resume.changed = True


@kernel
def _receive_last_outputs(w: World) -> None:
    while True:
        request = pop_received(w)
        if request == NONE:
            return
        conclude_request(w, request, REQUEST_COMPLETED)
        w.resume.changed = True


@kernel
def _activate_ready_workers(w: World) -> bool:
    while due_subject(w, EVENT_WORKER_READY) != NONE:
        if not request_room_for_operations(w, 1):
            return False
        row = pop_due(w, EVENT_WORKER_READY)
        if settle_ready(w, row):
            if w.options.is_disaggregated:
                wake_waiting_for_worker(w, w.workers[row].pool)
            w.resume.changed = True
    return True


@kernel
def _end_shared_transfers(w: World) -> None:
    while True:
        request = pop_transferred(w)
        if request == NONE:
            return
        transfer_completed(w, request)
        w.resume.changed = True


@kernel
def _end_transfers(w: World) -> None:
    while True:
        request = pop_due(w, EVENT_TRANSFER_END)
        if request == NONE:
            return
        if not w.handoffs[request].is_retired:
            transfer_completed(w, request)
            w.resume.changed = True


@kernel
def _execute_actions(w: World) -> int:
    while w.action_queues[QUEUE_PENDING].first != NONE:
        if addresses_removed_worker(w):
            return STATUS_UNKNOWN_RANK
        if not request_room_for_action(w):
            return STATUS_NEEDS_ROOM
        if execute_first_action(w):
            w.resume.changed = True
            w.clock.progress += 1
    return STATUS_SETTLED


@kernel
def _deliver_encoded(w: World) -> None:
    while True:
        request = pop_encoded(w)
        if request == NONE:
            return
        begin_handoff(w, request)
        w.resume.changed = True


@kernel
def _admit_arrivals(w: World) -> int:
    while True:
        request = due_request(w)
        if request == NONE:
            return STATUS_SETTLED
        if w.options.is_disaggregated:
            if not encode(w, request):
                begin_handoff(w, request)
        else:
            row = w.requests[request]
            if w.pools[DECODE].active_count == 0:
                w.resume.failed_request = request
                return STATUS_NO_WORKER
            if not request_room_for_seq(w, DECODE, request):
                return STATUS_NEEDS_ROOM
            rank = w.ranks[place_aggregated(w)]
            touch_worker(w, int(rank.worker))
            s = add_request_seq(w, rank.id, request)
            submit(w, rank, s)
            commit_gauges(w, rank.id)
            row.decode_scheduler = rank.scheduler_id
            refresh_worker(w, rank.worker)
        take_due_request(w, request)


@kernel
def _submit_tokenized(w: World) -> None:
    while True:
        request = pop_tokenized(w)
        if request == NONE:
            return
        submit_prefill(w, request)
        w.resume.changed = True
        w.clock.progress += 1


@kernel
def _has_candidates(w: World, pool_id: int) -> bool:
    """Return whether a worker of a pool may start or complete a pass now."""
    pool = w.pools[pool_id]
    return bool(
        pool.ready_count + pool.deferred_count > 0
        or pool.had_deferred
        or w.resume.immediate_worker != NONE
    )


@kernel
def _drive(w: World, pool_id: int) -> int:
    while True:
        if w.resume.immediate_worker != NONE and not complete_immediate_pass(w):
            return STATUS_NEEDS_ROOM
        outcome = drive_pool(w, pool_id)
        if outcome == NEEDS_ROOM:
            return STATUS_NEEDS_ROOM
        if outcome == IS_LIVELOCKED:
            return STATUS_LIVELOCK
        if outcome == STARTED_NOTHING:
            return STATUS_SETTLED
        w.resume.changed = True

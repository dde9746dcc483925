"""Prefill-to-decode handoff: choosing the next action from the known facts, and executing it.

vLLM and TensorRT-LLM compute the prompt first and then reserve its destination; SGLang reserves
the destination first (``options.reserves_first``).

Rules: replay-runtime.md §10, §11; engine-vllm-trtllm.md §9. A handoff has at most one action at a
time: pending, waiting for a worker of its pool, deferred until a rank's pass ends, or none. A
submission also waits for the tokenizers of its worker, if any (§17.2).
"""

from aisim_gym.engine.backend import (
    accept_destination,
    activate_destination,
    cancel,
    command_demand,
    node_demand,
    release_source,
    reservation_demand,
    reserve_destination,
    submit,
)
from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.action_queue import append_action, move_actions, pop_action, prepend_action
from aisim_gym.fleet.events import EVENT_TRANSFER_END, push_event
from aisim_gym.fleet.gauges import commit_gauges
from aisim_gym.fleet.placement import place_in_pool
from aisim_gym.fleet.request_seq import (
    add_request_seq,
    conclude_request,
    drop_request_seq,
    end_request,
    request_room_for_seq,
)
from aisim_gym.fleet.room import request_room_for_events, request_room_in_cache
from aisim_gym.fleet.stages import drop_transfer, share_transfer, tokenize
from aisim_gym.fleet.steady import touch_worker
from aisim_gym.fleet.tables import (
    ACTION_ACTIVATE,
    ACTION_CANCEL_DESTINATION,
    ACTION_CANCEL_SOURCE,
    ACTION_COMPLETE,
    ACTION_RELEASE,
    ACTION_RESERVE,
    ACTION_SUBMIT,
    ACTION_TRANSFER,
    DECODE,
    PREFILL,
    QUEUE_DEFERRED,
    QUEUE_NO_WORKER,
    QUEUE_PENDING,
    WORKER_REMOVED,
)
from aisim_gym.fleet.worker_life import refresh_worker
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel
from aisim_gym.metrics.request_times import REQUEST_CANCELED, REQUEST_FAILED


@kernel
def begin_handoff(w: World, request: int) -> None:
    """Start the handoff of an admitted request; its first action runs in the next iteration."""
    handoff = w.handoffs[request]
    handoff.prefill_seq = NONE
    handoff.decode_seq = NONE
    handoff.prefill_rank = NONE
    handoff.decode_rank = NONE
    handoff.is_counted = True
    handoff.id = w.clock.handoff_count
    w.clock.handoff_count += 1
    w.clock.open_handoffs += 1
    _issue_next(w, request)


@kernel
def submit_prefill(w: World, request: int) -> None:
    """Queue a placed prefill copy on its rank, once its prompt is tokenized."""
    handoff = w.handoffs[request]
    rank = w.ranks[handoff.prefill_rank]
    handoff.action = 0
    submit(w, rank, int(handoff.prefill_seq))
    commit_gauges(w, rank.id)
    w.requests[request].prefill_scheduler = rank.scheduler_id
    refresh_worker(w, rank.worker)


@kernel
def source_held(w: World, request: int) -> None:
    """Record that the prefill is complete and its KV is held."""
    w.requests[request].source_held_ms = w.clock.now_ms
    w.handoffs[request].is_held = True
    _issue_next(w, request)


@kernel
def transfer_completed(w: World, request: int) -> None:
    """Record that the KV transfer is complete."""
    w.handoffs[request].is_transferred = True
    _issue_next(w, request)


@kernel
def handoff_failed(w: World, request: int) -> None:
    """Clean up both ends of a failed handoff; the request's outcome is already recorded."""
    w.handoffs[request].is_cleaning_up = True
    _issue_next(w, request)


@kernel
def retry_reservation(w: World, rank_id: int) -> int:
    """Reserve KV for the first pending destination of a decode rank; return it, or ``NONE``."""
    return int(reserve_destination(w, w.engines[DECODE], w.ranks[rank_id]))


@kernel
def destination_reserved(w: World, s: int) -> None:
    """Record that a destination sequence has its blocks; ``NONE`` is ignored."""
    if s == NONE:
        return
    seq = w.seqs[s]
    handoff = w.handoffs[seq.request]
    w.requests[seq.request].destination_reserved_ms = w.clock.now_ms
    handoff.transferable_tokens = seq.reserved_blocks * w.engines[DECODE].block_size
    handoff.is_reserved = True
    _issue_next(w, seq.request)


@kernel
def finish_logical_request(w: World, request: int) -> None:
    """Mark the request finished for the client; only clean-up remains."""
    w.handoffs[request].is_counted = False
    _retire_if_over(w, request)


@kernel
def wake_deferred(w: World, rank_id: int) -> None:
    """Make pending the actions deferred until the end of this rank's pass."""
    move_actions(
        w.action_queues[QUEUE_DEFERRED + rank_id], w.action_queues[QUEUE_PENDING], w.handoffs
    )


@kernel
def wake_waiting_for_worker(w: World, pool_id: int) -> None:
    """Make pending the actions that wait for an active worker of this pool."""
    move_actions(
        w.action_queues[QUEUE_NO_WORKER + pool_id], w.action_queues[QUEUE_PENDING], w.handoffs
    )


@kernel
def request_room_for_action(w: World) -> bool:
    """Return whether the tables have room for the first pending action."""
    request = w.action_queues[QUEUE_PENDING].first
    row = w.requests[request]
    action = w.handoffs[request].action
    if action == ACTION_SUBMIT:
        return request_room_for_seq(w, PREFILL, request)
    if action == ACTION_RESERVE:
        return request_room_for_seq(w, DECODE, request) and request_room_in_cache(
            w, 0, reservation_demand(w)
        )
    if action == ACTION_TRANSFER:
        return request_room_for_events(w, 1)
    pool_id, rank_id = _action_target(w, request)
    if rank_id == NONE:
        return True
    engine = w.engines[pool_id]
    block_rows = command_demand(w, engine, int(row.input_tokens))
    return request_room_in_cache(w, block_rows, node_demand(w, engine, w.ranks[rank_id]))


@kernel
def addresses_removed_worker(w: World) -> bool:
    """Return whether the first pending action addresses a removed worker.

    This happens to the clean-up of a prompt rejected by a draining worker that has no other work.
    The reference fails in this case (confirmed), and so does this replay.
    """
    request = w.action_queues[QUEUE_PENDING].first
    _, rank_id = _action_target(w, request)
    if rank_id == NONE or w.workers[w.ranks[rank_id].worker].state != WORKER_REMOVED:
        return False
    w.resume.failed_request = request
    return True


@kernel
def execute_first_action(w: World) -> bool:
    """Execute the first pending action; False if it must wait for a worker or a pass end."""
    request = pop_action(w.action_queues[QUEUE_PENDING], w.handoffs)
    handoff = w.handoffs[request]
    action = handoff.action
    pool_id, rank_id = _action_target(w, request)
    source_was_refused = _cancels_refused_source(w, request)
    if action in (ACTION_SUBMIT, ACTION_RESERVE):
        if w.pools[pool_id].active_count == 0:
            append_action(w.action_queues[QUEUE_NO_WORKER + pool_id], w.handoffs, request)
            return False
    elif rank_id != NONE and not source_was_refused:
        touch_worker(w, int(w.ranks[rank_id].worker))
        if w.workers[w.ranks[rank_id].worker].is_busy:
            append_action(w.action_queues[QUEUE_DEFERRED + rank_id], w.handoffs, request)
            return False
    handoff.action = 0
    if action == ACTION_SUBMIT:
        _place_prefill(w, request)
    elif action == ACTION_RESERVE:
        _reserve_destination(w, request)
    elif action == ACTION_TRANSFER:
        _start_transfer(w, request)
    elif action == ACTION_ACTIVATE:
        _activate_destination(w, request)
    elif action == ACTION_RELEASE:
        _leave_rank(w, rank_id, int(handoff.prefill_seq), True)
        handoff.prefill_seq = NONE
        handoff.source_cleaned = True
        w.requests[request].source_released_ms = w.clock.now_ms
        _issue_next(w, request)
    elif action == ACTION_CANCEL_SOURCE:
        _leave_rank(w, rank_id, int(handoff.prefill_seq), False)
        handoff.prefill_seq = NONE
        handoff.source_cleaned = True
        if source_was_refused:
            handoff.action = ACTION_CANCEL_DESTINATION
            prepend_action(w.action_queues[QUEUE_PENDING], w.handoffs, request)
        else:
            _issue_next(w, request)
    elif action == ACTION_CANCEL_DESTINATION:
        _leave_rank(w, rank_id, int(handoff.decode_seq), False)
        handoff.decode_seq = NONE
        handoff.destination_cleaned = True
        _issue_next(w, request)
        if rank_id != NONE:
            destination_reserved(w, retry_reservation(w, rank_id))
            commit_gauges(w, rank_id)
    else:
        _complete(w, request)
    return True


@kernel
def _cancels_refused_source(w: World, request: int) -> bool:
    """Return whether the action cancels a source that the prefill worker has already refused.

    The reserved destination is then cancelled at the same time (confirmed). Cancelling the source
    has no effect, so it does not wait for the worker.
    """
    handoff = w.handoffs[request]
    return bool(
        handoff.action == ACTION_CANCEL_SOURCE
        and handoff.prefill_seq == NONE
        and w.options.reserves_first
    )


@kernel
def _issue(w: World, request: int, action: int) -> None:
    w.handoffs[request].action = action
    append_action(w.action_queues[QUEUE_PENDING], w.handoffs, request)


@kernel
def _issue_next(w: World, request: int) -> None:
    """Issue the first applicable action (§10.3), unless another is in progress."""
    handoff = w.handoffs[request]
    if handoff.action != 0 or handoff.is_complete:
        return
    if handoff.is_cleaning_up:
        if handoff.submit_issued and not handoff.source_cleaned:
            _issue(w, request, ACTION_CANCEL_SOURCE)
        elif handoff.reserve_issued and not handoff.destination_cleaned:
            _issue(w, request, ACTION_CANCEL_DESTINATION)
        else:
            _issue(w, request, ACTION_COMPLETE)
    elif not handoff.submit_issued and (not w.options.reserves_first or handoff.is_reserved):
        handoff.submit_issued = True
        _issue(w, request, ACTION_SUBMIT)
    elif not handoff.reserve_issued and (w.options.reserves_first or handoff.is_held):
        handoff.reserve_issued = True
        _issue(w, request, ACTION_RESERVE)
    elif handoff.is_held and handoff.is_reserved and not handoff.transfer_issued:
        handoff.transfer_issued = True
        _issue(w, request, ACTION_TRANSFER)
    elif handoff.is_transferred and not handoff.activate_issued:
        handoff.activate_issued = True
        _issue(w, request, ACTION_ACTIVATE)
    elif handoff.is_activated and not handoff.release_issued:
        handoff.release_issued = True
        _issue(w, request, ACTION_RELEASE)
    elif handoff.source_cleaned:
        _issue(w, request, ACTION_COMPLETE)


@kernel
def _action_target(w: World, request: int) -> tuple[int, int]:
    """Return the target of a request's action: (pool, rank row or ``NONE``)."""
    handoff = w.handoffs[request]
    action = handoff.action
    if action == ACTION_SUBMIT:
        return PREFILL, NONE
    if action in (ACTION_RELEASE, ACTION_CANCEL_SOURCE):
        return PREFILL, int(handoff.prefill_rank)
    if action in (ACTION_ACTIVATE, ACTION_CANCEL_DESTINATION):
        return DECODE, int(handoff.decode_rank)
    return DECODE, NONE


@kernel
def _place_prefill(w: World, request: int) -> None:
    """Place the prefill copy, which holds its KV after it ends.

    The copy belongs to its rank during tokenization, so a draining worker waits for it.
    """
    handoff = w.handoffs[request]
    rank = w.ranks[place_in_pool(w, PREFILL)]
    s = add_request_seq(w, rank.id, request)
    w.seqs[s].is_source = True
    handoff.prefill_seq = s
    handoff.prefill_rank = rank.id
    if tokenize(w, request, int(rank.worker)):
        handoff.action = ACTION_SUBMIT
    else:
        submit_prefill(w, request)


@kernel
def _reserve_destination(w: World, request: int) -> None:
    """Place the decode copy; it joins the rank's pending destinations or fails permanently."""
    handoff = w.handoffs[request]
    row = w.requests[request]
    rank = w.ranks[place_in_pool(w, DECODE)]
    touch_worker(w, int(rank.worker))
    s = add_request_seq(w, rank.id, request)
    row.decode_route = rank.scheduler_id
    if not accept_destination(w, w.engines[DECODE], rank, s):
        drop_request_seq(w, s)
        end_request(w, request, REQUEST_FAILED)
        handoff_failed(w, request)
        return
    handoff.decode_seq = s
    handoff.decode_rank = rank.id
    row.decode_scheduler = rank.scheduler_id
    if not w.workers[rank.worker].is_busy:
        destination_reserved(w, retry_reservation(w, rank.id))
    commit_gauges(w, rank.id)
    refresh_worker(w, rank.worker)


@kernel
def _start_transfer(w: World, request: int) -> None:
    """Start the KV transfer: a fixed delay (§11.1), or work on its links (§11.2, §11.3)."""
    engine = w.engines[PREFILL]
    handoff = w.handoffs[request]
    delay_ms = 0.0
    if engine.transfer_is_timed:
        tokens = w.requests[request].input_tokens
        if engine.transfers_missing_only:
            tokens = handoff.transferable_tokens
        delay_ms = tokens * engine.transfer_bytes_per_token / (engine.transfer_gb_s * 1e9) * 1000.0
    if delay_ms <= 0.0:
        transfer_completed(w, request)
    elif not share_transfer(w, request, delay_ms):
        at_ms = w.clock.now_ms + delay_ms
        push_event(w, at_ms, EVENT_TRANSFER_END, int(handoff.id), request)


@kernel
def _activate_destination(w: World, request: int) -> None:
    handoff = w.handoffs[request]
    rank = w.ranks[handoff.decode_rank]
    activate_destination(w, w.engines[DECODE], rank, int(handoff.decode_seq))
    w.requests[request].destination_activated_ms = w.clock.now_ms
    handoff.is_activated = True
    _issue_next(w, request)
    destination_reserved(w, retry_reservation(w, rank.id))
    commit_gauges(w, rank.id)
    refresh_worker(w, rank.worker)


@kernel
def _leave_rank(w: World, rank_id: int, s: int, has_moved: bool) -> None:
    """Remove a sequence from its idle rank, if still there; its KV is transferred or dropped."""
    if s == NONE:
        return
    rank = w.ranks[rank_id]
    engine = w.engines[w.workers[rank.worker].pool]
    if has_moved:
        release_source(w, engine, rank, s)
    else:
        cancel(w, engine, rank, s)
    drop_request_seq(w, s)
    commit_gauges(w, rank_id)
    refresh_worker(w, rank.worker)


@kernel
def _complete(w: World, request: int) -> None:
    handoff = w.handoffs[request]
    handoff.is_complete = True
    if handoff.is_cleaning_up and handoff.is_counted:
        conclude_request(w, request, REQUEST_CANCELED)
        handoff.is_counted = False
    _retire_if_over(w, request)


@kernel
def _retire_if_over(w: World, request: int) -> None:
    handoff = w.handoffs[request]
    if not handoff.is_counted and handoff.is_complete and not handoff.is_retired:
        handoff.is_retired = True
        w.clock.open_handoffs -= 1
        if handoff.transfer_issued and not handoff.is_transferred:
            drop_transfer(w, request)

"""Arrivals of requests from a list or from sessions, open loop or closed loop.

Rules: workloads.md §7, §8. A closed-loop list admits requests in order while fewer than
``options.max_in_flight`` are in flight; these arrivals have no scheduled time. Closed-loop sessions
occupy at most ``max_in_flight`` slots, each through all turns and think times of a session.
``clock.next_arrival`` is the next request of a list, or the next closed-loop session without a
slot.
"""

import math

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.events import next_session_ms, pop_session, push_session
from aisim_gym.fleet.tables import NUM_WINDOWS
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel
from aisim_gym.metrics.request_times import REQUEST_COMPLETED, REQUEST_REJECTED


@kernel
def next_arrival_ms(w: World) -> float:
    """Return the time of the next scheduled arrival, +inf if there is none."""
    clock = w.clock
    if len(w.sessions) > 0:
        return next_session_ms(w)
    if w.options.max_in_flight > 0 or clock.next_arrival == len(w.requests):
        return math.inf
    return float(w.requests[clock.next_arrival].arrival_ms)


@kernel
def due_request(w: World) -> int:
    """Return the request to admit now, or ``NONE``."""
    clock = w.clock
    if len(w.sessions) > 0:
        if next_session_ms(w) > clock.now_ms:
            return NONE
        return int(w.sessions[w.ready_sessions[0].subject].next_turn)
    if clock.next_arrival == len(w.requests):
        return NONE
    if w.options.max_in_flight > 0:
        is_due = clock.in_flight < w.options.max_in_flight
    else:
        is_due = w.requests[clock.next_arrival].arrival_ms <= clock.now_ms
    return int(clock.next_arrival) if is_due else NONE


@kernel
def take_due_request(w: World, request: int) -> None:
    """Admit the request that :func:`due_request` returned."""
    clock = w.clock
    row = w.requests[request]
    if len(w.sessions) > 0:
        ready_ms = w.ready_sessions[0].at_ms
        session = w.sessions[pop_session(w)]
        session.next_turn += 1
        if session.next_turn == session.end:
            clock.sources_left -= 1
        row.arrival_ms = clock.now_ms if w.options.max_in_flight > 0 else ready_ms
    else:
        clock.next_arrival += 1
        clock.sources_left -= 1
        if w.options.max_in_flight > 0:
            row.arrival_ms = clock.now_ms
    row.is_arrived = True
    clock.arrived_requests += 1
    clock.in_flight += 1
    clock.progress += 1
    for window in range(NUM_WINDOWS):
        w.traffic[window].num_req += 1
    w.resume.changed = True


@kernel
def continue_session(w: World, request: int) -> None:
    """Schedule the next turn of the session of a request that just ended.

    If the session has no further turn, its closed-loop slot goes to the next session. A failed or
    canceled turn ends its session.
    """
    row = w.requests[request]
    if row.session == NONE:
        return
    clock = w.clock
    session = w.sessions[row.session]
    goes_on = row.status in (REQUEST_COMPLETED, REQUEST_REJECTED)
    if session.next_turn < session.end and not goes_on:
        session.next_turn = session.end
        clock.sources_left -= 1
    if session.next_turn < session.end:
        push_session(w, int(row.session), clock.now_ms + w.think_ms[session.next_turn])
        if w.options.is_delta:
            # Later prompts repeat the emitted tokens, not the requested ones.
            missing = row.output_tokens - row.emitted_tokens
            for turn in range(session.next_turn, session.end):
                w.requests[turn].input_tokens -= missing
    elif w.options.max_in_flight > 0 and clock.next_arrival < len(w.sessions):
        push_session(w, int(clock.next_arrival), clock.now_ms)
        clock.next_arrival += 1

"""Event queues of a run, and the order of events at one instant.

Rules: replay-runtime.md §2.2-2.4, §4, §5. An instant is settled in iterations of these steps
(:mod:`aisim_gym.replay.settle`), until an iteration changes nothing:

====  ==========================  =================  ==========================================
step  what                        heap               order within one instant
====  ==========================  =================  ==========================================
1     passes end                  ``PASS_ENDS``      prefill before decode, then worker id
2     last outputs detokenized    ``DETOKENIZED``    order of insertion
3     workers become ready        ``EVENTS``         prefill before decode, then worker id
4     transfers end               ``EVENTS``         handoff id (on shared links: no heap)
5     handoff actions             --                 order of issue
6     encoder deliveries          ``ENCODED``        order of insertion
7     arrivals                    ``SESSIONS``       session (a list: its own order)
8     prompts tokenized           ``TOKENIZED``      order of insertion
9     passes start                --                 prefill, then decode; worker row
10    drained workers removed     --                 prefill, then decode
11    telemetry sample, tick      ``EVENTS``         a sample, then the tick
====  ==========================  =================  ==========================================

Every key is (time, 64-bit order). In ``EVENTS`` the high bits of the order are the kind, so the
events of an earlier step sort first.
"""

from collections.abc import Iterator

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.tables import NUM_STAGES
from aisim_gym.fleet.time_heap import (
    TimedRow,
    TimeHeapRow,
    move_earlier,
    next_ms,
    pop,
    push,
    push_in_turn,
    push_placed,
    remove_placed,
)
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table

EVENTS, PASS_ENDS, SESSIONS = 0, 1, 2
TOKENIZED, DETOKENIZED, ENCODED = 3, 4, 5
"""Rows of ``heaps``."""

FIRST_STAGE = TOKENIZED
"""Heap of stage 0 in ``stage_timers``; the heaps of the other stages follow."""

EVENT_WORKER_READY, EVENT_TRANSFER_END, EVENT_TICK = 1, 2, 4
"""Kind of an event, in the order of the steps above."""

_KIND_SHIFT = 48
_POOL_SHIFT = 40


@kernel
def worker_order(pool_id: int, worker_id: int) -> int:
    """Return the order of a worker within one instant."""
    return (pool_id << _POOL_SHIFT) + worker_id


@kernel
def push_event(w: World, at_ms: float, kind: int, identity: int, subject: int) -> None:
    """Add an event.

    Args:
        w: Modified in place; must have room for the event.
        at_ms: When it is due.
        kind: ``EVENT_...``.
        identity: Order among events of the same kind and instant, >= 0.
        subject: Worker or request; 0 for a tick.
    """
    if kind == EVENT_TRANSFER_END:
        w.clock.transfers += 1
    push(w.heaps[EVENTS], w.events, at_ms, (kind << _KIND_SHIFT) + identity, subject)


@kernel
def next_event_ms(w: World) -> float:
    """Return the time of the first event, +inf if there is none."""
    return next_ms(w.heaps[EVENTS], w.events)


@kernel
def next_event_is_tick(w: World) -> bool:
    """Return whether the first event is a tick; there must be an event."""
    return w.events[0].order >> _KIND_SHIFT == EVENT_TICK


@kernel
def due_subject(w: World, kind: int) -> int:
    """Return the subject of the first event if it is due now and of this kind, else ``NONE``."""
    if w.heaps[EVENTS].count == 0:
        return NONE
    first = w.events[0]
    if first.at_ms != w.clock.now_ms or first.order >> _KIND_SHIFT != kind:
        return NONE
    return int(first.subject)


@kernel
def pop_due(w: World, kind: int) -> int:
    """Remove the first event if it is due now and of this kind; return its subject, or ``NONE``."""
    subject = due_subject(w, kind)
    if subject != NONE:
        if kind == EVENT_TRANSFER_END:
            w.clock.transfers -= 1
        pop(w.heaps[EVENTS], w.events)
    return subject


@kernel
def num_busy_workers(w: World) -> int:
    """Return how many workers have a pass in flight."""
    return int(w.heaps[PASS_ENDS].count)


@kernel
def next_pass_end_ms(w: World) -> float:
    """Return when the first pass ends, +inf if none is in flight."""
    return next_ms(w.heaps[PASS_ENDS], w.pass_ends)


@kernel
def push_pass_end(w: World, worker_row: int, at_ms: float) -> None:
    """Add the end of the pass that a worker has just started."""
    worker = w.workers[worker_row]
    order = worker_order(worker.pool, worker.id)
    push_placed(w.heaps[PASS_ENDS], w.pass_ends, w.pass_end_places, at_ms, order, worker_row)


@kernel
def advance_pass_end(w: World, worker_row: int, at_ms: float) -> None:
    """Move the pass end of a worker to an earlier time."""
    move_earlier(w.pass_ends, w.pass_end_places, worker_row, at_ms)


@kernel
def remove_pass_end(w: World, worker_row: int) -> None:
    """Remove the pass end of a worker."""
    remove_placed(w.heaps[PASS_ENDS], w.pass_ends, w.pass_end_places, worker_row)


@kernel
def due_worker(w: World) -> int:
    """Return the first worker whose pass ends now, or ``NONE``."""
    if w.heaps[PASS_ENDS].count == 0 or w.pass_ends[0].at_ms != w.clock.now_ms:
        return NONE
    return int(w.pass_ends[0].subject)


@kernel
def next_session_ms(w: World) -> float:
    """Return when the next turn of a session is due, +inf if none is."""
    return next_ms(w.heaps[SESSIONS], w.ready_sessions)


@kernel
def push_session(w: World, session: int, at_ms: float) -> None:
    """Schedule the next turn of a session."""
    push(w.heaps[SESSIONS], w.ready_sessions, at_ms, session, session)


@kernel
def pop_session(w: World) -> int:
    """Remove and return the session whose next turn is due first."""
    return pop(w.heaps[SESSIONS], w.ready_sessions)


@kernel
def next_leaving_ms(w: World, stage: int) -> float:
    """Return when the first request leaves a stage, +inf if the stage is empty."""
    return next_ms(w.heaps[FIRST_STAGE + stage], w.stage_timers[stage])


@kernel
def push_leaving(w: World, stage: int, at_ms: float, request: int) -> None:
    """Schedule when a request leaves a stage."""
    push_in_turn(w.heaps[FIRST_STAGE + stage], w.stage_timers[stage], at_ms, request)


@kernel
def pop_leaving(w: World, stage: int) -> int:
    """Remove and return the first request of a stage if it is due, else ``NONE``."""
    if next_leaving_ms(w, stage) > w.clock.now_ms:
        return NONE
    return pop(w.heaps[FIRST_STAGE + stage], w.stage_timers[stage])


def heaps(w: World) -> Iterator[tuple[str, TimeHeapRow, Table[TimedRow]]]:
    """Yield name, row and entries of every heap."""
    yield "events", w.heaps[EVENTS], w.events
    yield "pass_ends", w.heaps[PASS_ENDS], w.pass_ends
    yield "ready_sessions", w.heaps[SESSIONS], w.ready_sessions
    for stage in range(NUM_STAGES):
        yield "stage_timers", w.heaps[FIRST_STAGE + stage], w.stage_timers[stage]

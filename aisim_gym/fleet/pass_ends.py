"""Pass ends to come: a binary heap with one entry per busy worker, which knows its place.

Rules: replay-runtime.md §2.2. Of those at one instant prefill workers come first, then by worker
id. A worker's entry can be moved to another time or be taken out without a search.
"""

import math
from typing import Protocol

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.tables import ClockRow, WorkerRow
from aisim_gym.kernel import kernel
from aisim_gym.tables import F8, I8, Table


class PassEndRow(Protocol):
    """One entry, smallest first by (at_ms, identity)."""

    at_ms: F8
    identity: I8
    worker: I8  # row


@kernel
def event_identity(pool: int, worker_id: int) -> int:
    """Return the identity of a worker's event: prefill before decode, then by worker id."""
    return (pool << 40) + worker_id


@kernel
def next_pass_end_ms(clock: ClockRow, pass_ends: Table[PassEndRow]) -> float:
    """Return when the first pass ends, +inf if none is in flight."""
    return pass_ends[0].at_ms if clock.busy_workers > 0 else math.inf


@kernel
def push_pass_end(
    clock: ClockRow,
    pass_ends: Table[PassEndRow],
    workers: Table[WorkerRow],
    worker: int,
    at_ms: float,
) -> None:
    """Add the entry of a worker, which has none."""
    at = clock.busy_workers
    clock.busy_workers += 1
    identity = event_identity(workers[worker].pool, workers[worker].id)
    _sift_up(pass_ends, workers, at, at_ms, identity, worker)


@kernel
def advance_pass_end(
    pass_ends: Table[PassEndRow], workers: Table[WorkerRow], worker: int, at_ms: float
) -> None:
    """Move the entry of a worker to an earlier time."""
    at = int(workers[worker].pass_end_place)
    _sift_up(pass_ends, workers, at, at_ms, pass_ends[at].identity, worker)


@kernel
def remove_pass_end(
    clock: ClockRow, pass_ends: Table[PassEndRow], workers: Table[WorkerRow], worker: int
) -> None:
    """Take out the entry of a worker."""
    at = int(workers[worker].pass_end_place)
    clock.busy_workers -= 1
    last = pass_ends[clock.busy_workers]
    at_ms, identity, moved = last.at_ms, last.identity, int(last.worker)
    if moved == worker:
        return
    count = clock.busy_workers
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and _is_before(
            pass_ends[child + 1].at_ms, pass_ends[child + 1].identity, pass_ends[child]
        ):
            child += 1
        if not _is_before(pass_ends[child].at_ms, pass_ends[child].identity, last):
            break
        _put(
            pass_ends,
            workers,
            at,
            pass_ends[child].at_ms,
            pass_ends[child].identity,
            int(pass_ends[child].worker),
        )
        at = child
    _sift_up(pass_ends, workers, at, at_ms, identity, moved)


@kernel
def due_worker(clock: ClockRow, pass_ends: Table[PassEndRow]) -> int:
    """Return the first worker whose pass ends now, or ``NONE``."""
    if clock.busy_workers == 0 or pass_ends[0].at_ms != clock.now_ms:
        return NONE
    return int(pass_ends[0].worker)


@kernel
def _sift_up(
    pass_ends: Table[PassEndRow],
    workers: Table[WorkerRow],
    at: int,
    at_ms: float,
    identity: int,
    worker: int,
) -> None:
    """Put an entry at ``at`` or above."""
    while at > 0:
        parent = (at - 1) // 2
        above = pass_ends[parent]
        if not _is_before(at_ms, identity, above):
            break
        _put(pass_ends, workers, at, above.at_ms, above.identity, int(above.worker))
        at = parent
    _put(pass_ends, workers, at, at_ms, identity, worker)


@kernel
def _put(
    pass_ends: Table[PassEndRow],
    workers: Table[WorkerRow],
    at: int,
    at_ms: float,
    identity: int,
    worker: int,
) -> None:
    row = pass_ends[at]
    row.at_ms = at_ms
    row.identity = identity
    row.worker = worker
    workers[worker].pass_end_place = at


@kernel
def _is_before(at_ms: float, identity: int, other: PassEndRow) -> bool:
    if at_ms != other.at_ms:
        return at_ms < other.at_ms
    return identity < other.identity

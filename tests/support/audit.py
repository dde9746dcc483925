"""Bookkeeping of a run counted anew from its tables: nothing lost, nothing counted twice."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.kv_pool import block_content
from aisim_gym.engine.slices import NUM_CLASSES, size_class
from aisim_gym.engine.tables import (
    NONE,
    PENDING,
    QUEUES_PER_RANK,
    RUNNING,
    SEQ_ENDED,
    SEQ_HELD,
    SEQ_PENDING,
    SEQ_RESERVED,
    SEQ_RUNNING,
    SEQ_WAITING,
    WAITING,
    SeqRow,
)
from aisim_gym.fleet.tables import (
    ACTION_SUBMIT,
    DECODE,
    EVENT_TRANSFER_END,
    PREFILL,
    QUEUE_DEFERRED,
    WORKER_ACTIVE,
    WORKER_DRAINING,
    WORKER_STARTING,
)
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.metrics.request_times import REQUEST_OPEN

_NOT_COMPARED = {"clock": {"instants_left", "room_kind", "room_amount"}}
"""Fields that say how the run was driven, not where it is."""


def differing_tables(ours: WorldState, theirs: WorldState) -> list[str]:
    """Return the names of tables, or of their fields, that are not equal byte by byte."""
    found = []
    for name, table in ours.tables().items():
        other = theirs.tables()[name]
        if len(table) != len(other):
            found.append(f"len({name})")
            continue
        for field in table.dtype.names or (None,):
            if field in _NOT_COMPARED.get(name, ()):
                continue
            a, b = (table, other) if field is None else (table[field], other[field])
            if np.asarray(a).tobytes() != np.asarray(b).tobytes():
                found.append(name if field is None else f"{name}.{field}")
    return found


def live_seqs(state: WorldState) -> list[tuple[int, SeqRow]]:
    """Return (row, sequence) of all sequences on any rank."""
    rows = np.flatnonzero(np.asarray(state.seqs)["request"] != NONE).tolist()
    return [(row, state.seqs[row]) for row in rows]


def queued_seqs(state: WorldState, rank: int, kind: int) -> list[SeqRow]:
    """Return the sequences of a queue in order; also checks its links and its count."""
    queue = state.queues[QUEUES_PER_RANK * rank + kind]
    rows: list[int] = []
    s, previous = int(queue.first), NONE
    while s != NONE:
        assert state.seqs[s].previous == previous
        rows.append(s)
        s, previous = int(state.seqs[s].next), s
    assert int(queue.last) == previous
    assert int(queue.count) == len(rows)
    return [state.seqs[row] for row in rows]


def actions(state: WorldState) -> list[list[int]]:
    """Return the requests in each action queue."""
    num_ranks = int(sum(state.pools["num_ranks"]))
    found = []
    for kind in range(QUEUE_DEFERRED + num_ranks):
        requests, at = [], int(state.action_queues[kind].first)
        while at != NONE:
            requests.append(at)
            at = int(state.handoffs[at].next)
        found.append(requests)
    return found


def places(state: WorldState) -> dict[str, set[int]]:
    """Return where each request that has arrived is (rulings.md 12)."""
    arrived = int(state.clock[0].next_arrival)
    status = np.asarray(state.requests)["status"][:arrived]
    finished = set(np.flatnonzero(status != REQUEST_OPEN).tolist())
    events = np.asarray(state.events)[: int(state.clock[0].event_count)]
    ends = events[events["rank"] == EVENT_TRANSFER_END]
    found: dict[str, set[int]] = {"in transfer": set(ends["subject"].tolist()) - finished}
    found["queued"] = {
        request
        for queue in actions(state)
        for request in queue
        if state.handoffs[request].action == ACTION_SUBMIT
    }
    for rank in range(int(sum(state.pools["num_ranks"]))):
        pool = ("prefill", "decode")[int(state.workers[state.ranks[rank].worker].pool)]
        for kind, name in ((WAITING, "waiting"), (RUNNING, "running")):
            requests = [int(seq.request) for seq in queued_seqs(state, rank, kind)]
            assert len(set(requests)) == len(requests)
            found.setdefault(f"{name} at {pool}", set()).update(requests)
    of_status: dict[int, set[int]] = {}
    for _, seq in live_seqs(state):
        of_status.setdefault(int(seq.status), set()).add(int(seq.request))
    found["ends with the pass in flight"] = of_status.get(SEQ_ENDED, set())
    found["reserved, not yet running"] = (
        of_status.get(SEQ_RESERVED, set()) - found["in transfer"] - finished
    )
    found["prefilled and held"] = {
        request
        for request in of_status.get(SEQ_HELD, set()) - finished
        if state.handoffs[request].is_reserved == 0
    }
    found["finished"] = finished
    return found


def check_requests(state: WorldState) -> None:
    """Assert that each request that has arrived is in exactly one place."""
    arrived = int(state.clock[0].next_arrival)
    found = places(state)
    counts = Counter(request for requests in found.values() for request in requests)
    assert counts == Counter(range(arrived)), found
    num_open = arrived - len(found["finished"])
    if state.clock[0].is_disaggregated == 0:
        assert state.clock[0].in_flight == num_open
    else:
        counted = np.flatnonzero(np.asarray(state.handoffs)["is_counted"] == 1).tolist()
        assert state.clock[0].in_flight == len(counted) >= num_open


def check_ranks(state: WorldState) -> None:
    """Assert that the counts of each rank are those of its sequences and blocks."""
    free_blocks = _chain(state.blocks["lru_next"], int(state.arena[0].block_free))
    assert len(free_blocks) == state.arena[0].block_free_count
    is_resident = np.ones(len(state.blocks), np.bool_)
    is_resident[free_blocks] = False
    free_seqs = _chain(state.seqs["next"], int(state.arena[0].seq_free))
    seqs = live_seqs(state)
    assert len(free_seqs) == state.arena[0].seq_free_count == len(state.seqs) - len(seqs)
    users: Counter[int] = Counter()
    for rank_id in range(int(sum(state.pools["num_ranks"]))):
        rank = state.ranks[rank_id]
        engine = state.engines[state.workers[rank.worker].pool]
        own = [seq for _, seq in seqs if seq.rank == rank_id]
        assert rank.owned_seqs == len(own)
        assert rank.private_blocks == sum(int(seq.private_blocks) for seq in own)
        assert rank.reserved_blocks == sum(int(seq.reserved_blocks) for seq in own)
        assert rank.reserved_seqs == sum(seq.status == SEQ_RESERVED for seq in own)
        for seq in own:
            blocks = state.entries[seq.entry_start :][: int(seq.resident_blocks)].tolist()
            users.update(blocks)
            for k, b in enumerate(blocks):
                assert state.blocks[b].content == block_content(seq, state.contents, k)
        mine = np.flatnonzero(is_resident & (state.blocks["rank"] == rank_id))
        assert rank.resident_blocks == len(mine)
        lru = _chain(state.blocks["lru_next"], int(rank.lru_first))
        assert sorted(lru) == sorted(mine[state.blocks["refs"][mine] == 0].tolist())
        assert rank.evictable_blocks == len(lru)
        used = rank.resident_blocks + rank.private_blocks + rank.reserved_blocks
        assert 0 <= used <= engine.num_blocks
        _check_queues(state, rank_id)
    resident = np.flatnonzero(is_resident)
    assert {b: int(state.blocks[b].refs) for b in resident.tolist() if state.blocks[b].refs} == (
        dict(users)
    )


def check_pools(state: WorldState) -> None:
    """Assert that the counts of each pool are those of its workers."""
    workers = np.asarray(state.workers)[: int(sum(state.pools["num_workers"]))]
    for pool_id in (PREFILL, DECODE):
        pool = state.pools[pool_id]
        states = workers["state"][workers["pool"] == pool_id].tolist()
        assert pool.active_count == states.count(WORKER_ACTIVE)
        assert pool.starting_count == states.count(WORKER_STARTING)
        assert pool.draining_count == states.count(WORKER_DRAINING)
        assert pool.live_count == pool.active_count + pool.starting_count + pool.draining_count


def check_nothing_left(state: WorldState) -> None:
    """Assert that a finished run holds no blocks, sequences, actions or array slices."""
    assert live_seqs(state) == []
    for rank in (state.ranks[row] for row in range(len(state.ranks))):
        assert rank.resident_blocks - rank.evictable_blocks == 0
        assert rank.private_blocks == rank.reserved_blocks == rank.reserved_seqs == 0
        assert rank.queued_new == rank.queued_decode == 0
    assert not any(actions(state))
    assert state.clock[0].in_flight == state.clock[0].open_handoffs == 0
    for array, heads in ((state.entries, state.entry_heads), (state.gaps, state.gap_heads)):
        assert _free_elements(array, heads) == heads[NUM_CLASSES]
    assert size_class(1) == 0


def paid_seconds(state: WorldState, pool_id: int) -> float:
    """Return the time that the workers of a pool lived, from their creations and removals."""
    workers = np.asarray(state.workers)[: int(sum(state.pools["num_workers"]))]
    workers = workers[workers["pool"] == pool_id]
    ends = np.where(workers["removed_ms"] < 0.0, state.clock[0].now_ms, workers["removed_ms"])
    return float(np.sum(ends - workers["created_ms"])) / 1000.0


def _check_queues(state: WorldState, rank_id: int) -> None:
    """Assert that queues hold sequences of their status and the load is that of the queues."""
    rank = state.ranks[rank_id]
    waiting = queued_seqs(state, rank_id, WAITING)
    pending = queued_seqs(state, rank_id, PENDING)
    assert all(seq.status == SEQ_WAITING for seq in waiting)
    assert all(seq.status == SEQ_PENDING for seq in pending)
    assert all(seq.status == SEQ_RUNNING for seq in queued_seqs(state, rank_id, RUNNING))
    reserved = [
        seq for _, seq in live_seqs(state) if seq.rank == rank_id and seq.status == SEQ_RESERVED
    ]
    new = [int(seq.prompt_tokens) for seq in waiting if not seq.was_admitted | seq.is_destination]
    decodes = [
        int(seq.prompt_tokens + (0 if seq.is_destination else seq.generated_tokens))
        for seq in (*waiting, *pending, *reserved)
        if seq.was_admitted | seq.is_destination
    ]
    assert _moments(new) == (rank.queued_new, rank.queued_new_tokens, rank.queued_new_squares)
    assert _moments(decodes) == (
        rank.queued_decode,
        rank.queued_decode_tokens,
        rank.queued_decode_squares,
    )


def _moments(values: Iterable[int]) -> tuple[int, int, int]:
    values = list(values)
    return len(values), sum(values), sum(value * value for value in values)


def _chain(links: NDArray[Any], first: int) -> list[int]:
    """Return the rows of a linked list."""
    rows, at = [], first
    while at != NONE:
        rows.append(at)
        at = int(links[at])
    return rows


def _free_elements(array: NDArray[Any], heads: NDArray[np.int64]) -> int:
    """Return how many elements the free slices of an array hold."""
    free = 0
    for size_log2, head in enumerate(heads[:NUM_CLASSES].tolist()):
        at = int(head)
        while at >= 0:
            free += 1 << size_log2
            at = int(array[at])
    return free

"""Bookkeeping of a run counted anew from its tables: nothing lost, nothing counted twice."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.kv_pool import block_content
from aisim_gym.engine.seq_queue import queue_of
from aisim_gym.engine.slices import NUM_CLASSES, size_class
from aisim_gym.engine.tables import (
    NONE,
    PENDING,
    PREBUILT,
    PREEMPT_NONE,
    RUNNING,
    SEQ_ENDED,
    SEQ_HELD,
    SEQ_PENDING,
    SEQ_PREBUILT,
    SEQ_RESERVED,
    SEQ_RUNNING,
    SEQ_WAITING,
    WAITING,
    EngineRow,
    RankRow,
    SeqRow,
)
from aisim_gym.fleet.events import EVENT_TRANSFER_END, EVENTS, FIRST_STAGE
from aisim_gym.fleet.tables import (
    ACTION_RESERVE,
    ACTION_SUBMIT,
    DECODE,
    DETOKENIZING,
    ENCODING,
    PREFILL,
    QUEUE_DEFERRED,
    TOKENIZING,
    WORKER_ACTIVE,
    WORKER_DRAINING,
    WORKER_STARTING,
)
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.fleet.worlds import WORLD_TYPES
from aisim_gym.metrics.request_times import REQUEST_OPEN

_NOT_COMPARED = {"clock": {"instants_left"}, "resume": {"room_table", "room_amount"}}
"""Fields that say how the run was driven, not where it is."""


def differing_tables(ours: WorldState, theirs: WorldState) -> list[str]:
    """Return the names of tables, or of their fields, that are not equal byte by byte."""
    found = []
    for name, table in ours.tables.items():
        other = theirs.tables[name]
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
    rows = np.flatnonzero(np.asarray(state.world.seqs)["request"] != NONE).tolist()
    return [(row, state.world.seqs[row]) for row in rows]


def queued_seqs(state: WorldState, rank: int, kind: int) -> list[SeqRow]:
    """Return the sequences of a queue in order; also checks its links and its count."""
    queue = state.world.queues[queue_of(rank, kind)]
    rows: list[int] = []
    s, previous = int(queue.first), NONE
    while s != NONE:
        assert state.world.seqs[s].previous == previous
        rows.append(s)
        s, previous = int(state.world.seqs[s].next), s
    assert int(queue.last) == previous
    assert int(queue.count) == len(rows)
    return [state.world.seqs[row] for row in rows]


def actions(state: WorldState) -> list[list[int]]:
    """Return the requests in each action queue."""
    num_ranks = int(sum(state.world.pools["num_ranks"]))
    found = []
    for kind in range(QUEUE_DEFERRED + num_ranks):
        requests, at = [], int(state.world.action_queues[kind].first)
        while at != NONE:
            requests.append(at)
            at = int(state.world.handoffs[at].next)
        found.append(requests)
    return found


def places(state: WorldState) -> dict[str, set[int]]:
    """Return where each request that has arrived is (rulings.md 12).

    What a rank does in a pass is decided at its start, so a request whose last token is on its way
    is neither waiting nor running any more.
    """
    reserves_first = state.world.options.reserves_first
    finished = set(np.flatnonzero(state.world.requests["status"] != REQUEST_OPEN).tolist())
    events = np.asarray(state.world.events)[: int(state.world.heaps[EVENTS].count)]
    ends = events[events["order"] >> 48 == EVENT_TRANSFER_END]
    shared = np.asarray(state.world.transfers)
    in_transfer = {
        *ends["subject"].tolist(),
        *shared["request"][shared["is_running"] == 1].tolist(),
    }
    first_actions = (ACTION_SUBMIT, ACTION_RESERVE) if reserves_first else (ACTION_SUBMIT,)
    queued = {
        request
        for queue in actions(state)
        for request in queue
        if state.world.handoffs[request].action in first_actions
    }
    found: dict[str, set[int]] = {
        "encoding": _waits_for_encoder(state) | _in_stage(state, ENCODING),
        "tokenizing": _in_stage(state, TOKENIZING),
        "detokenizing": _in_stage(state, DETOKENIZING),
        "in transfer": in_transfer,
        "queued": queued,
    }
    for rank in range(int(sum(state.world.pools["num_ranks"]))):
        pool = ("prefill", "decode")[int(state.world.workers[state.world.ranks[rank].worker].pool)]
        for kind, name in ((WAITING, "waiting"), (PREBUILT, "waiting"), (RUNNING, "running")):
            requests = [int(seq.request) for seq in queued_seqs(state, rank, kind)]
            assert len(set(requests)) == len(requests)
            found.setdefault(f"{name} at {pool}", set()).update(requests)
    of_status: dict[int, set[int]] = {}
    for _, seq in live_seqs(state):
        of_status.setdefault(int(seq.status), set()).add(int(seq.request))
    held, reserved = of_status.get(SEQ_HELD, set()), of_status.get(SEQ_RESERVED, set())
    ending = set(of_status.get(SEQ_ENDED, set()))
    if reserves_first:
        # A destination without blocks, or with them before the prompt is computed, is not a place
        # of its own: its request is at the prefill worker, or queued for it.
        queued |= of_status.get(SEQ_PENDING, set())
        prefilled = {request for request in held if state.world.handoffs[request].is_held}
        ending |= held - prefilled
        reserved = reserved & prefilled
    found["ends with the pass in flight"] = ending
    found["reserved, not yet running"] = reserved - in_transfer
    found["prefilled and held"] = {
        request
        for request in held
        if not reserves_first and not state.world.handoffs[request].is_reserved
    }
    return {**{name: requests - finished for name, requests in found.items()}, "finished": finished}


def _waits_for_encoder(state: WorldState) -> set[int]:
    encoder, found = state.world.encoder, []
    request = int(encoder.first_waiting)
    for _ in range(int(encoder.num_waiting)):
        found.append(request)
        request = int(state.world.encoder_queue[request])
    return set(found)


def _in_stage(state: WorldState, stage: int) -> set[int]:
    """Return the requests that leave a stage at a time that is known."""
    timers = np.asarray(state.world.stage_timers)[stage][
        : int(state.world.heaps[FIRST_STAGE + stage].count)
    ]
    return set(timers["subject"].tolist())


def check_requests(state: WorldState) -> None:
    """Assert that each request that has arrived is in exactly one place."""
    arrived = np.flatnonzero(state.world.requests["is_arrived"] == 1).tolist()
    found = places(state)
    counts = Counter(request for requests in found.values() for request in requests)
    assert counts == Counter(arrived), found
    assert state.world.clock.arrived_requests == len(arrived)
    num_open = len(arrived) - len(found["finished"])
    if not state.world.options.is_disaggregated:
        assert state.world.clock.in_flight == num_open
    else:
        counted = np.flatnonzero(np.asarray(state.world.handoffs)["is_counted"] == 1).tolist()
        outside = len(found["encoding"]) + len(found["detokenizing"])
        assert state.world.clock.in_flight == len(counted) + outside >= num_open


def check_arrivals(state: WorldState) -> None:
    """Assert that sessions have one turn in flight at most, and the loop is within its bound."""
    clock, requests = state.world.clock, np.asarray(state.world.requests)
    is_open = (requests["is_arrived"] == 1) & (requests["status"] == REQUEST_OPEN)
    busy: Counter[int] = Counter(requests["session"][is_open].tolist())
    if len(state.world.sessions) == 0:
        assert set(busy) <= {NONE}
        assert (
            state.world.options.max_in_flight == 0
            or clock.in_flight <= state.world.options.max_in_flight
        )
        return
    assert max(busy.values(), default=0) <= 1
    for row, session in enumerate(np.asarray(state.world.sessions)):
        turns = requests[session["first"] : session["end"]]
        arrived = int(turns["is_arrived"].sum())
        assert (turns["is_arrived"][:arrived] == 1).all()
        assert (turns["session"] == row).all()
    active = [
        session["next_turn"] < session["end"] or busy[row] > 0
        for row, session in enumerate(np.asarray(state.world.sessions)[: int(clock.next_arrival)])
    ]
    assert (
        state.world.options.max_in_flight == 0 or sum(active) <= state.world.options.max_in_flight
    )


def check_ranks(state: WorldState) -> None:
    """Assert that the counts of each rank are those of its sequences and blocks."""
    steady = np.asarray(state.world.workers)[state.world.workers["steady_passes"] > 0]
    free_blocks = _chain(state.world.blocks["lru_next"], int(state.world.arena.block_free))
    set_aside = steady["steady_block_rows"].sum()
    assert len(free_blocks) == state.world.arena.block_free_count + set_aside
    is_used = np.ones(len(state.world.blocks), np.bool_)
    is_used[free_blocks] = False
    free_nodes = _chain(state.world.nodes["parent"], int(state.world.arena.node_free))
    set_aside = steady["steady_node_rows"].sum()
    assert len(free_nodes) == state.world.arena.node_free_count + set_aside
    nodes_in_use = set(range(len(state.world.nodes))) - set(free_nodes)
    free_seqs = _chain(state.world.seqs["next"], int(state.world.arena.seq_free))
    seqs = [seq for _, seq in live_seqs(state)]
    assert len(free_seqs) == state.world.arena.seq_free_count == len(state.world.seqs) - len(seqs)
    for rank_id in range(int(sum(state.world.pools["num_ranks"]))):
        rank = state.world.ranks[rank_id]
        engine = state.world.engines[state.world.workers[rank.worker].pool]
        own = [seq for seq in seqs if seq.rank == rank_id]
        assert rank.owned_seqs == len(own)
        assert rank.private_blocks == sum(int(seq.private_blocks) for seq in own)
        assert rank.reserved_blocks == sum(int(seq.reserved_blocks) for seq in own)
        assert rank.reserved_seqs == sum(seq.status == SEQ_RESERVED for seq in own)
        rows = np.flatnonzero(is_used & (state.world.blocks["rank"] == rank_id)).tolist()
        used = rank.resident_blocks + rank.private_blocks + rank.reserved_blocks
        assert 0 <= used <= engine.num_blocks
        if uses_tree(state):
            mine = {n for n in nodes_in_use if state.world.nodes[n].rank == rank_id}
            _check_tree(state, rank, own, mine, rows)
        else:
            _check_pool(state, rank, own, rows)
            _check_promises(engine, rank, own)
        _check_queues(state, rank_id)


def uses_tree(state: WorldState) -> bool:
    """Return whether pages are kept in radix trees (SGLang)."""
    return WORLD_TYPES[int(state.world.options.backend)].backend.has_tree


def _check_pool(state: WorldState, rank: RankRow, own: list[SeqRow], rows: list[int]) -> None:
    """Assert that rows are the blocks that may be looked for, or were left; the others are counted.

    Listed blocks are the sequences'; rows without user, and those of no identity, are evictable.
    """
    blocks = state.world.blocks
    users: Counter[int] = Counter()
    unlisted = 0
    for seq in own:
        assert 0 <= seq.listed_blocks <= seq.resident_blocks
        unlisted += int(seq.resident_blocks - seq.listed_blocks)
        listed = state.world.entries[seq.entry_start :][: int(seq.listed_blocks)].tolist()
        users.update(listed)
        for k, b in enumerate(listed):
            assert blocks[b].content == block_content(seq, state.world.contents, k)
    assert {b: int(blocks[b].refs) for b in rows} == {b: users[b] for b in rows}
    assert users.keys() <= set(rows)
    assert all(blocks[b].num_blocks == 1 for b in rows if blocks[b].content != NONE)
    assert all(blocks[b].num_blocks >= 1 for b in rows)
    assert rank.resident_blocks == unlisted + sum(int(blocks[b].num_blocks) for b in rows)
    lru = _chain(blocks["lru_next"], int(rank.lru_first))
    assert sorted(lru) == sorted(b for b in rows if users[b] == 0)
    assert rank.evictable_blocks == sum(int(blocks[b].num_blocks) for b in lru)


def _check_promises(engine: EngineRow, rank: RankRow, own: list[SeqRow]) -> None:
    """Assert that a rank that never preempts has room for whatever it promised."""
    if engine.preemption != PREEMPT_NONE:
        assert rank.promised_blocks == 0
        return
    size = int(engine.block_size)
    promised = 0
    for seq in own:
        full = -(-int(seq.prompt_tokens + seq.max_output_tokens) // size)
        if seq.status == SEQ_RESERVED:
            promised += full - int(seq.reserved_blocks)
    assert rank.promised_blocks == promised


def _check_tree(
    state: WorldState, rank: RankRow, own: list[SeqRow], mine: set[int], rows: list[int]
) -> None:
    """Assert that a radix tree holds the rank's pages, locked where sequences need them."""
    locks: Counter[int] = Counter()
    for seq in own:
        path, n = [], int(seq.node)
        while n not in (NONE, int(rank.root)):
            path.append(n)
            n = int(state.world.nodes[n].parent)
        locks.update(path)
        pages = [page for n in reversed(path) for page in _pages(state, n)]
        assert len(pages) == seq.resident_blocks
        for k, page in enumerate(pages):
            assert state.world.blocks[page].content == block_content(seq, state.world.contents, k)
    edges = mine - {int(rank.root)}
    assert len(mine) == len(edges) + (rank.root != NONE)
    assert sorted(page for n in edges for page in _pages(state, n)) == sorted(rows)
    assert rank.resident_blocks == len(rows)
    parents = Counter(int(state.world.nodes[n].parent) for n in edges)
    for n in mine:
        node = state.world.nodes[n]
        assert node.locks == locks[n]
        assert node.num_children == parents[n]
    unlocked = sum(int(state.world.nodes[n].num_blocks) for n in edges if locks[n] == 0)
    assert rank.evictable_blocks == unlocked


def _pages(state: WorldState, n: int) -> list[int]:
    """Return the block rows of a node's edge."""
    node, pages = state.world.nodes[n], []
    b = int(node.first_block)
    for _ in range(int(node.num_blocks)):
        pages.append(b)
        b = int(state.world.blocks[b].lru_next)
    assert pages[-1] == node.last_block
    return pages


def check_pools(state: WorldState) -> None:
    """Assert that the counts of each pool are those of its workers."""
    workers = np.asarray(state.world.workers)[: int(sum(state.world.pools["num_workers"]))]
    for pool_id in (PREFILL, DECODE):
        pool = state.world.pools[pool_id]
        states = workers["state"][workers["pool"] == pool_id].tolist()
        assert pool.active_count == states.count(WORKER_ACTIVE)
        assert pool.starting_count == states.count(WORKER_STARTING)
        assert pool.draining_count == states.count(WORKER_DRAINING)
        assert pool.live_count == pool.active_count + pool.starting_count + pool.draining_count


def check_nothing_left(state: WorldState) -> None:
    """Assert that a finished run holds no blocks, sequences, actions or array slices."""
    assert live_seqs(state) == []
    for rank in (state.world.ranks[row] for row in range(len(state.world.ranks))):
        assert rank.resident_blocks - rank.evictable_blocks == 0
        assert rank.private_blocks == rank.reserved_blocks == rank.reserved_seqs == 0
        assert rank.queued_new == rank.queued_decode == rank.promised_blocks == 0
    assert (state.world.nodes["locks"] == 0).all()
    assert not any(actions(state))
    assert not any(state.world.heaps["count"][FIRST_STAGE:])
    assert state.world.encoder.num_waiting == state.world.transfer_set.num_transfers == 0
    assert state.world.clock.in_flight == state.world.clock.open_handoffs == 0
    for array, heads in (
        (state.world.entries, state.world.entry_heads),
        (state.world.breaks, state.world.break_heads),
    ):
        assert _free_elements(array, heads) == heads[NUM_CLASSES]
    assert size_class(1) == 0


def paid_seconds(state: WorldState, pool_id: int) -> float:
    """Return the time that the workers of a pool lived, from their creations and removals."""
    workers = np.asarray(state.world.workers)[: int(sum(state.world.pools["num_workers"]))]
    workers = workers[workers["pool"] == pool_id]
    ends = np.where(workers["removed_ms"] < 0.0, state.world.clock.now_ms, workers["removed_ms"])
    return float(np.sum(ends - workers["created_ms"])) / 1000.0


def _check_queues(state: WorldState, rank_id: int) -> None:
    """Assert that queues hold sequences of their status and the load is that of the queues."""
    rank = state.world.ranks[rank_id]
    waiting = queued_seqs(state, rank_id, WAITING)
    pending = queued_seqs(state, rank_id, PENDING)
    prebuilt = queued_seqs(state, rank_id, PREBUILT)
    assert all(seq.status == SEQ_WAITING for seq in waiting)
    assert all(seq.status == SEQ_PENDING for seq in pending)
    assert all(seq.status == SEQ_PREBUILT for seq in prebuilt)
    assert all(seq.status == SEQ_RUNNING for seq in queued_seqs(state, rank_id, RUNNING))
    reserved = [
        seq for _, seq in live_seqs(state) if seq.rank == rank_id and seq.status == SEQ_RESERVED
    ]
    queued = [*waiting, *prebuilt, *pending, *reserved]
    loads = [_load_of(seq, uses_tree(state)) for seq in queued]
    new = [tokens for is_decode, tokens in loads if not is_decode]
    decodes = [tokens for is_decode, tokens in loads if is_decode]
    assert _moments(new) == (rank.queued_new, rank.queued_new_tokens, rank.queued_new_squares)
    assert _moments(decodes) == (
        rank.queued_decode,
        rank.queued_decode_tokens,
        rank.queued_decode_squares,
    )


def _load_of(seq: SeqRow, uses_pages: bool) -> tuple[bool, int]:
    """Return whether a queued sequence counts as a decode, and with how many tokens."""
    length = int(seq.prompt_tokens + seq.generated_tokens)
    if uses_pages:
        return bool(seq.is_destination or seq.generated_tokens > 0), length
    if seq.is_destination:
        return True, int(seq.prompt_tokens)
    return bool(seq.was_admitted), length


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

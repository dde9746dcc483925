"""One run in both modes, steady decode as one event and pass by pass, compared bit by bit.

Compared is everything that may be looked at, at every tick, and the whole state as soon as no
worker is in steady decode: then nothing is left to catch up. Row numbers that depend on the order
in which rows were taken are replaced by what the rows say.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.audit import uses_tree
from support.cases import Case
from support.results import WALL_CLOCK

from aisim_gym.conformance import Golden
from aisim_gym.engine.seq_queue import queue_of
from aisim_gym.engine.tables import NONE, QUEUES_PER_RANK, RUNNING
from aisim_gym.errors import ReplayError
from aisim_gym.fleet.events import EVENTS, num_busy_workers
from aisim_gym.fleet.tables import QUEUE_DEFERRED, ROSTER_ACTIVE, ROSTER_LIVE
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.replay import Replay, ScalingDecision, ScalingSnapshot
from aisim_gym.report import summarize
from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import RequestTable

Decision = ScalingDecision | dict[str, Any]
Parts = dict[str, Any]

NOT_COMPARED = {
    "options": {"fast_forwards"},  # the mode itself
    "clock": {
        "instants_left",  # fewer instants are settled in the fast mode
        "log_rows",  # logs grow earlier: they need room for all passes that are planned
    },
    "resume": {
        "changed",  # whether a pass ended at this instant: its end may be left out, like all here
        "is_driven",
        "room_table",  # which table grew last
        "room_amount",
    },
    "arena": {"block_free", "node_free"},  # row numbers
    "ranks": {
        "lru_first",  # row numbers; the eviction order is compared
        "lru_last",
        "root",
    },
    "seqs": {
        "entry_start",  # place of the block list, whose content is compared
        "node",  # row number
        "sort_key",  # scratch of sorting the queue
        "shared_prefix",
        "stamp",  # scratch of the pass in flight, like all of these
        "pass_tokens",
        "pass_prompt_tokens",
        "pass_prefix_tokens",
        "admit_next",
        "signal_next",
        "signal_tokens",
        "signal_end",
    },
    "token_logs": {
        "start",  # place and size of the ring, and how far it is settled
        "capacity",
        "first",
        "weight",
        "previous_ms",
    },
}
"""Fields in which the two modes may differ, with those of steady decode itself (``steady_…``)."""

CAUGHT_UP = {
    "workers": {"wave"},
    "ranks": {
        "passes",
        "capacity_generation",
        "resident_blocks",
        "evictable_blocks",
        "private_blocks",
        "reserve_ratio",
        "pause_rounds",
        "stamps",
    },
}
"""Fields that a worker in steady decode catches up when that ends."""

AMID_AN_INSTANT = {
    "pools": {"ready_count"},
    "workers": {"is_queued_ready", "is_busy", "pass_start_ms", "pass_end_ms"},
}
"""Fields that are not compared where a run has failed, before new passes were started: a worker
whose pass ended at that instant is idle then, in the fast mode it is beyond."""

WHOLE_TABLES = (
    "clock",
    "options",
    "resume",
    "telemetry",
    "traffic",
    "engines",
    "pools",
    "workers",
    "ranks",
    "fpms",
    "gauges",
    "requests",
    "handoffs",
    "action_queues",
    "token_logs",
    "draws",
    "sessions",
    "ready_sessions",
    "server_stages",
    "server_free_ms",
    "stage_times",
    "encoder",
    "encoder_free_ms",
    "transfer_set",
    "links",
)
"""Tables that are compared row by row; the others have a canonical form below."""


class Script:
    """A run and what its planner says.

    Attributes:
        spec: Fleet and options.
        requests: The workload.
        first_tick_ms: None for no ticks.
        answer: Decision for a tick; None leaves the run there.
    """

    def __init__(
        self,
        spec: ReplaySpec,
        requests: RequestTable,
        first_tick_ms: float | None,
        answer: Callable[[ScalingSnapshot], Decision | None],
    ) -> None:
        """Keep the attributes."""
        self.spec = spec
        self.requests = requests
        self.first_tick_ms = first_tick_ms
        self.answer = answer

    def __repr__(self) -> str:
        """Say what was drawn: Hypothesis prints it."""
        columns = (
            self.requests.arrival_ms,
            self.requests.input_tokens,
            self.requests.output_tokens,
        )
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        spec = self.spec.model_dump(exclude_defaults=True)
        return f"Script({spec}, first_tick_ms={self.first_tick_ms}, rows={rows})"

    def replay(self, *, fast: bool) -> Replay:
        """Return a replay in one of the modes that has not started."""
        replay = Replay(self.spec, self.requests, initial_tick_ms=self.first_tick_ms)
        set_fast(replay, fast)
        return replay

    @classmethod
    def of_golden(cls, golden: Golden) -> "Script":
        """Return the run of a golden file; a policy that raises just stops."""
        spec = golden.spec()

        def answer(snapshot: ScalingSnapshot) -> Decision | None:
            ordinal = snapshot.tick_ordinal
            if ordinal == golden.raise_at or ordinal >= len(golden.decisions):
                return None
            names = ("target_prefill", "target_decode", "next_tick_ms")
            return dict(zip(names, golden.decisions[ordinal], strict=True))

        first_ms = golden.initial_tick_ms if golden.has_policy else None
        return cls(spec, golden.requests(spec), first_ms, answer)

    @classmethod
    def of_case(cls, case: Case) -> "Script":
        """Return a small random run."""
        first_ms = case.ticks[0][0] if case.ticks else None
        return cls(case.spec, case.requests(), first_ms, case.answer)


def set_fast(replay: Replay, fast: bool) -> None:
    """Choose the mode from now on."""
    replay.state.world.options.fast_forwards = fast


def advance(replay: Replay) -> tuple[ScalingSnapshot | None, str | None]:
    """Run to the next tick; return its snapshot and the message of the error that came."""
    try:
        return replay.advance_to_tick(), None
    except ReplayError as error:
        return None, str(error)


def compare_modes(script: Script) -> Replay:
    """Run a script in both modes side by side; return the fast run.

    Raises:
        AssertionError: If anything differs; says what, and when.
    """
    fast, plain = script.replay(fast=True), script.replay(fast=False)
    while True:
        ours, theirs = advance(fast), advance(plain)
        assert ours[1] == theirs[1]
        assert_equal_runs(fast, plain, is_settled=ours[1] is None)
        snapshot = ours[0]
        if snapshot is None or theirs[0] is None:
            assert ours[0] is theirs[0]
            break
        assert snapshot.to_dict() == theirs[0].to_dict()
        decision = script.answer(snapshot)
        if decision is None:
            break
        try:
            plain.apply(decision)
        except OverflowError:  # a target that no run accepts
            break
        fast.apply(decision)
    assert_equal_results(fast, plain)
    return fast


def assert_equal_results(ours: Replay, theirs: Replay) -> None:
    """Compare reports, token gaps, samples and ticks; a run may have stopped anywhere."""
    for part, other in zip(ours.state.gap_statistics(), theirs.state.gap_statistics(), strict=True):
        assert np.asarray(part).tobytes() == np.asarray(other).tobytes()
    assert ours.is_done == theirs.is_done
    assert ours.samples == theirs.samples
    assert ours.ticks == theirs.ticks
    for part, other in zip(_results(ours), _results(theirs), strict=True):
        assert repr(part) == repr(other)  # NaN is equal to NaN, and floats are in full


def _results(replay: Replay) -> tuple[Any, ...]:
    report = summarize(replay)
    summary = {name: value for name, value in report.summary.items() if name not in WALL_CLOCK}
    return summary, list(report.per_request or ()), report.lifecycle_operations


def assert_equal_runs(ours: Replay, theirs: Replay, *, is_settled: bool = True) -> None:
    """Compare two runs of one script at one point; one that has failed is not settled."""
    differences = differing_parts(ours.state, theirs.state, is_settled=is_settled)
    assert not differences, f"at {ours.now_ms} / {theirs.now_ms} ms: " + "; ".join(differences[:5])
    assert ours.samples == theirs.samples


def differing_parts(ours: WorldState, theirs: WorldState, *, is_settled: bool = True) -> list[str]:
    """Return what differs between two states, with the first place and both values.

    ``is_settled`` is False for runs that have stopped amid an instant: those that failed.
    """
    steady: set[int] = set()
    for state in (ours, theirs):
        steady |= set(np.flatnonzero(state.world.workers["steady_passes"]).tolist())
    a, b = (_parts(state, steady, is_settled=is_settled) for state in (ours, theirs))
    assert a.keys() == b.keys()
    return [
        f"{name}{_first_difference(a[name], b[name])}" for name in a if not _same(a[name], b[name])
    ]


def _parts(state: WorldState, steady: set[int], *, is_settled: bool) -> Parts:
    """Return what is compared, by name.

    Args:
        state: The tables.
        steady: Workers that have something to catch up.
        is_settled: The run has not stopped amid an instant.
    """
    clock, pools = state.world.clock, np.asarray(state.world.pools)
    found: Parts = {}
    rows_in_use = _rows_in_use(state)
    caught_up = {
        "workers": [row not in steady for row in range(rows_in_use["workers"])],
        "ranks": [row not in steady for row in state.world.ranks["worker"][: rows_in_use["ranks"]]],
    }
    for name in WHOLE_TABLES:
        table = np.asarray(state.tables[name])[: rows_in_use.get(name)]
        for field in table.dtype.names or ("",):
            is_compared = is_settled or field not in AMID_AN_INSTANT.get(name, ())
            is_compared &= field not in NOT_COMPARED.get(name, ())
            if is_compared and not field.startswith("steady_"):
                column = table[field] if field else table
                if field in CAUGHT_UP.get(name, ()):
                    column = column[caught_up[name]]
                found[f"{name}.{field}"] = np.ascontiguousarray(column)
    found["admissions"] = np.asarray(state.world.admissions)[: int(clock.admission_count)].tolist()
    found["operations"] = np.asarray(state.world.operations)[: int(clock.operation_count)].tolist()
    found["events"] = sorted(
        np.asarray(state.world.events)[: int(state.world.heaps[EVENTS].count)].tolist()
    )
    for kind, counts in ((ROSTER_LIVE, "live_count"), (ROSTER_ACTIVE, "active_count")):
        for pool_id, count in enumerate(pools[counts].tolist()):
            found[f"rosters[{kind + pool_id}]"] = state.world.rosters[kind + pool_id, :count]
    requests, following = state.world.seqs["request"].tolist(), state.world.seqs["next"].tolist()
    for rank, is_caught_up in enumerate(caught_up["ranks"]):
        for kind in range(QUEUES_PER_RANK):
            if kind != RUNNING or is_caught_up:  # the others have some that end with their pass
                rows = _chain(state.world.queues[queue_of(rank, kind)].first, following)
                found[f"queue {kind} of rank {rank}"] = [requests[row] for row in rows]
    pass_ends = np.asarray(state.world.pass_ends)[: num_busy_workers(state.world)]
    if is_settled:
        found["busy workers"] = sorted(pass_ends["subject"].tolist())
    if not steady:
        found["pass ends"] = sorted(pass_ends.tolist())
        found |= _caches(state)
    return found


def _caches(state: WorldState) -> Parts:
    """Return sequences and KV caches, which steady decode catches up when it ends."""
    arena, seqs = state.world.arena, np.asarray(state.world.seqs)
    live = np.sort(seqs[seqs["request"] != NONE], order=["rank", "order"])
    found: Parts = {
        f"seqs.{name}": np.ascontiguousarray(live[name])
        for name in seqs.dtype.names or ()
        if name not in NOT_COMPARED["seqs"]
    }
    found["rows of blocks"] = len(state.world.blocks) - int(arena.block_free_count)
    found["rows of nodes"] = len(state.world.nodes) - int(arena.node_free_count)
    return found | (_trees(state, live) if uses_tree(state) else _block_pools(state, live))


def _block_pools(state: WorldState, live: NDArray[Any]) -> Parts:
    """Return eviction order, copies that can be found and the sequences' lists."""
    blocks = np.asarray(state.world.blocks)
    rows = list(
        zip(*(blocks[name].tolist() for name in ("content", "num_blocks", "refs")), strict=True)
    )
    ranks, following = blocks["rank"].tolist(), blocks["chain_next"].tolist()
    contents = blocks["content"].tolist()
    num_ranks = int(sum(state.world.pools["num_ranks"]))
    copies: dict[int, list[int]] = defaultdict(list)
    for first in blocks["bucket_first"][blocks["bucket_first"] != NONE].tolist():
        for b in _chain(first, following):
            copies[ranks[b]].append(b)
    # Of copies of one identity the oldest is found: its row comes first in the chain of its bucket.
    ages: dict[int, int] = {}
    for rank in range(num_ranks):
        seen: Counter[int] = Counter()
        for b in copies[rank]:
            ages[b] = seen[contents[b]]
            seen[contents[b]] += 1
    listed = [
        state.world.entries[start : start + count].tolist()
        for start, count in zip(live["entry_start"], live["listed_blocks"], strict=True)
    ]
    following = blocks["lru_next"].tolist()
    return {
        "eviction order": [
            [(*rows[b], ages.get(b)) for b in _chain(first, following)]
            for first in state.world.ranks["lru_first"][:num_ranks].tolist()
        ],
        "copies": [sorted((*rows[b], ages[b]) for b in copies[rank]) for rank in range(num_ranks)],
        "block lists": [[(contents[b], ages[b]) for b in own] for own in listed],
    }


def _trees(state: WorldState, live: NDArray[Any]) -> Parts:
    """Return the nodes of the radix trees, named by their last pages, and what sequences lock."""
    nodes = np.asarray(state.world.nodes)
    contents = state.world.blocks["content"]
    is_free = np.zeros(len(nodes), np.bool_)
    is_free[_chain(state.world.arena.node_free, nodes["parent"].tolist())] = True
    is_edge = ~is_free & (nodes["parent"] != NONE)
    # One name more, for the row NONE. Roots have no pages, and rows of no node no name.
    names = np.append(np.where(is_edge, contents[nodes["last_block"]], NONE), NONE)
    used = nodes[~is_free]
    columns = ["rank", "num_children", "locks", "num_blocks", "is_queued", "stamp"]
    return {
        "nodes": sorted(
            zip(
                names[:-1][~is_free].tolist(),
                names[used["parent"]].tolist(),
                *(used[column].tolist() for column in columns),
                strict=True,
            )
        ),
        "locked nodes": names[live["node"]].tolist(),
    }


def _chain(first: int, following: list[int]) -> list[int]:
    """Return the rows of a linked list."""
    rows = []
    at = int(first)
    while at != NONE:
        rows.append(at)
        at = following[at]
    return rows


def _rows_in_use(state: WorldState) -> dict[str, int]:
    """Return how many rows are used of tables that have more."""
    workers, ranks = (int(sum(state.world.pools[name])) for name in ("num_workers", "num_ranks"))
    names = {"workers": workers, "token_logs": workers, "server_free_ms": workers}
    names |= {name: ranks for name in ("ranks", "fpms", "gauges", "draws", "links")}
    return names | {"action_queues": QUEUE_DEFERRED + ranks}


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return bool(a.shape == b.shape and a.tobytes() == b.tobytes())
    return repr(a) == repr(b)


def _first_difference(a: Any, b: Any) -> str:
    if not isinstance(a, np.ndarray | list) or len(a) != len(b):
        return f": {a} / {b}"
    place = next(i for i in range(len(a)) if not _same(np.asarray(a[i]), np.asarray(b[i])))
    return f"[{place}]: {a[place]} / {b[place]}"

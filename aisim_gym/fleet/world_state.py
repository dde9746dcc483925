"""The tables of a run as Python holds them: grown on demand, copied, written to a file."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.fpm import FpmRow
from aisim_gym.engine.kv_pool import link_blocks
from aisim_gym.engine.radix_tree import link_nodes
from aisim_gym.engine.slices import NUM_CLASSES
from aisim_gym.engine.tables import (
    NONE,
    QUEUES_PER_RANK,
    ArenaRow,
    BlockRow,
    EngineRow,
    NodeRow,
    PassRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.fleet.encoder import EncoderRow
from aisim_gym.fleet.pass_ends import PassEndRow
from aisim_gym.fleet.room import (
    ROOM_ADMISSIONS,
    ROOM_BLOCKS,
    ROOM_BREAKS,
    ROOM_EVENTS,
    ROOM_LOG,
    ROOM_NODES,
    ROOM_OPERATIONS,
    ROOM_SEQS,
)
from aisim_gym.fleet.server_stage import ServerStageRow
from aisim_gym.fleet.tables import (
    DECODE,
    NUM_ROSTERS,
    PREFILL,
    QUEUE_DEFERRED,
    ActionQueueRow,
    ClockRow,
    EventRow,
    GaugeRow,
    HandoffRow,
    OperationRow,
    PoolRow,
    SessionRow,
    StageTimesRow,
    WorkerRow,
)
from aisim_gym.fleet.timers import TimerHeapRow, TimerRow
from aisim_gym.fleet.transfer_links import LinkRow, TransferRow, TransferSetRow
from aisim_gym.fleet.world import World
from aisim_gym.fleet.worlds import WORLD_TYPES
from aisim_gym.metrics.gap_statistics import (
    GAP,
    NUM_SAMPLES,
    RATE,
    StatisticsRow,
    merged_statistics,
)
from aisim_gym.metrics.request_times import AdmissionRow, RequestRow
from aisim_gym.metrics.token_log import EntryRow, TokenLogRow, settle_entries
from aisim_gym.metrics.traffic_window import TrafficRow
from aisim_gym.tables import Table, copy_table, grow_table, row_dtype

SHARED_TABLES = ("timing_grids",)
"""Copies of a state share them: nobody writes to them."""

ONE_ROW_TABLES = ("clock", "arena", "session_heap", "encoder", "transfer_set")


@dataclass
class WorldState:
    """Every table of a run; :meth:`world` is what compiled code takes.

    Those in :data:`ONE_ROW_TABLES` are rows there; shapes are those of :class:`World`.
    """

    clock: Table[ClockRow]
    arena: Table[ArenaRow]
    traffic: Table[TrafficRow]
    engines: Table[EngineRow]
    pools: Table[PoolRow]
    workers: Table[WorkerRow]
    ranks: Table[RankRow]
    passes: Table[PassRow]
    fpms: Table[FpmRow]
    queues: Table[QueueRow]
    seqs: Table[SeqRow]
    blocks: Table[BlockRow]
    nodes: Table[NodeRow]
    entries: NDArray[np.int64]
    entry_heads: NDArray[np.int64]
    contents: NDArray[np.int64]
    draws: NDArray[np.int64]
    requests: Table[RequestRow]
    breaks: NDArray[np.float64]
    break_heads: NDArray[np.int64]
    token_logs: Table[TokenLogRow]
    log_entries: Table[EntryRow]
    statistics: Table[StatisticsRow]
    buckets: NDArray[np.int64]
    handoffs: Table[HandoffRow]
    action_queues: Table[ActionQueueRow]
    pass_ends: Table[PassEndRow]
    events: Table[EventRow]
    rosters: NDArray[np.int64]
    admissions: Table[AdmissionRow]
    operations: Table[OperationRow]
    sessions: Table[SessionRow]
    session_heap: Table[TimerHeapRow]
    ready_sessions: Table[TimerRow]
    think_ms: NDArray[np.float64]
    gauges: Table[GaugeRow]
    server_stages: Table[ServerStageRow]
    server_free_ms: NDArray[np.float64]
    stage_heaps: Table[TimerHeapRow]
    stage_timers: Table[Table[TimerRow]]
    stage_times: Table[StageTimesRow]
    encoder: Table[EncoderRow]
    encoder_free_ms: NDArray[np.float64]
    encoder_forward_ms: NDArray[np.float64]
    encoder_queue: NDArray[np.int64]
    transfer_set: Table[TransferSetRow]
    transfers: Table[TransferRow]
    links: Table[LinkRow]
    timing_grids: NDArray[np.float64]
    _world: ClassVar[World | None] = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a table; the bundle of the old ones is no longer valid."""
        object.__setattr__(self, name, value)
        object.__setattr__(self, "_world", None)

    def world(self) -> World:
        """Return the tables as one bundle; valid until a table grows."""
        world = self._world
        if world is None:
            tables = self.tables()
            rows = {name: tables[name][0] for name in ONE_ROW_TABLES}
            decode_times_ms, prefill_times_ms = pass_times_ms(self.engines)
            world = WORLD_TYPES[int(self.clock[0].backend)](
                **{**tables, **rows},
                decode_times_ms=decode_times_ms,
                prefill_times_ms=prefill_times_ms,
            )
            object.__setattr__(self, "_world", world)
        return world

    def tables(self) -> dict[str, Any]:
        """Return the tables by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_tables(cls, tables: Mapping[str, Any]) -> Self:
        """Build a state from tables by name; structured arrays become record arrays.

        Raises:
            KeyError: If a table is missing.
            ValueError: If a table has other columns than in this version.
        """
        hints = get_type_hints(cls)
        restored = {}
        for field in fields(cls):
            table = tables[field.name]
            if get_origin(hints[field.name]) is Table:
                row_type = hints[field.name]
                while get_origin(row_type) is Table:
                    (row_type,) = get_args(row_type)
                if table.dtype != row_dtype(row_type):
                    raise ValueError(f"table {field.name}: other columns than in this version")
                table = table.view(np.recarray)
            restored[field.name] = table
        return cls(**restored)

    def gap_statistics(self) -> tuple[Table[StatisticsRow], NDArray[np.int64]]:
        """Return moments and buckets of the token gaps of all requests completed so far.

        Returns:
            Rows ``GAP`` and ``RATE``, and the buckets of both, shape (NUM_SAMPLES, NUM_BUCKETS).
        """
        logs, entries = copy_table(self.token_logs), copy_table(self.log_entries)
        statistics, buckets = copy_table(self.statistics), self.buckets.copy()
        for i in np.flatnonzero(logs["first"] < logs["next"]).tolist():
            gaps = statistics[NUM_SAMPLES * (i + 1) + GAP]
            rates = statistics[NUM_SAMPLES * (i + 1) + RATE]
            settle_entries(logs[i], entries, gaps, rates, buckets, int(logs[i].next), True)
        return merged_statistics(statistics), buckets

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self)(
            **{
                name: table if name in SHARED_TABLES else table.copy()
                for name, table in self.tables().items()
            }
        )

    def make_room(self) -> None:
        """Grow the table that the clock asks for, at least to twice its size."""
        clock = self.clock[0]
        amount = int(clock.room_amount)
        if clock.room_kind == ROOM_SEQS:
            self._grow_seqs(amount)
        elif clock.room_kind == ROOM_BLOCKS:
            self._grow_blocks(amount)
        elif clock.room_kind == ROOM_NODES:
            self._grow_nodes(amount)
        elif clock.room_kind == ROOM_EVENTS:
            self.events = grow_table(self.events, 2 * len(self.events) + amount)
        elif clock.room_kind == ROOM_ADMISSIONS:
            self.admissions = grow_table(self.admissions, 2 * len(self.admissions) + amount)
        elif clock.room_kind == ROOM_OPERATIONS:
            self.operations = grow_table(self.operations, 2 * len(self.operations) + amount)
        elif clock.room_kind == ROOM_LOG:
            self.log_entries = grow_table(self.log_entries, 2 * len(self.log_entries) + amount)
        else:
            assert clock.room_kind == ROOM_BREAKS
            self.breaks = _grow_array(self.breaks, 2 * len(self.breaks) + 128 * amount)

    def make_room_for_workers(self, prefill: int, decode: int) -> None:
        """Make sure that so many more workers, their ranks, events and operations fit."""
        count = prefill + decode
        workers = int(sum(self.pools["num_workers"])) + count
        ranks = int(sum(self.pools["num_ranks"])) + int(
            prefill * self.engines[PREFILL].dp_size + decode * self.engines[DECODE].dp_size
        )
        if workers > len(self.workers):
            size = max(workers, 2 * len(self.workers))
            self.workers = grow_table(self.workers, size)
            self.pass_ends = grow_table(self.pass_ends, size)
            self.token_logs = grow_table(self.token_logs, size)
            self.statistics = grow_table(self.statistics, NUM_SAMPLES * (size + 1))
            rosters = np.zeros((NUM_ROSTERS, size), np.int64)
            rosters[:, : self.rosters.shape[1]] = self.rosters
            self.rosters = rosters
            self.server_free_ms = _grow_array(self.server_free_ms, size)
        if ranks > len(self.ranks):
            size = max(ranks, 2 * len(self.ranks))
            self.ranks = grow_table(self.ranks, size)
            self.passes = grow_table(self.passes, size)
            self.fpms = grow_table(self.fpms, size)
            self.gauges = grow_table(self.gauges, size)
            if len(self.draws):
                self.draws = _grow_array(self.draws, size)
            if len(self.links):
                self.links = grow_table(self.links, size)
            self.queues = grow_table(self.queues, QUEUES_PER_RANK * size)
            self.action_queues = grow_table(self.action_queues, QUEUE_DEFERRED + size)
        events = int(self.clock[0].event_count) + count + 4
        if events > len(self.events):
            self.events = grow_table(self.events, max(events, 2 * len(self.events)))
        operations = int(self.clock[0].operation_count) + 2
        if operations > len(self.operations):
            self.operations = grow_table(self.operations, max(operations, 2 * len(self.operations)))

    def _grow_seqs(self, entries: int) -> None:
        """Make room for one more sequence, and for its block list."""
        if self.arena[0].seq_free_count == 0:
            count = len(self.seqs)
            self.seqs = grow_table(self.seqs, max(64, 2 * count))
            add_free_seqs(self.seqs, self.arena[0], count)
        else:
            used = int(self.entry_heads[NUM_CLASSES])
            self.entries = _grow_array(self.entries, max(2 * len(self.entries), used + 2 * entries))

    def _grow_blocks(self, amount: int) -> None:
        """Make the block table larger, a power of two, and build its hash buckets anew."""
        old = self.blocks
        size = max(2 * len(old), 64)
        while size - len(old) + self.arena[0].block_free_count < amount:
            size *= 2
        self.blocks = grow_table(old, size)
        link_blocks(old, self.blocks, self.arena[0])

    def _grow_nodes(self, amount: int) -> None:
        """Make the node table larger, a power of two, and build its hash buckets anew."""
        old = self.nodes
        size = max(2 * len(old), 64)
        while size - len(old) + self.arena[0].node_free_count < amount:
            size *= 2
        self.nodes = grow_table(old, size)
        link_nodes(old, self.nodes, self.arena[0])


_MOST_DECODE_TIMES, _MOST_PREFILL_TIMES = 1 << 21, 1 << 18
"""Sizes of the tables of pass times, per role: 16 MB and 2 MB; only what is used takes memory."""

_pass_times_ms: dict[bytes, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}


def pass_times_ms(
    engines: Table[EngineRow],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the tables of decode and prefill times of two roles.

    All worlds with the same timing share them.
    """
    timing = ("num_blocks", "block_size", "timing", "fixed_decode_ms", "decode_speedup")
    rows = np.asarray(engines)
    columns = (rows[name] for name in (*timing, "prefill_speedup"))
    key = b"".join(np.ascontiguousarray(column).tobytes() for column in columns)
    if key not in _pass_times_ms:
        tokens = int((rows["num_blocks"] * rows["block_size"]).max()) + 1
        _pass_times_ms[key] = (
            np.zeros((len(rows), min(tokens, _MOST_DECODE_TIMES))),
            np.zeros((len(rows), min(tokens, _MOST_PREFILL_TIMES))),
        )
    return _pass_times_ms[key]


def add_free_seqs(seqs: Table[SeqRow], arena: ArenaRow, first: int) -> None:
    """Put the rows from ``first`` on in front of the free list."""
    count = len(seqs)
    seqs["request"][first:] = NONE
    seqs["next"][first:] = np.arange(first + 1, count + 1)
    seqs[count - 1].next = arena.seq_free
    arena.seq_free = first
    arena.seq_free_count += count - first


def _grow_array(array: NDArray[Any], size: int) -> NDArray[Any]:
    grown = np.zeros((size, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown

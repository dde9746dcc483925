"""The world: all tables of a run in one table set, each declared once.

A field is a table, an array, or the only row of a one-row table. Its annotation declares its type
and shape (:mod:`aisim_gym.table_shapes`). Creating, growing, copying and saving a run derive from
the annotations, so adding a table takes one line here. Compiled functions that handle one event
take the whole world; engine functions take only the tables they need.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.acceptance import WORDS_PER_BLOCK
from aisim_gym.engine.backend import Backend
from aisim_gym.engine.fpm import FpmRow
from aisim_gym.engine.kv_pool import free_new_blocks
from aisim_gym.engine.radix_tree import free_new_nodes
from aisim_gym.engine.seq_rows import free_new_seqs
from aisim_gym.engine.slices import NUM_HEADS
from aisim_gym.engine.tables import (
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
from aisim_gym.fleet.server_stage import ServerStageRow
from aisim_gym.fleet.tables import (
    NUM_HEAPS,
    NUM_POOLS,
    NUM_ROSTERS,
    NUM_STAGES,
    NUM_WINDOWS,
    QUEUE_DEFERRED,
    ActionQueueRow,
    ClockRow,
    GaugeRow,
    HandoffRow,
    OperationRow,
    OptionsRow,
    PoolRow,
    ResumeRow,
    SessionRow,
    StageTimesRow,
    TelemetryRow,
    WorkerRow,
)
from aisim_gym.fleet.time_heap import TimedRow, TimeHeapRow
from aisim_gym.fleet.transfer_links import LinkRow, TransferRow, TransferSetRow
from aisim_gym.metrics.gap_statistics import NUM_BUCKETS, NUM_SAMPLES, StatisticsRow
from aisim_gym.metrics.request_times import AdmissionRow, RequestRow
from aisim_gym.metrics.token_log import EntryRow, TokenLogRow
from aisim_gym.metrics.traffic_window import TrafficRow
from aisim_gym.table_set import TableSet
from aisim_gym.table_shapes import Derived, Given, Growing, Per
from aisim_gym.tables import Table

ONE = 1
WORKERS, RANKS = Per("worker"), Per("rank")
REQUESTS, SESSIONS = Per("request"), Per("session")
HANDED_OVER = Per("request", is_optional=True)
"""Requests of a disaggregated fleet."""
STAGED, ENCODED = Per("request", is_optional=True), Per("request", is_optional=True)
"""Requests of a fleet with any optional stage; requests of a fleet with encoders."""
SHARING = Per("request", is_optional=True)
"""Requests of a fleet whose transfers share links."""
GIVEN = Given()


@dataclass(frozen=True, eq=False)
class World(TableSet):
    """All state of a run."""

    backend: ClassVar[Backend]

    clock: Annotated[ClockRow, ONE]
    options: Annotated[OptionsRow, ONE]
    resume: Annotated[ResumeRow, ONE]
    telemetry: Annotated[TelemetryRow, ONE]
    arena: Annotated[ArenaRow, ONE]
    traffic: Annotated[Table[TrafficRow], NUM_WINDOWS]  # since the last tick, the last sample
    engines: Annotated[Table[EngineRow], NUM_POOLS]
    pools: Annotated[Table[PoolRow], NUM_POOLS]
    workers: Annotated[Table[WorkerRow], WORKERS]
    ranks: Annotated[Table[RankRow], RANKS]
    passes: Annotated[Table[PassRow], RANKS]
    fpms: Annotated[Table[FpmRow], RANKS]
    queues: Annotated[Table[QueueRow], RANKS * QUEUES_PER_RANK]
    seqs: Annotated[Table[SeqRow], Growing(256, free_new_seqs)]
    blocks: Annotated[Table[BlockRow], Growing(4096, free_new_blocks, is_hashed=True)]
    nodes: Annotated[Table[NodeRow], Growing(64, free_new_nodes, is_hashed=True)]
    entries: Annotated[NDArray[np.int64], Growing(16384)]  # block lists of the sequences
    entry_heads: Annotated[NDArray[np.int64], NUM_HEADS]
    contents: Annotated[NDArray[np.int64], GIVEN]  # identities of shared prompt blocks
    draws: Annotated[  # words of the random streams; empty without drafts
        NDArray[np.int64], (Per("rank", is_optional=True), WORDS_PER_BLOCK)
    ]
    requests: Annotated[Table[RequestRow], REQUESTS]
    breaks: Annotated[NDArray[np.float64], Growing(1024)]  # in token streams
    break_heads: Annotated[NDArray[np.int64], NUM_HEADS]
    token_logs: Annotated[Table[TokenLogRow], WORKERS]
    log_entries: Annotated[Table[EntryRow], Growing(8192)]
    statistics: Annotated[  # pairs: gaps at breaks, then logged gaps by worker
        Table[StatisticsRow], WORKERS * NUM_SAMPLES + NUM_SAMPLES
    ]
    buckets: Annotated[NDArray[np.int64], (NUM_SAMPLES, NUM_BUCKETS)]
    handoffs: Annotated[Table[HandoffRow], HANDED_OVER]
    action_queues: Annotated[Table[ActionQueueRow], RANKS + QUEUE_DEFERRED]
    heaps: Annotated[Table[TimeHeapRow], NUM_HEAPS]  # of the next four tables
    events: Annotated[Table[TimedRow], Growing(64)]
    pass_ends: Annotated[Table[TimedRow], WORKERS]
    ready_sessions: Annotated[Table[TimedRow], SESSIONS]  # by due time of the next turn
    stage_timers: Annotated[Table[Table[TimedRow]], (NUM_STAGES, STAGED)]
    pass_end_places: Annotated[NDArray[np.int64], WORKERS]
    rosters: Annotated[NDArray[np.int64], (NUM_ROSTERS, WORKERS)]
    admissions: Annotated[Table[AdmissionRow], Growing(256)]
    operations: Annotated[Table[OperationRow], Growing(64)]
    sessions: Annotated[Table[SessionRow], SESSIONS]  # empty for a plain list of requests
    think_ms: Annotated[NDArray[np.float64], GIVEN]  # by request: after the previous turn, or empty
    gauges: Annotated[Table[GaugeRow], RANKS]
    server_stages: Annotated[Table[ServerStageRow], NUM_POOLS]  # tokenizers, detokenizers
    server_free_ms: Annotated[NDArray[np.float64], (WORKERS, GIVEN)]  # by server
    stage_times: Annotated[Table[StageTimesRow], STAGED]
    encoder: Annotated[EncoderRow, ONE]
    encoder_free_ms: Annotated[NDArray[np.float64], GIVEN]  # by encoder
    encoder_forward_ms: Annotated[NDArray[np.float64], GIVEN]  # by batch size - 1
    encoder_queue: Annotated[NDArray[np.int64], ENCODED]  # by request: the next in the queue
    transfer_set: Annotated[TransferSetRow, ONE]
    transfers: Annotated[Table[TransferRow], SHARING]
    links: Annotated[Table[LinkRow], Per("rank", is_optional=True)]  # empty unless shared
    timing_grids: Annotated[NDArray[np.float64], Given(is_shared=True)]  # of timing tables
    decode_times_ms: Annotated[NDArray[np.float64], Derived()]  # (2, tokens): cached_decode_ms
    prefill_times_ms: Annotated[NDArray[np.float64], Derived()]  # likewise: cached_prefill_ms

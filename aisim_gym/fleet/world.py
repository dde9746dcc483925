"""The world: every table of a run in one table set.

Compiled functions that handle one event take the whole world; engine functions take just the
tables they need.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.backend import Backend
from aisim_gym.engine.fpm import FpmRow
from aisim_gym.engine.tables import (
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
from aisim_gym.fleet.server_stage import ServerStageRow
from aisim_gym.fleet.tables import (
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
from aisim_gym.metrics.gap_statistics import StatisticsRow
from aisim_gym.metrics.request_times import AdmissionRow, RequestRow
from aisim_gym.metrics.token_log import EntryRow, TokenLogRow
from aisim_gym.metrics.traffic_window import TrafficRow
from aisim_gym.table_set import TableSet
from aisim_gym.tables import Table


@dataclass(frozen=True, eq=False)
class World(TableSet):
    """All state of a run. Row fields are views of one-row tables."""

    backend: ClassVar[Backend]

    clock: ClockRow
    arena: ArenaRow
    traffic: Table[TrafficRow]  # (2,): since the last tick, since the last telemetry sample
    engines: Table[EngineRow]  # (2,) by pool
    pools: Table[PoolRow]  # (2,)
    workers: Table[WorkerRow]
    ranks: Table[RankRow]
    passes: Table[PassRow]  # by rank
    fpms: Table[FpmRow]  # by rank
    queues: Table[QueueRow]  # QUEUES_PER_RANK per rank
    seqs: Table[SeqRow]
    blocks: Table[BlockRow]
    nodes: Table[NodeRow]
    entries: NDArray[np.int64]  # block lists of the sequences
    entry_heads: NDArray[np.int64]
    contents: NDArray[np.int64]  # identities of shared prompt blocks
    draws: NDArray[np.int64]  # (ranks, 16): words of the random streams; (0, 16) without drafts
    requests: Table[RequestRow]
    breaks: NDArray[np.float64]  # in the streams of tokens
    break_heads: NDArray[np.int64]
    token_logs: Table[TokenLogRow]  # by worker
    log_entries: Table[EntryRow]
    statistics: Table[StatisticsRow]  # pairs: gaps at breaks, then by worker those in its log
    buckets: NDArray[np.int64]  # (NUM_SAMPLES, NUM_BUCKETS)
    handoffs: Table[HandoffRow]  # by request; empty for an aggregated fleet
    action_queues: Table[ActionQueueRow]
    pass_ends: Table[PassEndRow]  # as many as workers
    events: Table[EventRow]
    rosters: NDArray[np.int64]  # (NUM_ROSTERS, workers)
    admissions: Table[AdmissionRow]
    operations: Table[OperationRow]
    sessions: Table[SessionRow]  # empty for a plain list of requests
    session_heap: TimerHeapRow
    ready_sessions: Table[TimerRow]  # when the next turn of a session is due
    think_ms: NDArray[np.float64]  # by request: time after the turn before it; empty for a list
    gauges: Table[GaugeRow]  # by rank
    server_stages: Table[ServerStageRow]  # (2,) by pool: tokenizers, detokenizers
    server_free_ms: NDArray[np.float64]  # (workers, servers)
    stage_heaps: Table[TimerHeapRow]  # (NUM_STAGES,)
    stage_timers: Table[Table[TimerRow]]  # (NUM_STAGES, requests); empty without stages
    stage_times: Table[StageTimesRow]  # by request; likewise
    encoder: EncoderRow
    encoder_free_ms: NDArray[np.float64]  # by encoder
    encoder_forward_ms: NDArray[np.float64]  # by batch size - 1
    encoder_queue: NDArray[np.int64]  # by request: the one behind it
    transfer_set: TransferSetRow
    transfers: Table[TransferRow]  # as many as requests; empty without shared links
    links: Table[LinkRow]  # by rank; likewise
    timing_grids: NDArray[np.float64]  # of timing tables, where engines say; never written to
    decode_times_ms: NDArray[np.float64]  # (2, tokens) by pool: see cached_decode_ms
    prefill_times_ms: NDArray[np.float64]  # likewise: see cached_prefill_ms

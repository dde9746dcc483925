"""From a spec and a request table to the tables of a run that has not started yet."""

import math

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.fpm import FpmRow
from aisim_gym.engine.slices import make_heads
from aisim_gym.engine.tables import (
    NONE,
    QUEUES_PER_RANK,
    ROLE_AGGREGATED,
    ROLE_DECODE,
    ROLE_PREFILL,
    TIMING_FIXED,
    TIMING_POLYNOMIAL,
    UNLIMITED,
    ArenaRow,
    BlockRow,
    EngineRow,
    PassRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.errors import UnsupportedError
from aisim_gym.fleet.action_queue import clear_queue
from aisim_gym.fleet.tables import (
    DECODE,
    NUM_ROSTERS,
    PREFILL,
    QUEUE_DEFERRED,
    WORKER_ACTIVE,
    ActionQueueRow,
    ClockRow,
    EventRow,
    HandoffRow,
    OperationRow,
    PoolRow,
    WorkerRow,
)
from aisim_gym.fleet.worker_life import create_worker
from aisim_gym.fleet.world_state import WorldState, add_free_seqs
from aisim_gym.metrics.gap_statistics import NUM_BUCKETS, StatisticsRow
from aisim_gym.metrics.request_times import AdmissionRow, RequestRow, make_requests
from aisim_gym.metrics.traffic_window import TrafficRow
from aisim_gym.replay.settle import PHASE_PASS_ENDS
from aisim_gym.spec import AggregatedFleet, FixedTiming, LaunchSpec, PolynomialTiming, ReplaySpec
from aisim_gym.tables import Table, make_table
from aisim_gym.workload import RequestTable, build_prompt_blocks

_ROLES = {"aggregated": ROLE_AGGREGATED, "prefill": ROLE_PREFILL, "decode": ROLE_DECODE}


def build_world(spec: ReplaySpec, requests: RequestTable, initial_tick_ms: float) -> WorldState:
    """Return the tables of a run at time 0, before anything has happened.

    Args:
        spec: Fleet and options.
        requests: Sorted by arrival; not modified.
        initial_tick_ms: First tick, +inf for none.

    Raises:
        UnsupportedError: If the spec asks for something this version does not replay.
    """
    fleet = spec.fleet
    engines = make_table(EngineRow, 2)
    if isinstance(fleet, AggregatedFleet):
        counts = (0, fleet.num_workers)
        _fill_engine(engines[DECODE], fleet.engine, "fleet.engine")
        block_size = fleet.engine.engine.block_size
    else:
        counts = (fleet.num_prefill_workers, fleet.num_decode_workers)
        _fill_engine(engines[PREFILL], fleet.prefill, "fleet.prefill")
        _fill_engine(engines[DECODE], fleet.decode, "fleet.decode")
        block_size = fleet.prefill.engine.block_size
    _check_supported(spec)

    num_workers = sum(counts)
    num_ranks = int(counts[0] * engines[PREFILL].dp_size + counts[1] * engines[DECODE].dp_size)
    is_disaggregated = not isinstance(fleet, AggregatedFleet)
    request_rows, contents = _fill_requests(requests, block_size)
    state = WorldState(
        clock=make_table(ClockRow, 1),
        arena=make_table(ArenaRow, 1),
        traffic=make_table(TrafficRow, 1),
        engines=engines,
        pools=make_table(PoolRow, 2),
        workers=make_table(WorkerRow, num_workers),
        ranks=make_table(RankRow, num_ranks),
        passes=make_table(PassRow, num_ranks),
        fpms=make_table(FpmRow, num_ranks),
        queues=make_table(QueueRow, QUEUES_PER_RANK * num_ranks),
        seqs=make_table(SeqRow, 64),
        blocks=make_table(BlockRow, 1024),
        entries=np.zeros(1024, np.int64),
        entry_heads=make_heads(),
        contents=contents,
        requests=request_rows,
        gaps=np.zeros(8192, np.float64),
        gap_heads=make_heads(),
        statistics=make_table(StatisticsRow, 2),
        buckets=np.zeros((2, NUM_BUCKETS), np.int64),
        handoffs=make_table(HandoffRow, len(requests) if is_disaggregated else 0),
        action_queues=make_table(ActionQueueRow, QUEUE_DEFERRED + num_ranks),
        events=make_table(EventRow, num_workers + 64),
        rosters=np.zeros((NUM_ROSTERS, num_workers), np.int64),
        admissions=make_table(AdmissionRow, 256 if spec.capture_per_request else 0),
        operations=make_table(OperationRow, 64),
    )
    _fill_clock(state.clock[0], spec, initial_tick_ms, is_disaggregated)
    _fill_arena(state)
    for kind in range(QUEUE_DEFERRED):
        clear_queue(state.action_queues[kind])
    world = state.world()
    for pool_id, count in enumerate(counts):
        for _ in range(count):
            create_worker(world, pool_id, WORKER_ACTIVE, NONE)
    return state


def _fill_engine(row: EngineRow, launch: LaunchSpec, path: str) -> None:
    engine = launch.engine
    if engine.backend != "vllm":
        raise UnsupportedError(
            f"{path}.engine.backend: got {engine.backend!r}, replayed are: 'vllm'"
        )
    if engine.aic_nextn is not None:
        raise UnsupportedError(
            f"{path}.engine.aic_nextn: got {engine.aic_nextn}, "
            "speculative decoding is not replayed yet, expected null"
        )
    row.role = _ROLES[engine.worker_type]
    row.dp_size = launch.dp_size
    row.block_size = engine.block_size
    row.num_blocks = engine.num_gpu_blocks
    row.max_seqs = _limit(engine.max_num_seqs)
    row.max_batched_tokens = _limit(engine.max_num_batched_tokens)
    row.max_model_len = _limit(engine.max_model_len)
    row.prefill_interval = engine.prefill_schedule_interval
    row.prefix_caching = int(engine.enable_prefix_caching)
    row.chunked_prefill = int(engine.enable_chunked_prefill)
    row.preempts_first = int(engine.preemption_mode == "fifo")
    timing = engine.timing_model
    if isinstance(timing, FixedTiming):
        row.timing = TIMING_FIXED
        row.fixed_prefill_ms = timing.prefill_ms
        row.fixed_decode_ms = timing.decode_ms
    elif isinstance(timing, PolynomialTiming):
        row.timing = TIMING_POLYNOMIAL
    else:
        raise UnsupportedError(
            f"{path}.engine.timing_model.type: got {timing.type!r}, "
            "replayed are: 'polynomial', 'fixed'"
        )
    row.prefill_speedup = engine.speedup_ratio
    row.decode_speedup = engine.speedup_ratio * engine.decode_speedup_ratio
    row.startup_ms = (launch.startup_time or 0.0) * 1000.0
    row.transfer_bytes_per_token = float(engine.kv_transfer_bytes_per_token or 0)
    row.transfer_gb_s = engine.kv_transfer_bandwidth or 0.0
    row.transfer_is_timed = int(row.transfer_bytes_per_token > 0 and row.transfer_gb_s > 0)
    row.transfers_missing_only = int(engine.kv_transfer_timing_mode == "destination_missing")


def _limit(value: int | None) -> int:
    return UNLIMITED if value is None else min(value, UNLIMITED)


def _check_supported(spec: ReplaySpec) -> None:
    if spec.router_mode != "round_robin":
        raise UnsupportedError(
            f"router_mode: got {spec.router_mode!r}, replayed are: 'round_robin'"
        )
    if spec.workload.replay_concurrency is not None:
        raise UnsupportedError(
            f"workload.replay_concurrency: got {spec.workload.replay_concurrency}, "
            "closed-loop replay is not supported yet, expected null"
        )
    if spec.telemetry_sample_interval_ms is not None:
        raise UnsupportedError(
            f"telemetry_sample_interval_ms: got {spec.telemetry_sample_interval_ms}, "
            "telemetry samples are not recorded yet, expected null"
        )


def _fill_requests(
    requests: RequestTable, block_size: int
) -> tuple[Table[RequestRow], NDArray[np.int64]]:
    blocks = build_prompt_blocks(requests, block_size)
    rows = make_requests(len(requests))
    rows["row"][:] = requests.row
    rows["arrival_ms"][:] = requests.arrival_ms
    rows["input_tokens"][:] = requests.input_tokens
    rows["output_tokens"][:] = requests.output_tokens
    rows["content_start"][:] = blocks.content_start
    rows["shared_blocks"][:] = blocks.shared_blocks
    rows["private_base"][:] = blocks.private_base
    return rows, np.array(blocks.contents, np.int64)


def _fill_clock(
    clock: ClockRow, spec: ReplaySpec, initial_tick_ms: float, is_disaggregated: bool
) -> None:
    clock.max_sim_ms = math.inf if spec.max_sim_time_ms is None else spec.max_sim_time_ms
    clock.next_tick_ms = initial_tick_ms
    clock.is_disaggregated = int(is_disaggregated)
    clock.phase = PHASE_PASS_ENDS
    clock.collects_fpm = 1
    clock.captures_requests = int(spec.capture_per_request)
    clock.captures_operations = int(spec.capture_planner_details and math.isfinite(initial_tick_ms))
    clock.immediate_worker = NONE


def _fill_arena(state: WorldState) -> None:
    arena = state.arena[0]
    arena.seq_free = NONE
    add_free_seqs(state.seqs, arena, 0)
    blocks = state.blocks
    for name in ("bucket_first", "bucket_last"):
        blocks[name][:] = NONE
    blocks["lru_next"][:] = np.arange(1, len(blocks) + 1)
    blocks[len(blocks) - 1].lru_next = NONE
    arena.block_free = 0
    arena.block_free_count = len(blocks)

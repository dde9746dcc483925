"""From a spec and a request table to the tables of a run that has not started yet."""

import math

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.acceptance import WORDS_PER_BLOCK
from aisim_gym.engine.fpm import FpmRow
from aisim_gym.engine.slices import make_heads
from aisim_gym.engine.tables import (
    MAX_DRAFT_TOKENS,
    NONE,
    PREEMPT_FIRST,
    PREEMPT_LAST,
    PREEMPT_NONE,
    QUEUES_PER_RANK,
    ROLE_AGGREGATED,
    ROLE_DECODE,
    ROLE_PREFILL,
    TIMING_FIXED,
    TIMING_POLYNOMIAL,
    TIMING_TABLE,
    UNLIMITED,
    ArenaRow,
    BlockRow,
    EngineRow,
    NodeRow,
    PassRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.errors import SpecError, UnsupportedError
from aisim_gym.fleet.action_queue import clear_queue
from aisim_gym.fleet.pass_ends import PassEndRow
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
    WorkerRow,
)
from aisim_gym.fleet.timers import TimerHeapRow, TimerRow
from aisim_gym.fleet.token_stream import SMALLEST_LOG
from aisim_gym.fleet.worker_life import create_first_workers
from aisim_gym.fleet.world_state import WorldState, add_free_seqs
from aisim_gym.fleet.worlds import BACKENDS, WORLD_TYPES, world_type
from aisim_gym.metrics.gap_statistics import NUM_BUCKETS, NUM_SAMPLES, StatisticsRow
from aisim_gym.metrics.request_times import AdmissionRow, RequestRow, make_requests
from aisim_gym.metrics.token_log import EntryRow, TokenLogRow
from aisim_gym.metrics.traffic_window import TrafficRow
from aisim_gym.replay.build_stages import has_stages, make_stages
from aisim_gym.replay.settle import PHASE_PASS_ENDS
from aisim_gym.spec import (
    AggregatedFleet,
    EngineSpec,
    FixedTiming,
    LaunchSpec,
    PolynomialTiming,
    ReplaySpec,
)
from aisim_gym.spec.accept_rates import parse_accept_rates
from aisim_gym.spec.timing_table import TimingTable
from aisim_gym.tables import Table, make_table
from aisim_gym.workload import RequestTable, build_prompt_blocks

_ROLES = {"aggregated": ROLE_AGGREGATED, "prefill": ROLE_PREFILL, "decode": ROLE_DECODE}


SPARE_WORKERS = 128
"""Rows of workers that are there for a planner from the beginning."""

SPARE_LOGS = 16
"""Token logs per worker at the start, for their growth and later workers. Rows that are never used
cost nothing: a system gives memory when it is first written."""


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
    grids: list[NDArray[np.float64]] = []
    if isinstance(fleet, AggregatedFleet):
        counts = (0, fleet.num_workers)
        launches = [fleet.engine]
        _fill_engine(engines[DECODE], fleet.engine, grids, "fleet.engine")
    else:
        counts = (fleet.num_prefill_workers, fleet.num_decode_workers)
        launches = [fleet.prefill, fleet.decode]
        _fill_engine(engines[PREFILL], fleet.prefill, grids, "fleet.prefill")
        _fill_engine(engines[DECODE], fleet.decode, grids, "fleet.decode")
    drafts = any(launch.engine.aic_nextn is not None for launch in launches)
    world_class = world_type(launches[0].engine.backend, drafts)
    backend = world_class.backend
    _check_supported(spec)

    # Rows of workers are not used twice: with a planner there will be more.
    spare_workers = SPARE_WORKERS if math.isfinite(initial_tick_ms) else 0
    num_workers = sum(counts) + spare_workers
    num_ranks = int(counts[0] * engines[PREFILL].dp_size + counts[1] * engines[DECODE].dp_size)
    num_ranks += spare_workers * int(engines[DECODE].dp_size)
    is_disaggregated = not isinstance(fleet, AggregatedFleet)
    request_rows, contents = _fill_requests(requests, fleet.block_size)
    num_sessions = max(0, len(requests.session_starts) - 1)
    state = WorldState(
        clock=make_table(ClockRow, 1),
        arena=make_table(ArenaRow, 1),
        traffic=make_table(TrafficRow, 2),
        engines=engines,
        pools=make_table(PoolRow, 2),
        workers=make_table(WorkerRow, num_workers),
        ranks=make_table(RankRow, num_ranks),
        passes=make_table(PassRow, num_ranks),
        fpms=make_table(FpmRow, num_ranks),
        queues=make_table(QueueRow, QUEUES_PER_RANK * num_ranks),
        seqs=make_table(SeqRow, 256),
        blocks=make_table(BlockRow, 4096),
        nodes=make_table(NodeRow, 64 if backend.has_tree else 0),
        entries=np.zeros(16384, np.int64),
        entry_heads=make_heads(),
        contents=contents,
        draws=np.zeros((num_ranks if drafts else 0, WORDS_PER_BLOCK), np.int64),
        requests=request_rows,
        breaks=np.zeros(1024, np.float64),
        break_heads=make_heads(),
        token_logs=make_table(TokenLogRow, num_workers),
        log_entries=make_table(EntryRow, SPARE_LOGS * SMALLEST_LOG * sum(counts)),
        statistics=make_table(StatisticsRow, NUM_SAMPLES * (num_workers + 1)),
        buckets=np.zeros((NUM_SAMPLES, NUM_BUCKETS), np.int64),
        handoffs=make_table(HandoffRow, len(requests) if is_disaggregated else 0),
        action_queues=make_table(ActionQueueRow, QUEUE_DEFERRED + num_ranks),
        pass_ends=make_table(PassEndRow, num_workers),
        events=make_table(EventRow, num_workers + 64),
        rosters=np.zeros((NUM_ROSTERS, num_workers), np.int64),
        admissions=make_table(AdmissionRow, 256 if spec.capture_per_request else 0),
        operations=make_table(OperationRow, 64),
        sessions=make_table(SessionRow, num_sessions),
        session_heap=make_table(TimerHeapRow, 1),
        ready_sessions=make_table(TimerRow, num_sessions),
        think_ms=np.array(requests.delay_ms, np.float64),
        gauges=make_table(GaugeRow, num_ranks),
        timing_grids=grids[0] if len(grids) == 1 else np.concatenate([np.zeros(0), *grids]),
        **make_stages(fleet, num_workers, num_ranks, len(requests)),
    )
    _fill_clock(state.clock[0], spec, initial_tick_ms, is_disaggregated)
    state.clock[0].backend = WORLD_TYPES.index(world_class)
    state.clock[0].reserves_first = int(backend.reserves_first)
    state.clock[0].has_stages = int(has_stages(fleet))
    _fill_arrivals(state, requests)
    _fill_arena(state)
    for kind in range(QUEUE_DEFERRED):
        clear_queue(state.action_queues[kind])
    world = state.world()
    for pool_id, count in enumerate(counts):
        if count > 0:
            create_first_workers(world, pool_id, count)
    return state


def _fill_engine(
    row: EngineRow, launch: LaunchSpec, grids: list[NDArray[np.float64]], path: str
) -> None:
    engine = launch.engine
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
    row.preemption = PREEMPT_FIRST if engine.preemption_mode == "fifo" else PREEMPT_LAST
    backend, _ = BACKENDS[engine.backend]
    if not backend.preempts:
        row.preemption = PREEMPT_NONE
    row.recomputes_last = int(backend.recomputes_last)
    _fill_sglang(row, launch)
    _fill_drafting(row, engine)
    timing = engine.timing_model
    if isinstance(timing, FixedTiming):
        row.timing = TIMING_FIXED
        row.fixed_prefill_ms = timing.prefill_ms
        row.fixed_decode_ms = timing.decode_ms
    elif isinstance(timing, PolynomialTiming):
        row.timing = TIMING_POLYNOMIAL
    else:
        try:
            table = timing.table
        except SpecError as error:
            raise type(error)(f"{path}.engine.timing_model: {error}") from None
        fill_table_timing(row, table, grids)
    row.prefill_speedup = engine.speedup_ratio
    row.decode_speedup = engine.speedup_ratio * engine.decode_speedup_ratio
    row.startup_ms = (launch.startup_time or 0.0) * 1000.0
    row.transfer_bytes_per_token = float(engine.kv_transfer_bytes_per_token or 0)
    row.transfer_gb_s = engine.kv_transfer_bandwidth or 0.0
    row.transfer_is_timed = int(row.transfer_bytes_per_token > 0 and row.transfer_gb_s > 0)
    row.transfers_missing_only = int(engine.kv_transfer_timing_mode == "destination_missing")


def fill_table_timing(row: EngineRow, table: TimingTable, grids: list[NDArray[np.float64]]) -> None:
    """Let an engine use a timing table, which is added to ``grids`` unless the last one equals it.

    Roles of one profile have equal ones.

    Args:
        row: Modified in place.
        table: What its passes take.
        grids: Numbers of the tables of all roles so far, later one array; modified in place.
    """
    if not (grids and np.array_equal(grids[-1], table.flat)):
        grids.append(table.flat)
    row.timing = TIMING_TABLE
    row.table_clamps = int(table.clamps)
    row.table_rows_are_seqs = int(table.rows_are_sequences)
    row.prefill_floor_ms = table.prefill_floor_ms
    row.decode_floor_ms = table.decode_floor_ms
    row.prefill_rows, row.prefill_columns = table.prefill.ms.shape
    row.decode_rows, row.decode_columns = table.decode.ms.shape
    row.prefill_grid = sum(len(grid) for grid in grids[:-1])
    prefill = table.prefill
    row.decode_grid = row.prefill_grid + len(prefill.rows) + len(prefill.columns) + prefill.ms.size


def _limit(value: int | None) -> int:
    return UNLIMITED if value is None else min(value, UNLIMITED)


def _check_supported(spec: ReplaySpec) -> None:
    if spec.router_mode != "round_robin":
        raise UnsupportedError(
            f"router_mode: got {spec.router_mode!r}, replayed are: 'round_robin'"
        )


def _fill_sglang(row: EngineRow, launch: LaunchSpec) -> None:
    """Fill in SGLang's settings; ranks divide some of them (engine-sglang.md §17)."""
    engine, sglang = launch.engine, launch.engine.sglang
    row.max_prefill_tokens = sglang.max_prefill_tokens
    row.chunk_tokens = sglang.chunked_prefill_size // launch.dp_size
    row.clip_tokens = sglang.clip_max_new_tokens
    conservativeness = sglang.schedule_conservativeness * (0.3 if launch.dp_size > 1 else 1.0)
    row.init_ratio = 0.7 * conservativeness
    row.min_ratio = row.init_ratio * 0.14
    row.ratio_decay = (row.init_ratio - row.min_ratio) / 600.0
    row.sorts_by_prefix = int(sglang.schedule_policy == "lpm")
    row.prefill_pause = engine.prefill_decode_interval


def _fill_drafting(row: EngineRow, engine: EngineSpec) -> None:
    row.draft_tokens = engine.aic_nextn or 0
    rates = parse_accept_rates(engine.aic_nextn_accept_rates or "")
    (
        row.accept_rate_1,
        row.accept_rate_2,
        row.accept_rate_3,
        row.accept_rate_4,
        row.accept_rate_5,
    ) = (
        *rates,
        *[0.0] * (MAX_DRAFT_TOKENS - len(rates)),
    )
    row.draft_seed_low = engine.aic_mtp_seed & 0xFFFFFFFF
    row.draft_seed_high = engine.aic_mtp_seed >> 32


def _fill_arrivals(state: WorldState, requests: RequestTable) -> None:
    """Put the requests, or the first turns of sessions, where arrivals are taken from."""
    clock = state.clock[0]
    clock.is_delta = int(requests.is_delta)
    starts = requests.session_starts
    if len(starts) == 0:
        clock.sources_left = len(requests)
        return
    count = len(starts) - 1
    clock.sources_left = count
    state.sessions["first"][:] = state.sessions["next_turn"][:] = starts[:-1]
    state.sessions["end"][:] = starts[1:]
    state.requests["session"][:] = np.repeat(np.arange(count), np.diff(starts))
    ready_ms = requests.arrival_ms[starts[:-1]]
    if clock.max_in_flight > 0:
        count = min(count, int(clock.max_in_flight))
        ready_ms = np.zeros(count)
    clock.next_arrival = count
    order = np.argsort(ready_ms, kind="stable")  # a sorted array is a heap
    timers = state.ready_sessions
    timers["at_ms"][:count] = ready_ms[order]
    timers["order"][:count] = timers["subject"][:count] = order
    state.session_heap[0].num_timers = count


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
    clock.fast_forwards = 1
    clock.captures_requests = int(spec.capture_per_request)
    clock.captures_gaps = int(spec.capture_token_gaps)
    clock.captures_operations = int(spec.capture_planner_details and math.isfinite(initial_tick_ms))
    clock.immediate_worker = NONE
    clock.livelocked_worker = NONE
    clock.max_in_flight = spec.workload.replay_concurrency or 0
    clock.collects_telemetry = int(spec.telemetry_sample_interval_ms is not None)
    clock.sample_interval_ms = spec.telemetry_sample_interval_ms or math.inf
    clock.next_sample_ms = math.inf


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
    nodes = state.nodes
    nodes["bucket_first"][:] = NONE
    nodes["parent"][:] = np.arange(1, len(nodes) + 1)
    nodes["parent"][-1:] = NONE
    arena.node_free = 0 if len(nodes) else NONE
    arena.node_free_count = len(nodes)

"""Build the tables of a run from a spec and a request table."""

import math

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.tables import (
    MAX_DRAFT_TOKENS,
    NONE,
    PREEMPT_FIRST,
    PREEMPT_LAST,
    PREEMPT_NONE,
    ROLE_AGGREGATED,
    ROLE_DECODE,
    ROLE_PREFILL,
    TIMING_FIXED,
    TIMING_POLYNOMIAL,
    TIMING_TABLE,
    UNLIMITED,
    EngineRow,
)
from aisim_gym.errors import SpecError, UnsupportedError
from aisim_gym.fleet.action_queue import clear_queue
from aisim_gym.fleet.events import push_session
from aisim_gym.fleet.tables import DECODE, NUM_POOLS, PREFILL, QUEUE_DEFERRED, OptionsRow
from aisim_gym.fleet.token_stream import SMALLEST_LOG
from aisim_gym.fleet.worker_life import create_first_workers
from aisim_gym.fleet.world import World
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.fleet.worlds import BACKENDS, WORLD_TYPES, world_type
from aisim_gym.metrics.request_times import RequestRow, make_requests
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
"""Initial number of worker rows with a planner."""

SPARE_LOGS = 16
"""Initial number of token logs per worker, for log growth and later workers. Unused rows cost
nothing, since the operating system allocates memory on first write."""


def build_world(spec: ReplaySpec, requests: RequestTable, initial_tick_ms: float) -> WorldState:
    """Return the tables of a run at time 0, before any event.

    Args:
        spec: Fleet and options.
        requests: Sorted by arrival; not modified.
        initial_tick_ms: First tick, +inf for none.

    Raises:
        UnsupportedError: If this version does not support a setting of the spec.
    """
    fleet = spec.fleet
    engines = make_table(EngineRow, NUM_POOLS)
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

    # Worker rows are not reused: a planner needs more of them.
    spare_workers = SPARE_WORKERS if math.isfinite(initial_tick_ms) else 0
    num_workers = sum(counts) + spare_workers
    num_ranks = int(counts[0] * engines[PREFILL].dp_size + counts[1] * engines[DECODE].dp_size)
    num_ranks += spare_workers * int(engines[DECODE].dp_size)
    is_disaggregated = not isinstance(fleet, AggregatedFleet)
    request_rows, contents = _fill_requests(requests, fleet.block_size)
    options = _make_options(spec, math.isfinite(initial_tick_ms), is_disaggregated)
    options[0].backend = WORLD_TYPES.index(world_class)
    options[0].reserves_first = backend.reserves_first
    options[0].has_stages = has_stages(fleet)
    options[0].is_delta = requests.is_delta
    stage_tables, tables_without_stages = make_stages(fleet, num_workers, len(requests))
    state = WorldState.make(
        {
            "worker": num_workers,
            "rank": num_ranks,
            "request": len(requests),
            "session": max(0, len(requests.session_starts) - 1),
        },
        {
            "options": options,
            "engines": engines,
            "requests": request_rows,
            "contents": contents,
            "think_ms": np.array(requests.delay_ms, np.float64),
            "timing_grids": grids[0] if len(grids) == 1 else np.concatenate([np.zeros(0), *grids]),
            **stage_tables,
        },
        first_rows={
            "events": num_workers + 64,
            "log_entries": SPARE_LOGS * SMALLEST_LOG * sum(counts),
        },
        left_out={
            *tables_without_stages,
            *(() if drafts else ("draws",)),
            *(() if backend.has_tree else ("nodes",)),
            *(() if is_disaggregated else ("handoffs",)),
            *(() if spec.capture_per_request else ("admissions",)),
        },
    )
    world = state.world
    _fill_clock(world, spec, initial_tick_ms)
    _fill_arrivals(world, requests)
    for kind in range(QUEUE_DEFERRED):
        clear_queue(world.action_queues[kind])
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
    row.prefix_caching = engine.enable_prefix_caching
    row.chunked_prefill = engine.enable_chunked_prefill
    row.preemption = PREEMPT_FIRST if engine.preemption_mode == "fifo" else PREEMPT_LAST
    backend, _ = BACKENDS[engine.backend]
    if not backend.preempts:
        row.preemption = PREEMPT_NONE
    row.recomputes_last = backend.recomputes_last
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
    row.transfer_is_timed = bool(row.transfer_bytes_per_token > 0 and row.transfer_gb_s > 0)
    row.transfers_missing_only = engine.kv_transfer_timing_mode == "destination_missing"


def fill_table_timing(row: EngineRow, table: TimingTable, grids: list[NDArray[np.float64]]) -> None:
    """Set the timing table of an engine, adding it to ``grids`` unless equal to the last one.

    Roles of one profile have equal tables.

    Args:
        row: Modified in place.
        table: Duration of its passes.
        grids: Values of the tables of all roles so far, concatenated later; modified in place.
    """
    if not (grids and np.array_equal(grids[-1], table.flat)):
        grids.append(table.flat)
    row.timing = TIMING_TABLE
    row.table_clamps = table.clamps
    row.table_rows_are_seqs = table.rows_are_sequences
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
    """Set SGLang's options; some are divided by the number of ranks (engine-sglang.md §17)."""
    engine, sglang = launch.engine, launch.engine.sglang
    row.max_prefill_tokens = sglang.max_prefill_tokens
    row.chunk_tokens = sglang.chunked_prefill_size // launch.dp_size
    row.clip_tokens = sglang.clip_max_new_tokens
    conservativeness = sglang.schedule_conservativeness * (0.3 if launch.dp_size > 1 else 1.0)
    row.init_ratio = 0.7 * conservativeness
    row.min_ratio = row.init_ratio * 0.14
    row.ratio_decay = (row.init_ratio - row.min_ratio) / 600.0
    row.sorts_by_prefix = sglang.schedule_policy == "lpm"
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


def _fill_arrivals(w: World, requests: RequestTable) -> None:
    """Fill the arrival sources with the requests, or with the first turns of sessions."""
    starts = requests.session_starts
    if len(starts) == 0:
        w.clock.sources_left = len(requests)
        return
    count = len(starts) - 1
    w.clock.sources_left = count
    w.sessions["first"][:] = w.sessions["next_turn"][:] = starts[:-1]
    w.sessions["end"][:] = starts[1:]
    w.requests["session"][:] = np.repeat(np.arange(count), np.diff(starts))
    ready_ms = requests.arrival_ms[starts[:-1]]
    if w.options.max_in_flight > 0:
        count = min(count, int(w.options.max_in_flight))
        ready_ms = np.zeros(count)
    w.clock.next_arrival = count
    order = np.argsort(ready_ms, kind="stable")
    for session in order.tolist():
        push_session(w, session, float(ready_ms[session]))


def _fill_requests(
    requests: RequestTable, block_size: int
) -> tuple[Table[RequestRow], NDArray[np.int64]]:
    blocks = build_prompt_blocks(requests, block_size)
    rows = make_requests(len(requests))
    rows["source_index"][:] = requests.row
    rows["arrival_ms"][:] = requests.arrival_ms
    rows["input_tokens"][:] = requests.input_tokens
    rows["output_tokens"][:] = requests.output_tokens
    rows["content_start"][:] = blocks.content_start
    rows["shared_blocks"][:] = blocks.shared_blocks
    rows["private_base"][:] = blocks.private_base
    return rows, np.array(blocks.contents, np.int64)


def _make_options(spec: ReplaySpec, has_ticks: bool, is_disaggregated: bool) -> Table[OptionsRow]:
    table = make_table(OptionsRow, 1)
    options = table[0]
    options.max_in_flight = spec.workload.replay_concurrency or 0
    options.is_disaggregated = is_disaggregated
    options.fast_forwards = True
    options.captures_requests = spec.capture_per_request
    options.captures_gaps = spec.capture_token_gaps
    options.captures_operations = spec.capture_planner_details and has_ticks
    return table


def _fill_clock(w: World, spec: ReplaySpec, initial_tick_ms: float) -> None:
    w.clock.max_sim_ms = math.inf if spec.max_sim_time_ms is None else spec.max_sim_time_ms
    w.clock.next_tick_ms = initial_tick_ms
    w.resume.phase = PHASE_PASS_ENDS
    w.resume.immediate_worker = NONE
    w.resume.livelocked_worker = NONE
    w.telemetry.collects_fpm = True
    w.telemetry.is_on = spec.telemetry_sample_interval_ms is not None
    w.telemetry.sample_interval_ms = spec.telemetry_sample_interval_ms or math.inf
    w.telemetry.next_sample_ms = math.inf

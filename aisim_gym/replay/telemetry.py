"""Telemetry: samples of traffic and engine state at fixed intervals, independent of ticks.

Rules: replay-runtime.md §16. Gauges show the state after the last command or pass end of a rank.
Traffic and cache counters cover the interval since the last sample.
"""

import math
from typing import Any

import numpy as np

from aisim_gym.fleet.tables import (
    DECODE,
    PREFILL,
    ROSTER_LIVE,
    WORKER_ACTIVE,
    WORKER_DRAINING,
    WORKER_STARTING,
    PoolRow,
)
from aisim_gym.fleet.tick import is_workload_done
from aisim_gym.fleet.worker_ranks import ranks_of
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.metrics.traffic_window import SAMPLE_WINDOW, TrafficRow, restart_window
from aisim_gym.replay.snapshot import traffic_statistics
from aisim_gym.tables import make_table

Sample = dict[str, Any]
"""One sample, with exactly the reference's keys."""


def take_due_sample(state: WorldState, ordinal: int) -> Sample:
    """Return the sample that is due now, begin a new interval and schedule the next sample.

    The first sample is the baseline at time 0, followed by one per interval while work remains.
    """
    clock = state.world.clock
    if ordinal == 0:
        sample = _sample(state, ordinal, "baseline")
        state.world.telemetry.sample_origin_ms = clock.now_ms
        state.world.telemetry.sample_ordinal = 1
    else:
        sample = _sample(state, ordinal, "periodic")
        state.world.telemetry.sample_ordinal += 1
        _begin_interval(state)
    state.world.telemetry.next_sample_ms = math.inf
    if ordinal == 0 or not is_workload_done(state.world):
        state.world.telemetry.next_sample_ms = (
            state.world.telemetry.sample_origin_ms
            + float(state.world.telemetry.sample_ordinal) * state.world.telemetry.sample_interval_ms
        )
    return sample


def take_final_sample(state: WorldState, ordinal: int) -> Sample | None:
    """Return the final sample of a run, None if there is nothing to report."""
    window = state.world.traffic[SAMPLE_WINDOW]
    counters = [
        window.num_req,
        window.shape_count,
        window.accept_forwards,
        *state.world.pools["sample_hit_tokens"],
        *state.world.pools["sample_total_tokens"],
        *state.world.pools["sample_preemptions"],
    ]
    clock = state.world.clock
    state.world.telemetry.next_sample_ms = math.inf
    if clock.now_ms <= window.window_start_ms and not any(counters):
        return None
    sample = _sample(state, ordinal, "final")
    _begin_interval(state)
    return sample


def _begin_interval(state: WorldState) -> None:
    restart_window(state.world.traffic[SAMPLE_WINDOW], float(state.world.clock.now_ms))
    for name in ("sample_hit_tokens", "sample_total_tokens", "sample_preemptions"):
        state.world.pools[name][:] = 0


def _sample(state: WorldState, ordinal: int, kind: str) -> Sample:
    now_ms = float(state.world.clock.now_ms)
    window, counters = state.world.traffic[SAMPLE_WINDOW], state.world.pools
    if kind == "baseline":  # gauges only; its interval continues into the next sample
        window, counters = make_table(TrafficRow, 1)[0], make_table(PoolRow, len(counters))
    traffic = traffic_statistics(window, now_ms)
    pools = (("prefill", PREFILL), ("decode", DECODE))
    sample: Sample = {
        "sample_ordinal": ordinal,
        "kind": kind,
        "interval_start_ms": float(window.window_start_ms),
        "sampled_at_ms": now_ms,
        "traffic": {
            "duration_s": traffic.duration_s,
            "arriving_requests": traffic.num_req,
            "completed_requests": traffic.shape_count,
            "avg_isl": traffic.avg_isl,
            "avg_osl": traffic.avg_osl,
            "avg_ttft_ms": traffic.avg_ttft_ms,
            "avg_itl_ms": traffic.avg_itl_ms,
            "ttft_count": traffic.ttft_count,
            "itl_count": traffic.itl_count,
            "avg_router_kv_hit_rate": traffic.avg_kv_hit_rate,
            "router_kv_hit_rate_count": traffic.hit_rate_count,
            "avg_accept_length": traffic.avg_accept_length,
            "accept_length_forward_count": traffic.accept_length_forward_count,
        },
    }
    sample |= {f"{name}_scheduler_metrics": _gauges(state, pool) for name, pool in pools}
    sample |= {f"{name}_interval_metrics": _counters(counters[pool]) for name, pool in pools}
    sample |= {f"router_pending_{name}_requests": 0 for name, _ in pools}
    for label, worker_state in (
        ("active", WORKER_ACTIVE),
        ("starting", WORKER_STARTING),
        ("draining", WORKER_DRAINING),
    ):
        sample |= {
            f"{label}_{name}_ids": _worker_ids(state, pool, worker_state) for name, pool in pools
        }
    return sample


def _gauges(state: WorldState, pool_id: int) -> list[dict[str, Any]]:
    """Return one record per rank of a live worker, including starting and draining workers."""
    rows = []
    engine = state.world.engines[pool_id]
    total_blocks = int(engine.num_blocks)
    for row in state.world.rosters[
        ROSTER_LIVE + pool_id, : state.world.pools[pool_id].live_count
    ].tolist():
        worker = state.world.workers[row]
        for dp_rank, rank_id in enumerate(ranks_of(worker)):
            gauge = state.world.gauges[rank_id]
            active, inactive = int(gauge.active_blocks), int(gauge.inactive_blocks)
            rows.append(
                {
                    "worker_id": int(worker.id),
                    "dp_rank": dp_rank,
                    "active_blocks": active,
                    "inactive_blocks": inactive,
                    "total_blocks": total_blocks,
                    "active_cache_usage": active / total_blocks,
                    "physical_cache_usage": (active + inactive) / total_blocks,
                    "running_requests": int(gauge.running),
                    "waiting_requests": int(gauge.waiting),
                }
            )
    return rows


def _counters(pool: PoolRow) -> dict[str, int]:
    return {
        "cache_hit_tokens": int(pool.sample_hit_tokens),
        "cache_total_tokens": int(pool.sample_total_tokens),
        "preemptions": int(pool.sample_preemptions),
    }


def _worker_ids(state: WorldState, pool_id: int, worker_state: int) -> list[int]:
    live = state.world.rosters[ROSTER_LIVE + pool_id, : state.world.pools[pool_id].live_count]
    workers = np.asarray(state.world.workers)[live]
    ids: list[int] = workers["id"][workers["state"] == worker_state].tolist()
    return ids

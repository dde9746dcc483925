"""The entries of the default observation: one formula, for snapshots and, compiled, for tables."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aisim_gym.fleet.tables import ROSTER_LIVE, WORKER_ACTIVE, WORKER_DRAINING, WORKER_STARTING
from aisim_gym.fleet.world import World
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.replay.snapshot import TICK_WINDOW

MOST_REQUESTS, MOST_TOKENS, MOST_RPS, MOST_LENGTH = 1e4, 1e8, 1e3, 1e6
LONGEST_PASS_S = 0.5
HIGHEST_SLO_RATIO = 4.0


class PoolScale(NamedTuple):
    """What a pool's numbers are divided by."""

    pool_id: int
    max_workers: float
    max_batched_tokens: float  # per pass
    max_kv_tokens: float  # per worker


class PoolSums(NamedTuple):
    """A pool at a tick: workers by state, and sums over the latest passes that are reported."""

    active: int
    starting: int
    draining: int
    records: int  # ranks that reported a pass
    workers: int  # workers with such a rank
    queued: int
    queued_tokens: int
    running: int
    batch_tokens: int
    kv_tokens: int
    wall_s: float


@kernel
def pool_entries(sums: PoolSums, scale: PoolScale) -> tuple[float, ...]:
    """Return the entries of a pool, in the order of ``POOL_ENTRIES``."""
    records = max(1, sums.records)
    workers = max(1, sums.workers)
    return (
        sums.active / scale.max_workers,
        sums.starting / scale.max_workers,
        sums.draining / scale.max_workers,
        _log_scale(sums.queued, MOST_REQUESTS),
        _log_scale(sums.queued_tokens, MOST_TOKENS),
        _log_scale(sums.running, MOST_REQUESTS),
        sums.batch_tokens / (records * scale.max_batched_tokens),
        sums.kv_tokens / (workers * scale.max_kv_tokens),
        sums.wall_s / records / LONGEST_PASS_S,
    )


@kernel
def traffic_entries(
    duration_s: float,
    arrived: int,
    completed: int,
    mean_input: float,
    mean_output: float,
    ttft_ratio: float,
    itl_ratio: float,
) -> tuple[float, ...]:
    """Return the entries of the traffic, in the order of ``TRAFFIC_ENTRIES``, without the time.

    Args:
        duration_s: Time since the last tick.
        arrived: Requests that arrived in it.
        completed: Requests that completed in it.
        mean_input: Tokens per completed request, 0 without any; likewise the next three.
        mean_output: Tokens per completed request.
        ttft_ratio: Mean time to the first token / its limit.
        itl_ratio: Mean gap between tokens / its limit.
    """
    per_s = 1.0 / duration_s if duration_s > 0.0 else 0.0
    return (
        _log_scale(arrived * per_s, MOST_RPS),
        _log_scale(completed * per_s, MOST_RPS),
        _log_scale(mean_input, MOST_LENGTH),
        _log_scale(mean_output, MOST_LENGTH),
        ttft_ratio / HIGHEST_SLO_RATIO,
        itl_ratio / HIGHEST_SLO_RATIO,
    )


@entry_point
def write_metrics(
    w: World,
    scales: NDArray[np.float64],
    ttft_slo_ms: float,
    itl_slo_ms: float,
    horizon_ms: float,
    out: NDArray[np.float32],
) -> int:
    """Write the observation of a world at a tick; return how many entries had to be clipped.

    No entry is ever NaN: every divisor is positive and every sum finite.

    Args:
        w: Only read.
        scales: Shape (pools, 4), rows of :class:`PoolScale`.
        ttft_slo_ms: Limit on the time to the first token.
        itl_slo_ms: Limit on the mean gap between tokens.
        horizon_ms: Length of the episode.
        out: Shape (9 * pools + 7,); filled with values in 0..1.
    """
    num_clipped, at = 0, 0
    for k in range(len(scales)):
        scale = PoolScale(int(scales[k, 0]), scales[k, 1], scales[k, 2], scales[k, 3])
        for value in pool_entries(_read_pool(w, scale.pool_id), scale):
            num_clipped += _write(out, at, value)
            at += 1
    traffic = w.traffic[TICK_WINDOW]
    entries = traffic_entries(
        (w.clock.now_ms - traffic.window_start_ms) / 1000.0,
        traffic.num_req,
        traffic.shape_count,
        _mean(traffic.input_tokens, traffic.shape_count),
        _mean(traffic.output_tokens, traffic.shape_count),
        _mean(traffic.ttft_sum_ms, traffic.ttft_count) / ttft_slo_ms,
        _mean(traffic.itl_sum_ms, traffic.itl_count) / itl_slo_ms,
    )
    for value in entries:
        num_clipped += _write(out, at, value)
        at += 1
    return num_clipped + _write(out, at, w.clock.now_ms / horizon_ms)


@kernel
def _read_pool(w: World, pool_id: int) -> PoolSums:
    """Return the sums over a pool; records are those that a snapshot shows, in its order."""
    starting = draining = active = records = workers = 0
    queued = queued_tokens = running = batch_tokens = kv_tokens = 0
    wall_s = 0.0
    dp_size = w.engines[pool_id].dp_size
    for i in range(w.pools[pool_id].live_count):
        worker = w.workers[w.rosters[ROSTER_LIVE + pool_id, i]]
        starting += int(worker.state == WORKER_STARTING)
        draining += int(worker.state == WORKER_DRAINING)
        if worker.state != WORKER_ACTIVE:
            continue
        active += 1
        records_before = records
        for rank in range(worker.first_rank, worker.first_rank + dp_size):
            fpm = w.fpms[rank]
            if fpm.is_new == 0:
                continue
            records += 1
            queued += fpm.num_queued_prefill + fpm.num_queued_decode
            queued_tokens += fpm.sum_queued_prefill_tokens + fpm.sum_queued_decode_kv_tokens
            running += fpm.num_prefill_requests + fpm.num_decode_requests
            batch_tokens += fpm.sum_prefill_tokens
            kv_tokens += fpm.sum_prefill_tokens + fpm.sum_prefill_kv_tokens
            kv_tokens += fpm.sum_decode_kv_tokens
            wall_s += fpm.wall_time
        workers += int(records > records_before)
    return PoolSums(
        active,
        starting,
        draining,
        records,
        workers,
        queued,
        queued_tokens,
        running,
        batch_tokens,
        kv_tokens,
        wall_s,
    )


@kernel
def _write(out: NDArray[np.float32], at: int, value: float) -> int:
    """Write a value, clipped to 0..1; return whether that changed it."""
    out[at] = min(max(value, 0.0), 1.0)
    return int(value < 0.0 or value > 1.0)


@kernel
def _mean(total: float, count: int) -> float:
    return float(total) / int(count) if count > 0 else 0.0


@kernel
def _log_scale(value: float, most: float) -> float:
    return math.log1p(float(value)) / math.log1p(most)

"""Entries of observations: one formula each, for snapshots and, compiled, for tables."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.fpm import FpmRow
from aisim_gym.fleet.tables import ROSTER_LIVE, WORKER_ACTIVE, WORKER_DRAINING, WORKER_STARTING
from aisim_gym.fleet.worker_ranks import ranks_of
from aisim_gym.fleet.world import World
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.replay.snapshot import TICK_WINDOW, ForwardPassMetrics

MOST_REQUESTS, MOST_TOKENS, MOST_RPS, MOST_LENGTH = 1e4, 1e8, 1e3, 1e6
LONGEST_PASS_S = 0.5
HIGHEST_SLO_RATIO = 4.0


class PoolScale(NamedTuple):
    """What a pool's numbers are divided by."""

    pool_id: int
    max_workers: float
    max_batched_tokens: float  # per pass
    max_kv_tokens: float  # per worker
    gpu_frac: float  # GPUs of a worker / most GPUs of the fleet
    dp_size: float  # ranks per worker


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


class TrafficSums(NamedTuple):
    """Requests since the last tick; means are 0 without anything to take them of."""

    duration_s: float
    arrived: int
    completed: int
    mean_input: float  # tokens per completed request
    mean_output: float
    ttft_ratio: float  # mean time to the first token / its limit
    itl_ratio: float  # mean gap between tokens / its limit


class EpisodeNow(NamedTuple):
    """What an environment knows beside the snapshot; so does the front end of a real fleet.

    Attributes:
        time_frac: Simulated time as a share of the horizon, 0..1.
        in_flight: Requests that arrived and did not end yet, wherever they are.
        overdue: Requests that waited for a first token beyond the TTFT limit: their mean number
            over the last step, 0 at the start of an episode.
        bad_frac: Of the requests that ended in the last step, the share that is not good, 0..1; 0
            if none ended, and at the start.
    """

    time_frac: float
    in_flight: int
    overdue: float
    bad_frac: float


@kernel
def pool_entries(sums: PoolSums, scale: PoolScale) -> tuple[float, ...]:
    """Return the entries of a pool, in the order of ``POOL_ENTRIES``."""
    return (
        sums.active / scale.max_workers,
        sums.starting / scale.max_workers,
        sums.draining / scale.max_workers,
        _log_scale(sums.queued, MOST_REQUESTS),
        _log_scale(sums.queued_tokens, MOST_TOKENS),
        _log_scale(sums.running, MOST_REQUESTS),
        _batch_frac(sums, scale),
        _kv_frac(sums, scale),
        sums.wall_s / max(1, sums.records) / LONGEST_PASS_S,
    )


@kernel
def _batch_frac(sums: PoolSums, scale: PoolScale) -> float:
    return sums.batch_tokens / (max(1, sums.records) * scale.max_batched_tokens)


@kernel
def _kv_frac(sums: PoolSums, scale: PoolScale) -> float:
    return sums.kv_tokens / (max(1, sums.workers) * scale.max_kv_tokens)


@kernel
def fleet_entries(traffic: TrafficSums, episode: EpisodeNow, gpu_frac: float) -> tuple[float, ...]:
    """Return the entries behind the pools, in the order of ``FLEET_ENTRIES``."""
    per_s = 1.0 / traffic.duration_s if traffic.duration_s > 0.0 else 0.0
    return (
        _log_scale(traffic.arrived * per_s, MOST_RPS),
        _log_scale(traffic.completed * per_s, MOST_RPS),
        _log_scale(episode.in_flight, MOST_REQUESTS),
        _log_scale(episode.overdue, MOST_REQUESTS),
        episode.bad_frac,
        _log_scale(traffic.mean_input, MOST_LENGTH),
        _log_scale(traffic.mean_output, MOST_LENGTH),
        traffic.ttft_ratio / HIGHEST_SLO_RATIO,
        traffic.itl_ratio / HIGHEST_SLO_RATIO,
        gpu_frac,
        episode.time_frac,
    )


@kernel
def rank_entries(fpm: ForwardPassMetrics | FpmRow, scale: PoolScale) -> tuple[float, ...]:
    """Return the entries of a rank that reported a pass, in the order of ``RANK_ENTRIES``."""
    kv_tokens = fpm.sum_prefill_tokens + fpm.sum_prefill_kv_tokens + fpm.sum_decode_kv_tokens
    return (
        1.0,
        _log_scale(fpm.num_queued_prefill, MOST_REQUESTS),
        _log_scale(fpm.sum_queued_prefill_tokens, MOST_TOKENS),
        _log_scale(fpm.num_queued_decode, MOST_REQUESTS),
        _log_scale(fpm.sum_queued_decode_kv_tokens, MOST_TOKENS),
        _log_scale(fpm.num_prefill_requests, MOST_REQUESTS),
        _log_scale(fpm.num_decode_requests, MOST_REQUESTS),
        fpm.sum_prefill_tokens / scale.max_batched_tokens,
        kv_tokens * scale.dp_size / scale.max_kv_tokens,
        fpm.wall_time / LONGEST_PASS_S,
    )


@entry_point
def write_summary(
    w: World,
    scales: NDArray[np.float64],
    ttft_slo_ms: float,
    itl_slo_ms: float,
    overdue: float,
    bad_frac: float,
    horizon_ms: float,
    out: NDArray[np.float32],
) -> int:
    """Write the observation of a world at a tick; return how many entries had to be clipped.

    No entry is ever NaN: every divisor is positive and every sum finite.

    Args:
        w: Only read.
        scales: Shape (pools, 6), rows of :class:`PoolScale`.
        ttft_slo_ms: Limit on the time to the first token.
        itl_slo_ms: Limit on the mean gap between tokens.
        overdue: See :class:`EpisodeNow`.
        bad_frac: Likewise.
        horizon_ms: Length of the episode.
        out: Shape (9 * pools + 11,); filled with values in 0..1.
    """
    num_clipped, at, gpu_frac = 0, 0, 0.0
    for k in range(len(scales)):
        scale = _scale(scales, k)
        sums = _read_pool(w, scale.pool_id)
        gpu_frac += (sums.active + sums.starting) * scale.gpu_frac
        for value in pool_entries(sums, scale):
            num_clipped += _write(out, at, value)
            at += 1
    traffic = w.traffic[TICK_WINDOW]
    seen = TrafficSums(
        (w.clock.now_ms - traffic.window_start_ms) / 1000.0,
        traffic.num_req,
        traffic.shape_count,
        _mean(traffic.input_tokens, traffic.shape_count),
        _mean(traffic.output_tokens, traffic.shape_count),
        _mean(traffic.ttft_sum_ms, traffic.ttft_count) / ttft_slo_ms,
        _mean(traffic.itl_sum_ms, traffic.itl_count) / itl_slo_ms,
    )
    episode = EpisodeNow(w.clock.now_ms / horizon_ms, w.clock.in_flight, overdue, bad_frac)
    for value in fleet_entries(seen, episode, gpu_frac):
        num_clipped += _write(out, at, value)
        at += 1
    return num_clipped


@entry_point
def write_ranks(
    w: World,
    scales: NDArray[np.float64],
    pool: int,
    out: NDArray[np.float32],
    mask: NDArray[np.int8],
) -> int:
    """Write a row per rank of a pool's active workers; return how many entries were clipped.

    Args:
        w: Only read.
        scales: Shape (pools, 6), rows of :class:`PoolScale`.
        pool: Row of ``scales``.
        out: Shape (rows, 10); rows of ranks that reported a pass are filled, the rest is left.
        mask: Shape (rows,); 1 is written for the rank of an active worker, the rest is left. What
            the ranks of more active workers than there are rows for would show counts as clipped.
    """
    num_clipped, row = 0, 0
    scale = _scale(scales, pool)
    for i in range(w.pools[scale.pool_id].live_count):
        worker = w.workers[w.rosters[ROSTER_LIVE + scale.pool_id, i]]
        if worker.state != WORKER_ACTIVE:
            continue
        for rank in ranks_of(worker):
            if row == len(mask):
                num_clipped += out.shape[1]
                continue
            mask[row] = 1
            if w.fpms[rank].is_new:
                for at, value in enumerate(rank_entries(w.fpms[rank], scale)):
                    out[row, at] = _clipped(value)
                    num_clipped += _is_outside(value)
            row += 1
    return num_clipped


@entry_point
def read_load(w: World, scales: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """Return what the fields of a :class:`Load` are, of a world at a tick.

    Args:
        w: Only read.
        scales: Shape (pools, 6), rows of :class:`PoolScale`.
    """
    kv_frac = batch_frac = 0.0
    for k in range(len(scales)):
        scale = _scale(scales, k)
        sums = _read_pool(w, scale.pool_id)
        kv_frac += min(1.0, _kv_frac(sums, scale))
        batch_frac += min(1.0, _batch_frac(sums, scale))
    traffic = w.traffic[TICK_WINDOW]
    return (
        _mean(traffic.ttft_sum_ms, traffic.ttft_count),
        _mean(traffic.itl_sum_ms, traffic.itl_count),
        kv_frac / len(scales),
        batch_frac / len(scales),
    )


@kernel
def _scale(scales: NDArray[np.float64], k: int) -> PoolScale:
    return PoolScale(
        int(scales[k, 0]), scales[k, 1], scales[k, 2], scales[k, 3], scales[k, 4], scales[k, 5]
    )


@kernel
def _read_pool(w: World, pool_id: int) -> PoolSums:
    """Return the sums over a pool; records are those that a snapshot shows, in its order."""
    starting = draining = active = records = workers = 0
    queued = queued_tokens = running = batch_tokens = kv_tokens = 0
    wall_s = 0.0
    for i in range(w.pools[pool_id].live_count):
        worker = w.workers[w.rosters[ROSTER_LIVE + pool_id, i]]
        starting += int(worker.state == WORKER_STARTING)
        draining += int(worker.state == WORKER_DRAINING)
        if worker.state != WORKER_ACTIVE:
            continue
        active += 1
        records_before = records
        for rank in ranks_of(worker):
            fpm = w.fpms[rank]
            if not fpm.is_new:
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
    """Write a value, clipped; return whether that changed it."""
    out[at] = _clipped(value)
    return _is_outside(value)


@kernel
def _clipped(value: float) -> float:
    return min(max(value, 0.0), 1.0)


@kernel
def _is_outside(value: float) -> int:
    return int(value < 0.0 or value > 1.0)


@kernel
def _mean(total: float, count: int) -> float:
    return float(total) / int(count) if count > 0 else 0.0


@kernel
def _log_scale(value: float, most: float) -> float:
    return math.log1p(float(value)) / math.log1p(most)

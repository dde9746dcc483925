"""Observation entries: their formulas, and compiled code that writes them into arrays.

No entry is ever NaN: all divisors are positive and all sums are finite.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.fpm import FpmRow
from aisim_gym.fleet.readings import (
    PoolScale,
    PoolSums,
    batch_frac,
    kv_frac,
    kv_tokens,
    mean,
    read_pool,
    scale_of,
)
from aisim_gym.fleet.tables import ROSTER_LIVE, WORKER_ACTIVE
from aisim_gym.fleet.worker_ranks import ranks_of
from aisim_gym.fleet.world import World
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.metrics.traffic_window import TICK_WINDOW

MOST_REQUESTS, MOST_TOKENS, MOST_RPS, MOST_LENGTH = 1e4, 1e8, 1e3, 1e6
LONGEST_PASS_S = 0.5
HIGHEST_SLO_RATIO = 4.0


class TrafficSums(NamedTuple):
    """Traffic since the last tick; the mean of no values is 0."""

    duration_s: float
    arrived: int
    completed: int
    mean_input: float  # tokens per completed request
    mean_output: float
    ttft_ratio: float  # mean time to the first token / its limit
    itl_ratio: float  # mean gap between tokens / its limit


class EpisodeNow(NamedTuple):
    """Episode state beyond the snapshot, as the front end of a real fleet could measure it.

    Attributes:
        time_frac: Simulated time as a fraction of the horizon, 0..1.
        in_flight: Requests that have arrived and not ended, in any stage.
        overdue: Mean number of requests waiting for a first token beyond the TTFT limit, over the
            last step; 0 at the start of an episode.
        bad_frac: Fraction of the requests ended in the last step that are not good, 0..1; 0 if none
            ended, and at the start.
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
        batch_frac(sums, scale),
        kv_frac(sums.kv_tokens, sums.workers, scale.max_kv_tokens),
        sums.wall_s / max(1, sums.records) / LONGEST_PASS_S,
    )


@kernel
def fleet_entries(traffic: TrafficSums, episode: EpisodeNow, gpu_frac: float) -> tuple[float, ...]:
    """Return the fleet-wide entries, which follow the pools, in the order of ``FLEET_ENTRIES``."""
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
def rank_entries(fpm: FpmRow, scale: PoolScale) -> tuple[float, ...]:
    """Return the entries of a rank that reported a pass, in the order of ``RANK_ENTRIES``."""
    return (
        1.0,
        _log_scale(fpm.num_queued_prefill, MOST_REQUESTS),
        _log_scale(fpm.sum_queued_prefill_tokens, MOST_TOKENS),
        _log_scale(fpm.num_queued_decode, MOST_REQUESTS),
        _log_scale(fpm.sum_queued_decode_kv_tokens, MOST_TOKENS),
        _log_scale(fpm.num_prefill_requests, MOST_REQUESTS),
        _log_scale(fpm.num_decode_requests, MOST_REQUESTS),
        fpm.sum_prefill_tokens / scale.max_batched_tokens,
        kv_tokens(fpm) * scale.dp_size / scale.max_kv_tokens,
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
    out: NDArray[np.float64],
) -> None:
    """Write the unclipped entries of a world at a tick.

    Args:
        w: Only read.
        scales: Shape (pools, 6), rows of :class:`PoolScale`.
        ttft_slo_ms: Limit on the time to the first token.
        itl_slo_ms: Limit on the mean gap between tokens.
        overdue: See :class:`EpisodeNow`.
        bad_frac: See :class:`EpisodeNow`.
        horizon_ms: Length of the episode.
        out: Shape (9 * pools + 11,), filled.
    """
    _write_summary(w, scales, ttft_slo_ms, itl_slo_ms, overdue, bad_frac, horizon_ms, out)


@entry_point
def write_ranks(
    w: World,
    scales: NDArray[np.float64],
    ttft_slo_ms: float,
    itl_slo_ms: float,
    overdue: float,
    bad_frac: float,
    horizon_ms: float,
    out: NDArray[np.float64],
    first_rows: NDArray[np.int64],
    ranks: NDArray[np.float64],
    mask: NDArray[np.int8],
) -> None:
    """Write the entries of :func:`write_summary` and one row per rank of every active worker.

    Args:
        w: See :func:`write_summary`, as for the next seven arguments.
        scales: Shape (pools, 6).
        ttft_slo_ms: Limit on the time to the first token.
        itl_slo_ms: Limit on the mean gap between tokens.
        overdue: Number of requests.
        bad_frac: Fraction, 0..1.
        horizon_ms: Length of the episode.
        out: Filled.
        first_rows: Shape (pools + 1,): first row of each pool, then the end of the last pool.
        ranks: Shape (rows, 10); rows of ranks that reported a pass are filled, others are
            unchanged. Ranks beyond the last row of their pool are omitted.
        mask: Shape (rows,); set to 1 for ranks of active workers, otherwise unchanged.
    """
    _write_summary(w, scales, ttft_slo_ms, itl_slo_ms, overdue, bad_frac, horizon_ms, out)
    for k in range(len(scales)):
        _write_pool_ranks(w, scale_of(scales, k), first_rows[k], first_rows[k + 1], ranks, mask)


@kernel
def _write_summary(
    w: World,
    scales: NDArray[np.float64],
    ttft_slo_ms: float,
    itl_slo_ms: float,
    overdue: float,
    bad_frac: float,
    horizon_ms: float,
    out: NDArray[np.float64],
) -> None:
    at, gpu_frac = 0, 0.0
    for k in range(len(scales)):
        scale = scale_of(scales, k)
        sums = read_pool(w, scale.pool_id)
        gpu_frac += (sums.active + sums.starting) * scale.gpu_frac
        for value in pool_entries(sums, scale):
            out[at] = value
            at += 1
    traffic = w.traffic[TICK_WINDOW]
    seen = TrafficSums(
        (w.clock.now_ms - traffic.window_start_ms) / 1000.0,
        traffic.num_req,
        traffic.shape_count,
        mean(traffic.input_tokens, traffic.shape_count),
        mean(traffic.output_tokens, traffic.shape_count),
        mean(traffic.ttft_sum_ms, traffic.ttft_count) / ttft_slo_ms,
        mean(traffic.itl_sum_ms, traffic.itl_count) / itl_slo_ms,
    )
    episode = EpisodeNow(w.clock.now_ms / horizon_ms, w.clock.in_flight, overdue, bad_frac)
    for value in fleet_entries(seen, episode, gpu_frac):
        out[at] = value
        at += 1


@kernel
def _write_pool_ranks(
    w: World,
    scale: PoolScale,
    first: int,
    end: int,
    ranks: NDArray[np.float64],
    mask: NDArray[np.int8],
) -> None:
    """Write the rows ``first`` to ``end - 1`` of a pool."""
    at = first
    for i in range(w.pools[scale.pool_id].live_count):
        worker = w.workers[w.rosters[ROSTER_LIVE + scale.pool_id, i]]
        if worker.state != WORKER_ACTIVE:
            continue
        for rank in ranks_of(worker):
            if at == end:
                return
            mask[at] = 1
            if w.fpms[rank].is_new:
                for column, value in enumerate(rank_entries(w.fpms[rank], scale)):
                    ranks[at, column] = value
            at += 1


@entry_point
def clip_entries(
    values: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    out: NDArray[Any],
) -> int:
    """Copy values, each clipped to its bounds.

    Args:
        values: Shape (entries,).
        low: Shape (entries,), lower bounds.
        high: Shape (entries,), upper bounds.
        out: Shape (entries,), float32 or float64, filled.

    Returns:
        Number of clipped values; if any is NaN, ``-1 - i`` with the index ``i`` of the first.
    """
    num_clipped = 0
    for i in range(len(values)):
        value = values[i]
        if math.isnan(value):
            return -1 - i
        num_clipped += int(value < low[i] or value > high[i])
        out[i] = min(max(value, low[i]), high[i])
    return num_clipped


@kernel
def _log_scale(value: float, most: float) -> float:
    return math.log1p(float(value)) / math.log1p(most)

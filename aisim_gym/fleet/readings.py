"""Compiled readings of the tables at a tick: workers, paid time, load and request outcomes.

All functions only read the world. This is the single definition of the KV tokens of a rank, and of
the fractions of a pool's KV capacity and token budget in use.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.fleet.paid_time import pool_worker_seconds
from aisim_gym.fleet.tables import (
    DECODE,
    PREFILL,
    ROSTER_LIVE,
    WORKER_ACTIVE,
    WORKER_DRAINING,
    WORKER_STARTING,
)
from aisim_gym.fleet.worker_ranks import non_draining, ranks_of
from aisim_gym.fleet.world import World
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.metrics.request_times import REQUEST_COMPLETED, REQUEST_OPEN, RequestRow
from aisim_gym.metrics.service_level import keeps_itl, keeps_ttft
from aisim_gym.metrics.traffic_window import TICK_WINDOW


class FleetNow(NamedTuple):
    """The fleet at a tick or at the end; the prefill pool of an aggregated fleet is empty.

    Attributes:
        now_ms: Simulated time.
        prefill: Active and starting prefill workers, the number a target is compared with.
        decode: Likewise for the decode or aggregated pool.
        prefill_s: Worker-seconds paid for so far.
        decode_s: Likewise for the decode or aggregated pool.
    """

    now_ms: float
    prefill: int
    decode: int
    prefill_s: float
    decode_s: float


class PoolScale(NamedTuple):
    """Normalizers of a pool's readings."""

    pool_id: int
    max_workers: float
    max_batched_tokens: float  # per pass
    max_kv_tokens: float  # per worker
    gpu_frac: float  # GPUs of a worker / maximum GPUs of the fleet
    dp_size: float  # ranks per worker


class PoolSums(NamedTuple):
    """A pool at a tick: workers by state, and sums over the latest reported passes."""

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


class PassMetrics(Protocol):
    """Forward-pass metrics that determine the KV tokens of a rank, from a table or a snapshot."""

    @property
    def sum_prefill_tokens(self) -> int:
        """Prompt tokens computed in the pass."""
        ...

    @property
    def sum_prefill_kv_tokens(self) -> int:
        """Tokens of the same prompts computed before the pass."""
        ...

    @property
    def sum_decode_kv_tokens(self) -> int:
        """KV tokens of the decoding requests."""
        ...


@kernel
def prefill_kv_tokens(fpm: PassMetrics) -> int:
    """Return the KV tokens of the prompts in a pass."""
    return fpm.sum_prefill_tokens + fpm.sum_prefill_kv_tokens


@kernel
def kv_tokens(fpm: PassMetrics) -> int:
    """Return the KV tokens of all requests in a pass."""
    return prefill_kv_tokens(fpm) + fpm.sum_decode_kv_tokens


@kernel
def kv_frac(held_tokens: int, num_workers: int, max_kv_tokens: float) -> float:
    """Return the fraction of KV capacity in use on reporting workers, 0 if none reports.

    Args:
        held_tokens: Sum of :func:`kv_tokens`.
        num_workers: Workers with a rank that reported a pass.
        max_kv_tokens: KV capacity of a worker.
    """
    return held_tokens / (max(1, num_workers) * max_kv_tokens)


@kernel
def batch_frac(sums: PoolSums, scale: PoolScale) -> float:
    """Return the prompt tokens of the latest passes as a fraction of their token budgets."""
    return sums.batch_tokens / (max(1, sums.records) * scale.max_batched_tokens)


@kernel
def scale_of(scales: NDArray[np.float64], k: int) -> PoolScale:
    """Return row ``k`` of an array of scales, shape (pools, 6)."""
    return PoolScale(
        int(scales[k, 0]), scales[k, 1], scales[k, 2], scales[k, 3], scales[k, 4], scales[k, 5]
    )


@kernel
def mean(total: float, count: int) -> float:
    """Return ``total / count``, 0 if the count is 0."""
    return float(total) / int(count) if count > 0 else 0.0


@kernel
def read_pool(w: World, pool_id: int) -> PoolSums:
    """Return the sums over a pool, adding the records of a snapshot in their order."""
    starting = draining = active = records = workers = 0
    queued = queued_tokens = running = batch_tokens = held_tokens = 0
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
            held_tokens += kv_tokens(fpm)
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
        held_tokens,
        wall_s,
    )


@entry_point
def read_fleet(w: World) -> tuple[float, int, int, float, float]:
    """Return the fields of a :class:`FleetNow`."""
    return _fleet_now(w)


@entry_point
def read_load(w: World, scales: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """Return the load of the fleet at a tick.

    Args:
        w: Only read.
        scales: Shape (pools, 6), rows of :class:`PoolScale`.

    Returns:
        Mean time to the first token in ms, mean gap between tokens in ms, fraction of the KV
        capacity and fraction of the token budget in use. Both fractions are capped at 1 per pool
        and averaged over pools.
    """
    kv_fracs = batch_fracs = 0.0
    for k in range(len(scales)):
        scale = scale_of(scales, k)
        sums = read_pool(w, scale.pool_id)
        kv_fracs += min(1.0, kv_frac(sums.kv_tokens, sums.workers, scale.max_kv_tokens))
        batch_fracs += min(1.0, batch_frac(sums, scale))
    traffic = w.traffic[TICK_WINDOW]
    return (
        mean(traffic.ttft_sum_ms, traffic.ttft_count),
        mean(traffic.itl_sum_ms, traffic.itl_count),
        kv_fracs / len(scales),
        batch_fracs / len(scales),
    )


@entry_point
def count_outcomes(
    w: World,
    is_counted: NDArray[np.bool_],
    first: int,
    since_ms: float,
    ttft_slo_ms: float,
    itl_slo_ms: float,
) -> tuple[int, int, int, int, int, float, tuple[float, int, int, float, float]]:
    """Count the requests that ended since the previous call, and read the fleet.

    Args:
        w: Only read.
        is_counted: Shape (requests,), whether each request is already counted; modified in place.
        first: All requests before this one are already counted.
        since_ms: Time of the previous call.
        ttft_slo_ms: Limit on the time to the first token.
        itl_slo_ms: Limit on the mean gap between tokens.

    Returns:
        ``first`` for the next call; requests arrived so far; completed, rejected and good requests
        of this step; time in ms waited beyond the TTFT limit in this step; the fields of a
        :class:`FleetNow`. A single call returns all of them because entering compiled code with a
        world takes longer than the reading.
    """
    now_ms = float(w.clock.now_ms)
    completed, rejected, good, overdue_ms = 0, 0, 0, 0.0
    first_open = first
    end = end_of_arrivals(w)
    for i in range(first, end):
        request = w.requests[i]
        if request.is_arrived:
            due_ms = max(request.arrival_ms + ttft_slo_ms, since_ms)
            overdue_ms += max(_waits_until_ms(request, now_ms) - due_ms, 0.0)
        if request.status == REQUEST_OPEN:
            continue
        if not is_counted[i]:
            is_counted[i] = True
            if request.status == REQUEST_COMPLETED:
                completed += 1
                good += int(_is_good(request, ttft_slo_ms, itl_slo_ms))
            else:
                rejected += 1
        if i == first_open:
            first_open += 1
    arrived = int(w.clock.arrived_requests)
    return first_open, arrived, completed, rejected, good, float(overdue_ms), _fleet_now(w)


@kernel
def end_of_arrivals(w: World) -> int:
    """Return the end of the request rows that may have arrived; exact for a list."""
    return len(w.requests) if len(w.sessions) > 0 else int(w.clock.next_arrival)


@kernel
def _fleet_now(w: World) -> tuple[float, int, int, float, float]:
    return (
        float(w.clock.now_ms),
        non_draining(w.pools[PREFILL]),
        non_draining(w.pools[DECODE]),
        float(pool_worker_seconds(w, PREFILL)),
        float(pool_worker_seconds(w, DECODE)),
    )


@kernel
def _waits_until_ms(request: RequestRow, now_ms: float) -> float:
    """Return until when a request waits for its first token."""
    if request.emitted_tokens > 0:
        return request.first_token_ms
    return now_ms if request.status == REQUEST_OPEN else request.terminal_ms


@kernel
def _is_good(request: RequestRow, ttft_slo_ms: float, itl_slo_ms: float) -> bool:
    """Return whether a completed request meets both latency limits."""
    tokens = request.emitted_tokens
    ttft_ms = request.first_token_ms - request.arrival_ms
    gap_ms = (request.last_token_ms - request.first_token_ms) / max(tokens - 1, 1)
    return bool(keeps_ttft(tokens, ttft_ms, ttft_slo_ms) & keeps_itl(tokens, gap_ms, itl_slo_ms))

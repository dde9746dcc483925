"""Time series of a run for plots: arrivals, workers and latencies."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.metrics.request_times import REQUEST_COMPLETED
from aisim_gym.replay import Replay
from aisim_gym.spec import AggregatedFleet

WINDOWS_S = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
MOST_WINDOWS = 120

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WorkerCounts:
    """Workers of one pool as step functions: each count holds until the next time.

    Attributes:
        at_s: Shape (steps,), ascending seconds; the first is 0, the last is the end of the run.
        active: Workers that take requests, shape (steps,).
        starting: Workers that are starting up.
        draining: Workers that only finish their requests.
    """

    at_s: Floats
    active: NDArray[np.int64]
    starting: NDArray[np.int64]
    draining: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Latencies:
    """One latency of the completed requests, by arrival.

    Attributes:
        arrival_s: Shape (requests,), ascending seconds.
        value_ms: Shape (requests,), ms.
        window_s: Shape (windows,): centre of each window, up to the last request's window, seconds.
        p50_ms: Median in each window, NaN in a window without requests.
        p99_ms: 99th percentile in each window.
    """

    arrival_s: Floats
    value_ms: Floats
    window_s: Floats
    p50_ms: Floats
    p99_ms: Floats


@dataclass(frozen=True, eq=False)
class Timeline:
    """A run over time.

    Attributes:
        end_s: Simulated time of the run, seconds.
        window_s: Width of a window, seconds.
        arrival_edges_s: Shape (windows + 1,): bounds of the windows of ``arrivals_rps``.
        arrivals_rps: Shape (windows,): arrivals per second.
        not_completed_rps: Arrivals per second of requests that have not completed.
        pools: Worker counts by name of the pool: prefill and decode, or agg.
        ttft: Time to first token.
        itl: Mean gap between tokens; requests of one token are excluded.
    """

    end_s: float
    window_s: float
    arrival_edges_s: Floats
    arrivals_rps: Floats
    not_completed_rps: Floats
    pools: dict[str, WorkerCounts]
    ttft: Latencies
    itl: Latencies

    @classmethod
    def of(cls, replay: Replay) -> "Timeline":
        """Return the timeline so far; worker counts are exact, not sampled at ticks."""
        state = replay.state
        requests = np.asarray(state.world.requests)
        arrived = requests[requests["is_arrived"]]
        arrived = arrived[np.argsort(arrived["arrival_ms"], kind="stable")]
        end_s = replay.now_ms / 1000.0
        window_s = choose_window_s(end_s)
        edges_s = np.arange(0.0, end_s + window_s, window_s)
        is_done = arrived["status"] == REQUEST_COMPLETED
        done, others = arrived[is_done], arrived[~is_done]
        arrival_s = done["arrival_ms"] / 1000.0
        ttft_ms = done["first_token_ms"] - done["arrival_ms"]
        gaps = np.where(done["emitted_tokens"] > 1, done["emitted_tokens"] - 1.0, np.nan)
        itl_ms = (done["last_token_ms"] - done["first_token_ms"]) / gaps
        pools = {"prefill": PREFILL, "decode": DECODE}
        if isinstance(replay.spec.fleet, AggregatedFleet):
            pools = {"agg": DECODE}
        return cls(
            end_s=end_s,
            window_s=window_s,
            arrival_edges_s=edges_s,
            arrivals_rps=_rates(arrived["arrival_ms"] / 1000.0, edges_s, window_s),
            not_completed_rps=_rates(others["arrival_ms"] / 1000.0, edges_s, window_s),
            pools={name: count_workers(replay, pool_id) for name, pool_id in pools.items()},
            ttft=summarize_latencies(arrival_s, ttft_ms, window_s),
            itl=summarize_latencies(arrival_s, itl_ms, window_s),
        )


def choose_window_s(duration_s: float) -> float:
    """Return the shortest standard window that gives at most ``MOST_WINDOWS`` windows."""
    for window_s in WINDOWS_S:
        if duration_s / window_s <= MOST_WINDOWS:
            return window_s
    return WINDOWS_S[-1] * math.ceil(duration_s / WINDOWS_S[-1] / MOST_WINDOWS)


def count_workers(replay: Replay, pool_id: int) -> WorkerCounts:
    """Return the worker counts of one pool, from the lifetimes of its workers."""
    state, end_ms = replay.state, replay.now_ms
    workers = np.asarray(state.world.workers)[: int(state.world.pools["num_workers"].sum())]
    workers = workers[workers["pool"] == pool_id]
    created_ms = workers["created_ms"]
    removed_ms = _or_later(workers["removed_ms"], end_ms)
    # A worker leaves a state at its next transition.
    draining_ms = _or_later(workers["draining_ms"], removed_ms)
    ready_ms = _or_later(workers["ready_ms"], draining_ms)
    times_ms = np.unique(np.concatenate([created_ms, ready_ms, draining_ms, removed_ms, [0.0]]))
    times_ms = np.append(times_ms[times_ms < end_ms], end_ms)

    def count(since_ms: Floats, until_ms: Floats) -> NDArray[np.int64]:
        begun = np.searchsorted(np.sort(since_ms), times_ms, side="right")
        over = np.searchsorted(np.sort(until_ms), times_ms, side="right")
        counts = (begun - over).astype(np.int64)
        if counts.size > 1:
            counts[-1] = counts[-2]  # the end closes the last step
        return counts

    return WorkerCounts(
        at_s=times_ms / 1000.0,
        active=count(ready_ms, draining_ms),
        starting=count(created_ms, ready_ms),
        draining=count(draining_ms, removed_ms),
    )


def summarize_latencies(arrival_s: Floats, value_ms: Floats, window_s: float) -> Latencies:
    """Return a latency with its percentiles per window of arrivals; NaN is ignored."""
    known = np.isfinite(value_ms)
    arrival_s, value_ms = arrival_s[known], value_ms[known]
    windows, firsts = np.unique((arrival_s // window_s).astype(np.int64), return_index=True)
    num_windows = int(windows[-1]) + 1 if windows.size else 0
    table = np.full((num_windows, 2), np.nan)
    for window, values in zip(windows, np.split(value_ms, firsts[1:]), strict=False):
        table[window] = np.percentile(values, [50.0, 99.0])
    return Latencies(
        arrival_s=arrival_s,
        value_ms=value_ms,
        window_s=np.arange(num_windows, dtype=np.float64) * window_s + 0.5 * window_s,
        p50_ms=table[:, 0],
        p99_ms=table[:, 1],
    )


def _rates(arrival_s: Floats, edges_s: Floats, window_s: float) -> Floats:
    counts = np.histogram(arrival_s, edges_s)[0]
    return counts.astype(np.float64) / window_s


def _or_later(times_ms: Floats, later_ms: Floats | float) -> Floats:
    """Return the times, with -1 (never) replaced by ``later_ms``."""
    return np.where(times_ms >= 0.0, times_ms, later_ms)

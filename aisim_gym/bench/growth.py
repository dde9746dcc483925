"""Sections ``fleet`` and ``requests``: cost of larger fleets and longer runs."""

import time
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import NamedTuple

import numpy as np

from aisim_gym.bench.alternation import alternate
from aisim_gym.bench.bench_options import BenchOptions
from aisim_gym.bench.measurement import Measurement, RatioKind, Skipped, Target
from aisim_gym.bench.tick_policies import KeepFleet
from aisim_gym.replay import Replay
from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import RequestTable, requests_from_arrays

RATE_RPS, INPUT_TOKENS, OUTPUT_TOKENS, SEED = 100.0, 512, 128, 1
"""Load of both sections: Poisson arrivals at a fixed rate, identical requests."""

FLEET_SIZES, USUAL_WORKERS, LARGE_WORKERS = (4, 32, 128, 1024), 32, 1024
TICK_MS = 30_000.0
LARGE_WITHOUT_TICKS = Target(1.5, is_floor=False, of_ratio=True)
LARGE_WITH_TICKS = Target(2.0, is_floor=False, of_ratio=True)


def steady_requests(num_requests: int) -> RequestTable:
    """Return the first ``num_requests`` requests of the load."""
    gaps_ms = np.random.default_rng(SEED).exponential(1000.0 / RATE_RPS, num_requests)
    return requests_from_arrays(
        np.cumsum(gaps_ms),
        np.full(num_requests, INPUT_TOKENS),
        np.full(num_requests, OUTPUT_TOKENS),
    )


def fleet_spec(num_workers: int) -> ReplaySpec:
    """Return a spec of aggregated workers with the default engine, without capture per request."""
    return ReplaySpec.from_data(
        {
            "fleet": {"kind": "agg", "num_workers": num_workers},
            "capture_per_request": False,
            "capture_planner_details": False,
        }
    )


class GrowthRun(NamedTuple):
    """Seconds to build the world of a run and to run it to the end."""

    build_s: float
    run_s: float


def timed_run(spec: ReplaySpec, requests: RequestTable, tick_ms: float | None = None) -> GrowthRun:
    """Run a load to its end.

    Args:
        spec: The fleet.
        requests: The load.
        tick_ms: Simulated time between ticks that change nothing; None without ticks.
    """
    policy = None if tick_ms is None else KeepFleet(tick_ms)
    started_s = time.perf_counter()
    replay = Replay(spec, requests, initial_tick_ms=tick_ms)
    built_s = time.perf_counter()
    replay.follow(policy)
    return GrowthRun(built_s - started_s, time.perf_counter() - built_s)


def measure_fleet(options: BenchOptions) -> Iterator[Measurement | Skipped]:
    """Yield the same load on growing fleets, without and with ticks, against 32 workers."""
    num_requests = 10_000 if options.is_short else 30_000
    requests = steady_requests(num_requests)
    sizes = (USUAL_WORKERS, LARGE_WORKERS) if options.is_short else FLEET_SIZES
    cases = (("no ticks", None, LARGE_WITHOUT_TICKS), ("30 s ticks", TICK_MS, LARGE_WITH_TICKS))
    for ticks, tick_ms, target in cases:
        options.tell(f"fleets of {sizes[0]} to {sizes[-1]} workers, {ticks}")
        runs = {
            str(size): partial(timed_run, fleet_spec(size), requests, tick_ms) for size in sizes
        }
        alternate(runs, 1)
        results = alternate(runs, options.repeats)
        run_ms = {size: tuple(1000.0 * run.run_s for run in results[str(size)]) for size in sizes}
        for size in sizes:
            is_usual = size == USUAL_WORKERS
            yield Measurement(
                f"{size:,} workers, {num_requests:,} requests, {ticks}",
                "ms",
                run_ms[size],
                () if is_usual else run_ms[USUAL_WORKERS],
                "" if is_usual else f"{USUAL_WORKERS} workers",
                RatioKind.COST,
                target if size == LARGE_WORKERS else None,
                {"build, ms": 1000.0 * median(run.build_s for run in results[str(size)])},
            )


def measure_requests(options: BenchOptions) -> Iterator[Measurement | Skipped]:
    """Yield the time per request of growing runs on 32 workers, against the shortest."""
    spec = fleet_spec(USUAL_WORKERS)
    sizes = (10_000, 100_000) if options.is_short else (10_000, 100_000, 1_000_000)
    runs = {str(size): partial(timed_run, spec, steady_requests(size)) for size in sizes}
    timed_run(spec, steady_requests(sizes[0]))  # loads code
    options.tell(f"runs of {sizes[0]:,} to {sizes[-1]:,} requests")
    results = alternate(runs, options.repeats)
    run_us = {size: tuple(1e6 * run.run_s / size for run in results[str(size)]) for size in sizes}
    shortest = sizes[0]
    for size in sizes:
        is_shortest = size == shortest
        yield Measurement(
            f"{size:,} requests",
            "us/request",
            run_us[size],
            () if is_shortest else run_us[shortest],
            "" if is_shortest else f"{shortest:,} requests",
            RatioKind.COST,
            details={"build, ms": 1000.0 * median(run.build_s for run in results[str(size)])},
        )

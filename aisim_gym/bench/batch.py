"""Section ``batch``: many worlds advanced by one call on two cores, against sequential calls."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aisim_gym.bench.alternation import alternate
from aisim_gym.bench.bench_options import BenchOptions
from aisim_gym.bench.measurement import Measurement, RatioKind, Target
from aisim_gym.replay import Replay, ReplayBatch, ScalingDecision
from aisim_gym.spec import GeneratorSpec, ReplaySpec
from aisim_gym.workload import generate_requests

NUM_WORLDS, NUM_THREADS = 16, 2
NUM_TICKS, TICK_MS = 25, 30_000.0
RATE_RPS, WORKERS_PER_POOL = 8.0, 4
BATCH = Target(1.7, is_floor=True, of_ratio=True)


def make_replays() -> list[Replay]:
    """Return the worlds of the environment benchmark, each with its own requests."""
    from aisim_gym.envs.fleet_choice import choose_fleet

    spec = ReplaySpec.from_data(
        {
            "fleet": choose_fleet("disagg", initial_workers=WORKERS_PER_POOL),
            "capture_per_request": False,
            "capture_planner_details": False,
        }
    )
    workload = GeneratorSpec(
        duration_s=(NUM_TICKS + 2) * TICK_MS / 1000.0,
        base_rate_rps=RATE_RPS,
        peak_rate_rps=RATE_RPS,
        spike_at_s=None,
        mean_input_tokens=1000.0,
        mean_output_tokens=200.0,
    )
    return [
        Replay(
            spec,
            generate_requests(workload.model_copy(update={"seed": seed})),
            initial_tick_ms=TICK_MS,
        )
        for seed in range(NUM_WORLDS)
    ]


def fixed_targets() -> NDArray[np.int64]:
    """Return the target workers per pool at every tick, shape (ticks, worlds, 2)."""
    return np.random.default_rng(1).integers(1, 9, (NUM_TICKS, NUM_WORLDS, 2))


def run_singles(replays: Sequence[Replay]) -> float:
    """Return the seconds taken to advance the worlds one by one, tick by tick."""
    started_s = time.perf_counter()
    for replay in replays:
        replay.advance_to_tick()
    for ordinal, targets in enumerate(fixed_targets().tolist(), start=2):
        for replay, (prefill, decode) in zip(replays, targets, strict=True):
            replay.apply(ScalingDecision(prefill, decode, ordinal * TICK_MS))
            replay.advance_to_tick()
    return time.perf_counter() - started_s


def run_batch(make_batch: Any, replays: Sequence[Replay]) -> float:
    """Return the seconds taken to advance all worlds together.

    Args:
        make_batch: :class:`~aisim_gym.replay.ReplayBatch`, or a class with the same interface.
        replays: The worlds.
    """
    started_s = time.perf_counter()
    batch = make_batch(replays, num_threads=NUM_THREADS)
    batch.advance_to_tick()
    for ordinal, targets in enumerate(fixed_targets(), start=2):
        batch.apply(targets, np.full(NUM_WORLDS, ordinal * TICK_MS))
        batch.advance_to_tick()
    return time.perf_counter() - started_s


def measure_batch(options: BenchOptions) -> Iterator[Measurement]:
    """Yield a batch of 16 worlds against 16 single ones under the same actions."""
    name = f"{NUM_WORLDS} worlds on {NUM_THREADS} threads"
    options.tell(name)
    runs: dict[str, Callable[[], float]] = {
        "batch": lambda: run_batch(ReplayBatch, make_replays()),
        "singles": lambda: run_singles(make_replays()),
    }
    alternate(runs, 1)
    results = alternate(runs, options.repeats)
    times_ms = {key: tuple(1000.0 * s for s in values) for key, values in results.items()}
    yield Measurement(
        name,
        "ms",
        times_ms["batch"],
        times_ms["singles"],
        "one after the other",
        RatioKind.SPEED,
        BATCH,
    )

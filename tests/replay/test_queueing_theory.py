"""Known answers from theory: a worker that serves one request at a time is a queue."""

import numpy as np
import pytest
from numpy.typing import NDArray
from support.fleets import arrivals, every, run_small, small_fleet

from aisim_gym.replay import Replay
from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import requests_from_arrays

SERVICE_MS = 10.0
NUM_REQUESTS = 100_000
BATCHES = 50


def one_at_a_time(workers: int = 1) -> ReplaySpec:
    """A worker that prefills one request per pass, always in the same time."""
    return small_fleet(
        workers=workers,
        prefill_ms=SERVICE_MS,
        engine={"max_num_seqs": 1},
        capture_per_request=False,
    )


def waits_ms(spec: ReplaySpec, arrival_ms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the time from arrival to admission of each request; they emit one token."""
    count = len(arrival_ms)
    requests = requests_from_arrays(arrival_ms, np.full(count, 8), np.full(count, 1))
    table = np.asarray(Replay.run(spec, None, requests).state.world.requests)
    waits: NDArray[np.float64] = table["first_admit_ms"] - table["arrival_ms"]
    return waits


def poisson_arrivals(utilisation: float, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return np.cumsum(rng.exponential(SERVICE_MS / utilisation, NUM_REQUESTS))


def mean_and_error(waits: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean and its standard error, from means of long batches (waits are correlated)."""
    means = waits.reshape(BATCHES, -1).mean(axis=1)
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(BATCHES))


@pytest.mark.parametrize("utilisation", [0.3, 0.5, 0.8])
def test_poisson_arrivals_at_one_worker_wait_as_in_an_md1_queue(utilisation: float) -> None:
    waits = waits_ms(one_at_a_time(), poisson_arrivals(utilisation, seed=7))
    mean_ms, error_ms = mean_and_error(waits)
    expected_ms = utilisation * SERVICE_MS / (2.0 * (1.0 - utilisation))
    assert error_ms < 0.05 * expected_ms
    assert abs(mean_ms - expected_ms) < 4.0 * error_ms


def test_waits_follow_the_recursion_of_lindley() -> None:
    arrival_ms = poisson_arrivals(0.7, seed=11)[:2000]
    expected = [0.0]
    for gap_ms in np.diff(arrival_ms).tolist():
        expected.append(max(0.0, expected[-1] + SERVICE_MS - gap_ms))
    assert waits_ms(one_at_a_time(), arrival_ms) == pytest.approx(expected, abs=1e-6)


def test_round_robin_splits_a_stream_into_independent_queues() -> None:
    arrival_ms = poisson_arrivals(1.4, seed=13)[:2000]
    waits = waits_ms(one_at_a_time(workers=2), arrival_ms)
    for worker in (0, 1):
        alone = waits_ms(one_at_a_time(), arrival_ms[worker::2])
        assert waits[worker::2] == pytest.approx(alone, abs=1e-6)


def test_without_load_latency_is_the_time_of_the_passes() -> None:
    run = run_small(small_fleet(workers=1, decode_ms=2.0), arrivals(every(1000.0, 5)))
    assert run.column("ttft_ms") == pytest.approx([10.0] * 5)
    assert run.column("itl_ms") == pytest.approx([2.0] * 5)
    assert run.column("e2e_latency_ms") == pytest.approx([14.0] * 5)

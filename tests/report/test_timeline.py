"""A run over time equals what its tables say, and is exact between ticks."""

import numpy as np
import pytest
from support.fleets import arrivals, every, run_small, small_fleet
from support.sessions import run_turns, turn

from aisim_gym.fleet.paid_time import pool_worker_seconds
from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.report.timeline import Timeline, choose_window_s, summarize_latencies


def test_worker_counts_follow_start_drain_and_removal() -> None:
    # 25 requests keep both workers busy until 150 ms; the third starts at 20 and is active at 60.
    fleet = small_fleet(workers=2, startup_ms=40.0)
    ticks = [(20.0, None, 3), (90.0, None, 1)]
    run = run_small(fleet, arrivals(every(5.0, 25)), ticks)
    counts = Timeline.of(run.replay).pools["agg"]
    at_ms = (counts.at_s * 1000.0).tolist()
    assert at_ms[:4] == [0.0, 20.0, 60.0, 90.0]
    assert counts.active.tolist()[:4] == [2, 2, 3, 1]
    assert counts.starting.tolist()[:4] == [0, 1, 0, 0]
    assert counts.draining.tolist()[3] == 2
    assert (counts.active[-1], counts.draining[-1]) == (1, 0)


def test_worker_counts_integrate_to_paid_worker_seconds() -> None:
    fleet = small_fleet(prefill=1, decode=2, startup_ms=30.0)
    ticks = [(10.0, 3, 4), (25.0, 2, 4), (70.0, 1, 1)]
    run = run_small(fleet, arrivals(every(4.0, 30)), ticks)
    pools = Timeline.of(run.replay).pools
    for name, pool_id in (("prefill", PREFILL), ("decode", DECODE)):
        counts = pools[name]
        total = counts.active + counts.starting + counts.draining
        worker_seconds = float((total[:-1] * np.diff(counts.at_s)).sum())
        paid = pool_worker_seconds(run.replay.state.world, pool_id)
        assert worker_seconds == pytest.approx(paid, rel=1e-12)


def test_arrivals_and_latencies_cover_every_request() -> None:
    run = run_small(small_fleet(workers=1), arrivals(every(100.0, 50)))
    timeline = Timeline.of(run.replay)
    assert timeline.arrivals_rps.sum() * timeline.window_s == pytest.approx(50.0)
    assert timeline.not_completed_rps.sum() == 0.0
    assert timeline.ttft.value_ms.tolist() == pytest.approx(run.column("ttft_ms"))
    assert timeline.itl.value_ms.size == 50


def test_turns_of_sessions_are_taken_by_arrival() -> None:
    """In the table the second turn of the first session lies before the second session."""
    turns = [turn("a", timestamp=0), turn("b", timestamp=2500), turn("a", delay=4000)]
    timeline = Timeline.of(run_turns(small_fleet(workers=1), turns).replay)
    assert timeline.ttft.arrival_s.tolist() == [0.0, 2.5, 4.01]
    assert timeline.window_s == 1.0
    assert timeline.ttft.p50_ms.tolist() == pytest.approx(
        [10.0, np.nan, 10.0, np.nan, 10.0], nan_ok=True
    )
    assert timeline.arrivals_rps.tolist() == [1.0, 0.0, 1.0, 0.0, 1.0]


def test_paused_run_shows_what_has_not_completed() -> None:
    run = run_small(
        small_fleet(workers=1, max_sim_time_ms=30.0), arrivals(every(5.0, 12)), [(20.0, None, None)]
    )
    timeline = Timeline.of(run.replay)
    unfinished = run.summary["num_requests"] - run.summary["completed_requests"]
    assert unfinished > 0
    assert timeline.not_completed_rps.sum() * timeline.window_s == pytest.approx(unfinished)


def test_run_without_arrivals_has_an_empty_timeline() -> None:
    from aisim_gym.replay import Replay

    timeline = Timeline.of(Replay(small_fleet(workers=2), arrivals([5.0])))
    assert timeline.end_s == 0.0
    assert timeline.arrivals_rps.sum() == 0.0
    assert timeline.ttft.value_ms.size == timeline.ttft.p50_ms.size == 0


def test_percentiles_are_taken_per_window_and_unknown_values_left_out() -> None:
    arrival_s = np.array([0.0, 1.0, 2.0, 31.0])
    value_ms = np.array([1.0, 3.0, np.nan, 7.0])
    latencies = summarize_latencies(arrival_s, value_ms, 15.0)
    assert latencies.window_s.tolist() == [7.5, 22.5, 37.5]
    assert latencies.p50_ms[[0, 2]].tolist() == [2.0, 7.0]
    assert np.isnan(latencies.p50_ms[1])


@pytest.mark.parametrize(
    ("duration_s", "window_s"), [(0.0, 1.0), (120.0, 1.0), (1800.0, 15.0), (1e6, 8400.0)]
)
def test_window_divides_a_run_into_at_most_120(duration_s: float, window_s: float) -> None:
    assert choose_window_s(duration_s) == window_s

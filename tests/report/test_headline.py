"""Headline numbers of a run (policies.md §18.3)."""

import pytest
from support.fleets import arrivals, every, run_small, small_fleet

from aisim_gym.report import headline


def test_headline_of_a_replay_and_of_its_report_are_equal() -> None:
    run = run_small(small_fleet(workers=1), arrivals(every(5.0, 4)))
    assert headline(run.replay, ttft_slo_ms=16.0) == headline(run.report, ttft_slo_ms=16.0)


def test_attainment_is_over_all_arrived_requests_with_inclusive_bounds() -> None:
    spec = small_fleet(workers=1, max_sim_time_ms=35.0)
    run = run_small(spec, arrivals(every(5.0, 8)))  # the first four end, four more have arrived
    assert (headline(run.report).arrived, headline(run.report).completed) == (8, 1)
    assert headline(run.report).slo_attainment_frac == 1 / 8
    assert headline(run.report, ttft_slo_ms=10.0).slo_attainment_frac == 1 / 8
    assert headline(run.report, ttft_slo_ms=9.9).slo_attainment_frac == 0.0


@pytest.mark.parametrize(
    ("sla", "share"), [({}, 1.0), ({"ttft_ms": 16.0, "itl_ms": 6.0}, 0.5), ({"e2e_ms": 28.0}, 0.75)]
)
def test_bounds_of_the_spec_apply_unless_others_are_given(
    sla: dict[str, float], share: float
) -> None:
    run = run_small(small_fleet(workers=1, sla=sla), arrivals(every(5.0, 4)))
    assert headline(run.report).slo_attainment_frac == share
    assert headline(run.report, itl_slo_ms=5.0).slo_attainment_frac == 0.25


def test_numbers_are_those_of_the_summary() -> None:
    run = run_small(small_fleet(workers=1), arrivals(every(10.0, 6)), [(15.0, None, 3)])
    line, summary = headline(run.report), run.summary
    assert line.gpu_hours == summary["gpu_hours"]
    assert (line.ttft_p50_ms, line.ttft_p99_ms) == (
        summary["median_ttft_ms"],
        summary["p99_ttft_ms"],
    )
    assert (line.itl_p50_ms, line.itl_p99_ms) == (summary["median_itl_ms"], summary["p99_itl_ms"])
    assert line.num_scale_events == 2


def test_scaling_is_counted_even_if_its_details_are_not_captured() -> None:
    ticks = [(20.0, None, 4), (25.0, None, 1)]
    spec = small_fleet(workers=2, startup_ms=30.0, capture_planner_details=False)
    run = run_small(spec, arrivals(every(10.0, 12)), ticks)
    assert run.report.scale_events == (2, 2, 1)

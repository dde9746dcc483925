"""Distributions of a summary (replay-runtime.md §15.4)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fleets import arrivals, run_small, small_fleet

from aisim_gym.report.distribution import Distribution, percentile_rank, sum_in_order

SAMPLES = st.lists(st.floats(0.0, 1e9), min_size=1, max_size=60)


def test_empty_sample_is_all_zeros() -> None:
    assert Distribution.of_values(np.array([])) == (0.0,) * 9
    assert Distribution.of_values(np.array([math.nan])) == (0.0,) * 9


def test_values_that_do_not_exist_do_not_count() -> None:
    assert Distribution.of_values(np.array([math.nan, 4.0])) == (*[4.0] * 8, 0.0)


@pytest.mark.parametrize(
    ("count", "percent", "rank"), [(1, 99.0, 0), (2, 50.0, 1), (4, 50.0, 2), (5, 90.0, 4)]
)
def test_percentile_rank_is_rounded_half_up(count: int, percent: float, rank: int) -> None:
    assert percentile_rank(count, percent) == rank


def test_percentiles_are_values_of_the_sample() -> None:
    distribution = Distribution.of_values(np.array([40.0, 10.0, 30.0, 20.0]))
    assert distribution[3:8] == (30.0, 30.0, 40.0, 40.0, 40.0)


def test_deviation_is_that_of_a_population() -> None:
    assert Distribution.of_values(np.array([1.0, 3.0])).std == 1.0


def test_sum_adds_from_first_to_last() -> None:
    values = np.array([1e16, *[1.0] * 1000])
    assert sum_in_order(values) == 1e16 != math.fsum(values)


@given(SAMPLES)
def test_statistics_are_ordered_and_inside_the_sample(values: list[float]) -> None:
    result = Distribution.of_values(np.array(values))
    ordered = [result.min, result.median, result.p75, result.p90, result.p95, result.p99]
    assert ordered == sorted(ordered)
    assert result.max == max(values)
    assert all(value in values for value in ordered)


def test_gap_percentiles_come_from_buckets_and_may_leave_the_sample() -> None:
    summary = run_small(small_fleet(workers=1), arrivals([0.0, 100.0])).summary
    assert (summary["min_itl_ms"], summary["max_itl_ms"], summary["mean_itl_ms"]) == (1.0,) * 3
    assert summary["p99_itl_ms"] == pytest.approx(0.9989999999999999, rel=1e-12)
    assert summary["max_output_token_throughput_per_user"] == 1000.0
    assert summary["median_output_token_throughput_per_user"] == pytest.approx(
        999.2468071445758, rel=1e-12
    )

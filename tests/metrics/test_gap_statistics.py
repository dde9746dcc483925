"""Streaming statistics of token gaps (replay-runtime.md §15.4)."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from aisim_gym.metrics.gap_statistics import (
    GAP,
    NUM_BUCKETS,
    RATE,
    StatisticsRow,
    add_gap,
    bucket_bounds,
    bucket_index,
    bucket_place,
    merged_statistics,
    sketch_percentile,
)
from aisim_gym.tables import Table, make_table

PERCENTS = (50.0, 75.0, 90.0, 95.0, 99.0)


def collect(gaps_ms: list[float]) -> tuple[Table[StatisticsRow], NDArray[np.int64]]:
    rows, buckets = make_table(StatisticsRow, 2), np.zeros((2, NUM_BUCKETS), np.int64)
    for gap_ms in gaps_ms:
        add_gap(rows[GAP], rows[RATE], buckets, gap_ms, 1)
    return rows, buckets


def exact_percentile(values: list[float], percent: float) -> float:
    return sorted(values)[math.floor((len(values) - 1) * percent / 100.0 + 0.5)]


GAPS = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e9)), min_size=1, max_size=80)


@given(GAPS)
@example([1.0, 1.0])
@example([0.0, 0.0, 5.0])
def test_percentiles_are_within_a_thousandth_of_the_order_statistic(gaps_ms: list[float]) -> None:
    rows, buckets = collect(gaps_ms)
    for percent in PERCENTS:
        exact = exact_percentile(gaps_ms, percent)
        value = sketch_percentile(rows[GAP], buckets[GAP], percent)
        assert value == pytest.approx(exact, rel=1.0001e-3, abs=0.0)


@given(GAPS)
def test_moments_and_extremes_are_exact(gaps_ms: list[float]) -> None:
    row = collect(gaps_ms)[0][GAP]
    assert (row.count, row.low, row.high) == (len(gaps_ms), min(gaps_ms), max(gaps_ms))
    assert row.average == pytest.approx(statistics.fmean(gaps_ms), rel=1e-12)
    deviation = math.sqrt(row.squares / row.count)
    assert deviation == pytest.approx(np.std(gaps_ms), rel=1e-6, abs=1e-9 * max(gaps_ms))


@given(GAPS)
def test_rates_are_those_of_the_gaps_that_are_not_zero(gaps_ms: list[float]) -> None:
    rows, buckets = collect(gaps_ms)
    rates = [1000.0 / gap_ms for gap_ms in gaps_ms if gap_ms > 0.0]
    assert rows[RATE].count == len(rates)
    for percent in PERCENTS if rates else ():
        value = sketch_percentile(rows[RATE], buckets[RATE], percent)
        assert value == pytest.approx(exact_percentile(rates, percent), rel=1.0001e-3)


@pytest.mark.parametrize(
    ("gap_ms", "expected"), [(1.0, 0.9989999999999999), (11.0, 10.990159692286054)]
)
def test_percentile_is_the_middle_of_the_reference_bucket(gap_ms: float, expected: float) -> None:
    rows, buckets = collect([gap_ms] * 4)
    assert sketch_percentile(rows[GAP], buckets[GAP], 50.0) == pytest.approx(expected, rel=1e-12)


def test_percentile_of_nothing_is_zero_and_of_one_gap_the_gap_itself() -> None:
    rows, buckets = collect([])
    assert sketch_percentile(rows[GAP], buckets[GAP], 50.0) == 0.0
    rows, buckets = collect([11.0])
    assert sketch_percentile(rows[GAP], buckets[GAP], 99.0) == 11.0


def test_zero_gaps_have_no_rate_and_sort_before_all_others() -> None:
    rows, buckets = collect([0.0, 0.0, 0.0, 4.0])
    assert sketch_percentile(rows[GAP], buckets[GAP], 50.0) == 0.0
    assert rows[RATE].count == 1


def test_gaps_beyond_the_sketch_stay_in_its_last_buckets() -> None:
    rows, buckets = collect([1e-20, 1e-20, 1e20, 1e20])
    assert buckets[GAP].sum() == 4
    assert sketch_percentile(rows[GAP], buckets[GAP], 99.0) > 1e13


# Weights, buckets, merging


@given(st.lists(st.tuples(st.one_of(st.just(0.0), st.floats(1e-6, 1e9)), st.integers(1, 50))))
def test_gap_with_a_weight_counts_so_often(weighted: list[tuple[float, int]]) -> None:
    rows, buckets = collect([])
    for gap_ms, weight in weighted:
        add_gap(rows[GAP], rows[RATE], buckets, gap_ms, weight)
    gaps_ms = [gap_ms for gap_ms, weight in weighted for _ in range(weight)]
    expected, expected_buckets = collect(gaps_ms)
    assert (buckets == expected_buckets).all()
    for sample in (GAP, RATE):
        ours, theirs = rows[sample], expected[sample]
        assert (ours.count, ours.zeros) == (theirs.count, theirs.zeros)
        assert (ours.low, ours.high) == (theirs.low, theirs.high)
        assert ours.average == pytest.approx(theirs.average, rel=1e-12)
        assert ours.squares == pytest.approx(theirs.squares, rel=1e-9, abs=1e-12 * ours.high**2)


@given(st.floats(1e-9, 1e12), st.floats(0.998, 1.002))
def test_values_within_the_bounds_of_a_bucket_belong_to_it(value: float, factor: float) -> None:
    place = bucket_place(value)
    low, high = bucket_bounds(value, place)
    other = value * factor
    if low < other < high:
        assert bucket_index(bucket_place(other)) == bucket_index(place)
    # The bounds are useful: a value in the middle of a bucket is within them.
    middle = math.exp((math.ceil(place) - 0.5) * math.log1p(2 * 0.001 / 0.999))
    low, high = bucket_bounds(middle, bucket_place(middle))
    assert low < middle < high


@given(st.lists(GAPS, min_size=1, max_size=5))
def test_merged_rows_are_those_of_all_gaps_together(parts: list[list[float]]) -> None:
    rows = make_table(StatisticsRow, 2 * len(parts))
    for at, gaps_ms in enumerate(parts):
        own, _ = collect(gaps_ms)
        for sample in (GAP, RATE):
            np.asarray(rows)[2 * at + sample] = np.asarray(own)[sample]
    merged = merged_statistics(rows)
    everything, _ = collect([gap_ms for gaps_ms in parts for gap_ms in gaps_ms])
    for sample in (GAP, RATE):
        ours, theirs = merged[sample], everything[sample]
        assert (ours.count, ours.zeros) == (theirs.count, theirs.zeros)
        assert (ours.low, ours.high) == (theirs.low, theirs.high)
        assert ours.average == pytest.approx(theirs.average, rel=1e-12)
        assert ours.squares == pytest.approx(theirs.squares, rel=1e-9, abs=1e-12 * ours.high**2)


def test_merging_keeps_the_rows_and_skips_empty_ones() -> None:
    rows = make_table(StatisticsRow, 6)
    own, _ = collect([5.0])
    np.asarray(rows)[4:6] = np.asarray(own)
    merged = merged_statistics(rows)
    assert (merged[GAP].count, merged[GAP].low, merged[GAP].high) == (1, 5.0, 5.0)
    assert rows[4].count == 1

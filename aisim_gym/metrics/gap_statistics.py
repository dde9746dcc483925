"""Inter-token gaps and per-user throughput of completed requests, as streaming statistics.

Rule: replay-runtime.md §15.4. Count, mean and standard deviation are exact, percentiles come from a
relative-error sketch: bucket ``k = ceil(ln v / ln gamma)`` represents ``2 gamma^k / (gamma + 1)``.
Each value has a weight, the number of its occurrences.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.kernel import kernel
from aisim_gym.tables import F8, I8, Table, make_table

GAMMA = 1.001 / 0.999
_LOG_GAMMA = math.log1p(2 * 0.001 / 0.999)
_OFFSET = 11_000
"""Bucket index of the value 1; the buckets cover 3e-10 … 4e13."""
NUM_BUCKETS = 26_600
GAP, RATE = 0, 1
NUM_SAMPLES = 2


class StatisticsRow(Protocol):
    """Moments of one sample: row ``GAP`` in ms, row ``RATE`` in tokens/s."""

    count: I8
    zeros: I8
    average: F8
    squares: F8  # sum of squared deviations from the average
    low: F8
    high: F8


@kernel
def add_gap(
    gaps: StatisticsRow,
    rates: StatisticsRow,
    buckets: NDArray[np.int64],
    gap_ms: float,
    weight: int,
) -> None:
    """Add a gap between consecutive tokens of a request, and its rate if the gap is not zero.

    Args:
        gaps: Moments of gaps.
        rates: Moments of rates.
        buckets: Shape (NUM_SAMPLES, NUM_BUCKETS): bucket counts of both.
        gap_ms: The gap in ms.
        weight: Number of occurrences.
    """
    _add(gaps, buckets[GAP], gap_ms, weight)
    if gap_ms > 0.0:
        _add(rates, buckets[RATE], 1000.0 / gap_ms, weight)


@kernel
def add_moments(
    row: StatisticsRow, count: int, average: float, squares: float, low: float, high: float
) -> None:
    """Add the moments of ``count`` >= 1 values (Chan's rule); zeros are counted elsewhere."""
    if row.count == 0:
        row.low = low
        row.high = high
    else:
        row.low = min(row.low, low)
        row.high = max(row.high, high)
    total = row.count + count
    delta = average - row.average
    row.average += delta * count / total
    row.squares += squares + delta * delta * (float(row.count) * count / total)
    row.count = total


@kernel
def bucket_place(value: float) -> float:
    """Return the place of a value > 0 on the bucket scale; its bucket is the next integer."""
    return math.log(value) / _LOG_GAMMA


@kernel
def bucket_index(place: float) -> int:
    """Return the bucket index of a place, clamped to the outermost buckets."""
    return min(max(math.ceil(place) + _OFFSET, 0), NUM_BUCKETS - 1)


@kernel
def bucket_bounds(value: float, place: float) -> tuple[float, float]:
    """Return an open interval around a value in which all values have the same bucket."""
    above = (math.ceil(place) - place) * _LOG_GAMMA
    below = _LOG_GAMMA - above
    # First-order bounds of the exponential, so that rounding cannot lead to another bucket.
    low = value * (1.0 - below + below * below / 2.0) * (1.0 + 1e-12)
    return low, value * (1.0 + above) * (1.0 - 1e-12)


@kernel
def _add(row: StatisticsRow, buckets: NDArray[np.int64], value: float, weight: int) -> None:
    add_moments(row, weight, value, 0.0, value, value)
    if value > 0.0:
        buckets[bucket_index(bucket_place(value))] += weight
    else:
        row.zeros += weight


def merged_statistics(statistics: Table[StatisticsRow]) -> Table[StatisticsRow]:
    """Return the moments of all gaps and of all rates.

    Args:
        statistics: Pairs of rows ``GAP`` and ``RATE``, merged in this order.

    Returns:
        Two rows.
    """
    merged: Table[StatisticsRow] = make_table(StatisticsRow, NUM_SAMPLES)
    rows = np.asarray(statistics)
    for i in np.flatnonzero(rows["count"]).tolist():
        row = statistics[i]
        target = merged[i % NUM_SAMPLES]
        target.zeros += row.zeros
        average, squares = float(row.average), float(row.squares)
        add_moments(target, int(row.count), average, squares, float(row.low), float(row.high))
    return merged


def sketch_percentile(row: StatisticsRow, buckets: NDArray[np.int64], percent: float) -> float:
    """Return the sketch's value at a percentile; 0.0 for no value, exact for a single value.

    Args:
        row: Moments of the sample.
        buckets: Shape (NUM_BUCKETS,): bucket counts of the same sample.
        percent: 0 … 100.
    """
    if row.count == 0:
        return 0.0
    if row.count == 1:
        return float(row.low)
    place = math.floor((row.count - 1) * percent / 100.0 + 0.5)
    if place < row.zeros:
        return 0.0
    k = int(np.searchsorted(np.cumsum(buckets), place - row.zeros, side="right")) - _OFFSET
    return 2.0 * math.exp(k * _LOG_GAMMA) / (GAMMA + 1.0)

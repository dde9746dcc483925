"""Inter-token gaps and per-user throughput of completed requests, as streaming statistics.

Rule: replay-runtime.md §15.4. Count, mean and standard deviation are exact, percentiles come from a
relative-error sketch: bucket ``k = ceil(ln v / ln gamma)`` stands for ``2 gamma^k / (gamma + 1)``.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.kernel import kernel
from aisim_gym.tables import F8, I8, Table

GAMMA = 1.001 / 0.999
_LOG_GAMMA = math.log1p(2 * 0.001 / 0.999)
_OFFSET = 11_000
"""Bucket index of the value 1; covers 3e-10 … 4e13."""
NUM_BUCKETS = 26_600
GAP, RATE = 0, 1


class StatisticsRow(Protocol):
    """Moments of one sample: row ``GAP`` in ms, row ``RATE`` in tokens/s."""

    count: I8
    zeros: I8
    average: F8
    squares: F8  # sum of squared deviations from the average
    low: F8
    high: F8


@kernel
def add_gap(statistics: Table[StatisticsRow], buckets: NDArray[np.int64], gap_ms: float) -> None:
    """Add one gap between consecutive tokens of a request, and its rate if it is not zero."""
    _add(statistics[GAP], buckets[GAP], gap_ms)
    if gap_ms > 0.0:
        _add(statistics[RATE], buckets[RATE], 1000.0 / gap_ms)


@kernel
def _add(row: StatisticsRow, buckets: NDArray[np.int64], value: float) -> None:
    row.count += 1
    if row.count == 1 or value < row.low:
        row.low = value
    if row.count == 1 or value > row.high:
        row.high = value
    delta = value - row.average
    row.average += delta / row.count
    row.squares += delta * (value - row.average)
    if value > 0.0:
        k = math.ceil(math.log(value) / _LOG_GAMMA) + _OFFSET
        buckets[min(max(k, 0), NUM_BUCKETS - 1)] += 1
    else:
        row.zeros += 1


def sketch_percentile(row: StatisticsRow, buckets: NDArray[np.int64], percent: float) -> float:
    """Return the sketch's value at a percentile, 0.0 for an empty sample, a lone value as it is.

    Args:
        row: Moments of the sample.
        buckets: Shape (NUM_BUCKETS,): counts of the same sample.
        percent: 0 … 100.
    """
    if row.count == 0:
        return 0.0
    if row.count == 1:
        return float(row.low)
    rank = math.floor((row.count - 1) * percent / 100.0 + 0.5)
    if rank < row.zeros:
        return 0.0
    k = int(np.searchsorted(np.cumsum(buckets), rank - row.zeros, side="right")) - _OFFSET
    return 2.0 * math.exp(k * _LOG_GAMMA) / (GAMMA + 1.0)

"""The nine statistics of a sample that a summary lists (replay-runtime.md §15.4)."""

import math
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from aisim_gym.metrics.gap_statistics import StatisticsRow, sketch_percentile
from aisim_gym.tables import Table

PERCENTS = (50.0, 75.0, 90.0, 95.0, 99.0)


class Distribution(NamedTuple):
    """Statistics of one sample, in the unit of its values; all 0.0 for an empty sample."""

    mean: float = 0.0
    min: float = 0.0
    max: float = 0.0
    median: float = 0.0
    p75: float = 0.0
    p90: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    std: float = 0.0

    @classmethod
    def of_values(cls, values: NDArray[np.float64]) -> Self:
        """Return the exact statistics of the non-NaN values.

        Percentiles are values of the sample (no interpolation), and the deviation is that of a
        population. Sums add in order.
        """
        values = values[~np.isnan(values)]
        if values.size == 0:
            return cls()
        mean = sum_in_order(values) / values.size
        ascending = np.sort(values)
        ranks = [percentile_rank(values.size, percent) for percent in PERCENTS]
        variance = sum_in_order((values - mean) ** 2) / values.size
        low, high = float(ascending[0]), float(ascending[-1])
        return cls._make([mean, low, high, *ascending[ranks].tolist(), math.sqrt(variance)])

    @classmethod
    def of_sketch(
        cls, statistics: Table[StatisticsRow], buckets: NDArray[np.int64], sample: int
    ) -> Self:
        """Return exact moments, and percentiles with the 0.1 % precision of the sketch's buckets.

        Args:
            statistics: Moments of all samples.
            buckets: Shape (samples, buckets).
            sample: ``GAP`` or ``RATE``.
        """
        row: Any = np.asarray(statistics)[sample]
        if row["count"] == 0:
            return cls()
        percentiles = [sketch_percentile(statistics[sample], buckets[sample], p) for p in PERCENTS]
        variance = float(row["squares"]) / int(row["count"])
        moments = (float(row[name]) for name in ("average", "low", "high"))
        return cls._make([*moments, *percentiles, math.sqrt(variance)])

    def named(self, metric: str) -> dict[str, float]:
        """Return the statistics under the reference's names, such as ``p99_ttft_ms``."""
        return {f"{name}_{metric}": value for name, value in self._asdict().items()}


def percentile_rank(count: int, percent: float) -> int:
    """Return the index of a percentile in a sorted sample: rounded, half up."""
    return math.floor((count - 1) * percent / 100.0 + 0.5)


def sum_in_order(values: NDArray[np.float64]) -> float:
    """Return the sum, added from the first value to the last, as in the reference.

    ``np.sum`` adds pairwise, which differs in the last digits.
    """
    return float(np.cumsum(values)[-1]) if values.size else 0.0

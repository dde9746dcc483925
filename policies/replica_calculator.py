"""Compute a number of workers from a metric, as the Kubernetes HPA does (policies.md §3.2, §3.3).

Source: kubernetes/kubernetes, ``pkg/controller/podautoscaler/replica_calculator.go``.
"""

from collections.abc import Sequence
from typing import NamedTuple

from aisim_gym.policies.rounding import CEIL_SLACK, ceil_tol


class Tolerance(NamedTuple):
    """Tolerated deviation from 1 of the ratio of a metric to its target.

    A ratio on the bound is tolerated despite rounding: 1.1 is within 0.1.
    """

    up: float = 0.1
    down: float = 0.1

    def covers(self, ratio: float) -> bool:
        """Return whether a ratio is within the tolerance."""
        return 1.0 - self.down - CEIL_SLACK <= ratio <= 1.0 + self.up + CEIL_SLACK


def recommend_from_workers(
    values: Sequence[float],
    num_missing: int,
    current: int,
    target: float,
    tolerance: Tolerance,
) -> int | None:
    """Return the workers at which the mean of a per-worker metric meets its target (§3.2).

    Workers without a value count as on target when scaling down, and as idle when scaling up; they
    never reverse the direction.

    Args:
        values: Metric of each active worker that reports it.
        num_missing: Number of workers without a value, silent or starting.
        current: Non-draining workers.
        target: Target value per worker, > 0.
        tolerance: Ratios that change nothing.

    Returns:
        The recommendation; None without any value or with a target that is not positive.
    """
    if not values or not target > 0.0:
        return None
    ratio = sum(values) / len(values) / target
    if ratio == 1.0:
        return current
    if num_missing == 0:
        return current if tolerance.covers(ratio) else ceil_tol(ratio * len(values))
    fill = target if ratio < 1.0 else 0.0
    count = len(values) + num_missing
    filled = (sum(values) + num_missing * fill) / count / target
    turned = (filled - 1.0) * (ratio - 1.0) < 0.0
    if turned or tolerance.covers(filled):
        return current
    recommendation = ceil_tol(filled * count)
    if (filled < 1.0 and recommendation > current) or (filled > 1.0 and recommendation < current):
        return current
    return recommendation


def recommend_from_total(
    total: float, current: int, target: float, tolerance: Tolerance
) -> int | None:
    """Return the number of workers at which a fleet-wide metric meets its target per worker (§3.3).

    Args:
        total: Metric of the whole fleet.
        current: Non-draining workers.
        target: Target value per worker, > 0.
        tolerance: Ratios that change nothing.

    Returns:
        The recommendation; None with a target that is not positive.
    """
    if not target > 0.0:
        return None
    if current > 0 and tolerance.covers(total / (target * current)):
        return current
    return ceil_tol(total / target)


def combine_recommendations(recommendations: Sequence[int | None], current: int) -> int | None:
    """Return the largest recommendation of several metrics (§3.3).

    Return None, to hold, if there is none, or if one is missing and the others scale down.
    """
    known = [value for value in recommendations if value is not None]
    if not known or (len(known) < len(recommendations) and max(known) < current):
        return None
    return max(known)

"""Renewal processes of rate 1, and arrivals by time change (traffic-data.md §4)."""

import math

import numpy as np
from numpy.typing import NDArray

from aisim_gym.spec.arrivals import GapFamily
from aisim_gym.workload.traffic.rate_path import RatePath

Floats = NDArray[np.float64]


class UnitRenewal:
    """A stationary renewal process of rate 1, consumed in order.

    The distance to the first point is drawn for a random moment of an endless process, so that the
    expected number of points of any interval equals its length.
    """

    def __init__(self, cv: float, random: np.random.Generator, family: GapFamily = "gamma") -> None:
        """Create a process whose gaps have the given CV, > 0."""
        self._random = random
        self._is_gamma = family == "gamma"
        self._shape = 1.0 / (cv * cv) if self._is_gamma else weibull_shape(cv)
        self._ahead = np.array([self._draw_first()])  # distances from here to the points ahead

    def take(self, length: float) -> Floats:
        """Move forward by ``length`` >= 0 and return the distance of each point passed."""
        while self._ahead[-1] < length:
            missing = length - float(self._ahead[-1])
            gaps = self._draw_gaps(64 + int(1.1 * missing))
            self._ahead = np.concatenate((self._ahead, self._ahead[-1] + np.cumsum(gaps)))
        passed = int(np.searchsorted(self._ahead, length))
        points, self._ahead = self._ahead[:passed], self._ahead[passed:] - length
        return points

    def _draw_gaps(self, count: int) -> Floats:
        return draw_gaps(self._shape, count, self._random, is_gamma=self._is_gamma)

    def _draw_first(self) -> float:
        """Draw a gap with probability proportional to its length, and a position in it."""
        if self._is_gamma:
            gap = self._random.standard_gamma(self._shape + 1.0) / self._shape
        else:
            power = 1.0 / self._shape
            gap = self._random.standard_gamma(1.0 + power) ** power / math.gamma(1.0 + power)
        return float(gap * self._random.random())


def draw_gaps(
    shape: float, count: int, random: np.random.Generator, *, is_gamma: bool = True
) -> Floats:
    """Return gaps of mean 1 with a gamma or Weibull distribution of the given shape."""
    with np.errstate(under="ignore"):  # gaps within bursts may underflow to 0
        if is_gamma:
            return random.standard_gamma(shape, count) / shape
        power = 1.0 / shape
        return random.standard_exponential(count) ** power / math.gamma(1.0 + power)


def weibull_shape(cv: float) -> float:
    """Return the Weibull shape a with ``Gamma(1+2/a) / Gamma(1+1/a)^2 - 1 = cv^2``.

    >>> round(weibull_shape(1.0), 9)
    1.0
    """
    low, high = 0.05, 1000.0  # CV 3e5 and 0.0013
    for _ in range(100):
        middle = math.sqrt(low * high)
        log_ratio = math.lgamma(1.0 + 2.0 / middle) - 2.0 * math.lgamma(1.0 + 1.0 / middle)
        if math.expm1(log_ratio) > cv * cv:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def arrivals_along(path: RatePath, renewal: UnitRenewal, share: float = 1.0) -> Floats:
    """Return arrivals, s, of a renewal process whose clock runs at ``share`` times the rate."""
    passed = np.concatenate(([0.0], np.cumsum(path.rates_rps * np.diff(path.edges_s)) * share))
    points = renewal.take(float(passed[-1]))
    cell = np.searchsorted(passed, points, side="right") - 1
    arrival_s = path.edges_s[cell] + (points - passed[cell]) / (path.rates_rps[cell] * share)
    return np.minimum(arrival_s, path.edges_s[cell + 1])

"""Arrival rates over time, segment by segment (docs/workloads.md, "Arrivals").

A rate is constant within a cell. Cells are at most a second long and end where a shape has a
corner. Shapes given by a formula have their exact mean in every cell, if it has a closed form.
"""

import math
from collections.abc import Iterator
from itertools import accumulate, count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aisim_gym.spec.arrivals import (
    AnyRate,
    DiurnalArrivals,
    FlashCrowdArrivals,
    Harmonic,
    MmppArrivals,
    PiecewiseArrivals,
    PoissonArrivals,
    RampArrivals,
    RenewalArrivals,
    WanderingArrivals,
)

SEGMENT_S = 300.0
"""Time covered by one batch of random draws, independent of the requested interval."""

Floats = NDArray[np.float64]
RateSpec = AnyRate | RenewalArrivals
"""Arrivals described by a rate and the burstiness around it."""


class RatePath(NamedTuple):
    """The rate in an interval of time.

    Attributes:
        edges_s: Shape (cells + 1,), ascending: bounds of the cells.
        rates_rps: Shape (cells,), >= 0: rate in each cell, requests/s.
    """

    edges_s: Floats
    rates_rps: Floats

    @property
    def expected(self) -> float:
        """Expected number of requests."""
        return float(np.dot(self.rates_rps, np.diff(self.edges_s)))


def rate_paths(spec: RateSpec, start_s: float, random: np.random.Generator) -> Iterator[RatePath]:
    """Yield the rates of consecutive segments from ``start_s`` on, without end."""
    if isinstance(spec, MmppArrivals):
        yield from _switching_paths(spec, start_s, random)
        return
    noise = _Noise(spec, random)
    for index in count():
        begin_s = start_s + index * SEGMENT_S
        edges_s = _edges(spec, begin_s, start_s + (index + 1) * SEGMENT_S)
        yield RatePath(edges_s, _shape_rps(spec, edges_s) * noise.factors(edges_s))


def mean_rate_between(spec: RateSpec, start_s: float, end_s: float) -> float:
    """Return the expected rate, averaged over time."""
    if isinstance(spec, MmppArrivals):
        return float(np.dot(_stationary(spec), spec.rates_rps))
    if isinstance(spec, WanderingArrivals):
        return spec.mean_rps
    edges_s = _edges(spec, start_s, end_s)
    return RatePath(edges_s, _shape_rps(spec, edges_s)).expected / (end_s - start_s)


def _edges(spec: RateSpec, begin_s: float, end_s: float) -> Floats:
    """Return the bounds of the cells between two times."""
    corners: tuple[float, ...] = ()
    cell_s = 1.0
    match spec:
        case PoissonArrivals() | RenewalArrivals():
            cell_s = end_s - begin_s
        case PiecewiseArrivals():
            cell_s, corners = end_s - begin_s, spec.times_s
        case RampArrivals():
            corners = tuple(time_s for time_s, _ in _ramp_knots(spec))
        case FlashCrowdArrivals():
            corners = (spec.at_s, spec.at_s + spec.hold_s)
        case WanderingArrivals():
            cell_s = min(1.0, spec.tau_s / 10.0)
        case DiurnalArrivals():
            cell_s = min(1.0, spec.day_s / 1000.0)
            if spec.noise_sigma > 0.0:
                cell_s = min(cell_s, spec.noise_tau_s / 10.0)
    cells = math.ceil((end_s - begin_s) / cell_s)
    inside = [corner_s for corner_s in corners if begin_s < corner_s < end_s]
    edges_s: Floats = np.unique(np.concatenate((np.linspace(begin_s, end_s, cells + 1), inside)))
    return edges_s


def _shape_rps(spec: RateSpec, edges_s: Floats) -> Floats:
    """Return the deterministic mean rate in each cell."""
    middle_s = (edges_s[1:] + edges_s[:-1]) / 2.0
    match spec:
        case PoissonArrivals() | RenewalArrivals():
            return np.full(middle_s.size, spec.rate_rps)
        case WanderingArrivals():
            return np.full(middle_s.size, spec.mean_rps)
        case PiecewiseArrivals():
            piece = np.searchsorted(spec.times_s, middle_s, side="right") - 1
            rates_rps: Floats = np.array(spec.rates_rps)[np.maximum(piece, 0)]
            return rates_rps
        case RampArrivals():
            times_s, levels_rps = zip(*_ramp_knots(spec), strict=True)
            # Linear within a cell: the mean is the value at the centre.
            ramp_rps: Floats = np.interp(middle_s, times_s, levels_rps)
            return ramp_rps
        case FlashCrowdArrivals():
            crowd = np.diff(_crowd_integral(spec, edges_s)) / np.diff(edges_s)
            return spec.base_rps * (1.0 + (spec.factor - 1.0) * crowd)
        case DiurnalArrivals():
            hour = spec.start_h + 24.0 * middle_s / spec.day_s
            return spec.mean_rps * np.exp(_waves(spec.harmonics, hour)) / _day_mean(spec.harmonics)
    raise TypeError(f"rate: got {type(spec).__name__}, expected arrivals with a shape")


def _ramp_knots(spec: RampArrivals) -> list[tuple[float, float]]:
    top_s = spec.at_s + spec.ramp_s
    knots = [(spec.at_s, spec.from_rps), (top_s, spec.to_rps)]
    if spec.hold_s is None:
        return knots
    back_s = top_s + spec.hold_s
    # A hold of 0 s would duplicate a knot.
    top = [(back_s, spec.to_rps)] if spec.hold_s > 0.0 else []
    return [*knots, *top, (back_s + spec.ramp_s, spec.from_rps)]


def _crowd_integral(spec: FlashCrowdArrivals, at_s: Floats) -> Floats:
    """Return the integral up to each time of the crowd size, from 0 (none) to 1 (full)."""
    staying_s = np.clip(at_s - spec.at_s, 0.0, spec.hold_s)
    leaving_s = np.maximum(at_s - spec.at_s - spec.hold_s, 0.0)
    size = 1.0
    integral = staying_s
    if spec.rise_s > 0.0:
        size = -math.expm1(-spec.hold_s / spec.rise_s)
        integral = staying_s + spec.rise_s * np.expm1(-staying_s / spec.rise_s)
    if spec.decay_s > 0.0:
        integral = integral - size * spec.decay_s * np.expm1(-leaving_s / spec.decay_s)
    return integral


def _waves(harmonics: tuple[Harmonic, ...], hour: Floats) -> Floats:
    """Return the log of the day's shape at clock hours."""
    total = np.zeros(hour.size)
    for periods, wave in enumerate(harmonics, start=1):
        angle = 2.0 * math.pi * periods / 24.0
        total += wave.amplitude * np.cos(angle * (hour - wave.peak_h))
    return total


def _day_mean(harmonics: tuple[Harmonic, ...]) -> float:
    """Return the mean of the shape over a day; equal steps are exact for smooth periodic shapes."""
    return float(np.exp(_waves(harmonics, np.arange(0.0, 24.0, 1.0 / 120.0))).mean())


class _Noise:
    """Random factors of a shape: slow noise and a level per day, each with mean 1."""

    def __init__(self, spec: RateSpec, random: np.random.Generator) -> None:
        self._day_s, self._day_sigma, self._start_s = math.inf, 0.0, 0.0
        self._sigma, self._tau_s = 0.0, math.inf
        if isinstance(spec, WanderingArrivals):
            self._sigma, self._tau_s = spec.sigma, spec.tau_s
        elif isinstance(spec, DiurnalArrivals):
            self._sigma, self._tau_s = spec.noise_sigma, spec.noise_tau_s
            self._day_s, self._day_sigma = spec.day_s, spec.day_sigma
            self._start_s = spec.start_h * spec.day_s / 24.0
        noise, days = random.spawn(2)
        self._random, self._day_random = noise, days
        self._level = float(noise.standard_normal())  # noise level in units of sigma
        self._day_levels: dict[int, float] = {}

    def factors(self, edges_s: Floats) -> Floats:
        """Return the factor in each cell of the next segment."""
        cells = edges_s.size - 1
        factors = np.ones(cells)
        if self._sigma > 0.0:
            keep = math.exp(-(edges_s[-1] - edges_s[0]) / cells / self._tau_s)
            push = math.sqrt(-math.expm1(2.0 * math.log(keep)))
            kicks = (push * self._random.standard_normal(cells)).tolist()
            levels = list(accumulate(kicks, lambda x, kick: keep * x + kick, initial=self._level))
            self._level = levels.pop()
            factors *= np.exp(self._sigma * np.array(levels) - self._sigma**2 / 2.0)
        if self._day_sigma > 0.0:
            middle_s = (edges_s[1:] + edges_s[:-1]) / 2.0
            days = np.floor((middle_s + self._start_s) / self._day_s).astype(np.int64)
            log_levels = np.array([self._day_level(day) for day in days.tolist()])
            factors *= np.exp(self._day_sigma * log_levels - self._day_sigma**2 / 2.0)
        return factors

    def _day_level(self, day: int) -> float:
        if day not in self._day_levels:
            self._day_levels = {day: float(self._day_random.standard_normal())}
        return self._day_levels[day]


def _switching_paths(
    spec: MmppArrivals, start_s: float, random: np.random.Generator
) -> Iterator[RatePath]:
    """Yield the rates of a Markov chain that starts in its stationary distribution."""
    leave_per_s = [math.fsum(row) for row in spec.switch_per_s]
    next_state = [np.cumsum(row) / sum(row) for row in spec.switch_per_s]
    state = int(np.searchsorted(np.cumsum(_stationary(spec)), random.random(), side="right"))
    state = min(state, len(spec.rates_rps) - 1)
    leaves_s = start_s + float(random.standard_exponential()) / leave_per_s[state]
    for index in count(1):
        end_s = start_s + index * SEGMENT_S
        edges_s, rates_rps = [end_s - SEGMENT_S], [spec.rates_rps[state]]
        while leaves_s < end_s:
            state = int(np.searchsorted(next_state[state], random.random(), side="right"))
            edges_s.append(leaves_s)
            rates_rps.append(spec.rates_rps[state])
            leaves_s += float(random.standard_exponential()) / leave_per_s[state]
        yield RatePath(np.array([*edges_s, end_s]), np.array(rates_rps))


def _stationary(spec: MmppArrivals) -> Floats:
    """Return the long-run share of time in each state."""
    flows = np.array(spec.switch_per_s)
    balance = flows.T - np.diag(flows.sum(axis=1))
    balance[-1] = 1.0  # replaces one redundant balance equation: shares add up to 1
    right = np.zeros(len(flows))
    right[-1] = 1.0
    return np.asarray(np.linalg.solve(balance, right), np.float64)

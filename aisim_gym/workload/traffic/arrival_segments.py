"""Draw the arrivals of any process, segment by segment."""

import math
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aisim_gym.spec.arrivals import (
    AnyArrivals,
    ClientsArrivals,
    OnOffArrivals,
    RenewalArrivals,
)
from aisim_gym.workload.traffic.rate_path import (
    SEGMENT_S,
    RatePath,
    mean_rate_between,
    rate_paths,
)
from aisim_gym.workload.traffic.renewal import UnitRenewal, arrivals_along, draw_gaps

WARM_UP_CYCLES = 20
"""Bursts drawn before the start, so that the process is stationary at the start."""

Floats = NDArray[np.float64]


class Arrivals(NamedTuple):
    """Arrivals of a segment, in order.

    Attributes:
        end_s: End of the segment; later segments have no earlier arrivals.
        arrival_s: Shape (arrivals,), ascending.
        client: Shape (arrivals,), int64: client of each arrival, from 0; all 0 without clients.
    """

    end_s: float
    arrival_s: Floats
    client: NDArray[np.int64]


def arrival_segments(
    spec: AnyArrivals, start_s: float, factor: float, random: np.random.Generator
) -> Iterator[Arrivals]:
    """Yield the arrivals of consecutive segments, without end.

    Args:
        spec: The process.
        start_s: Start of the first segment; rate shapes have their origin at 0, not here.
        factor: Multiplies every rate, > 0.
        random: Source of all draws.
    """
    if isinstance(spec, ClientsArrivals):
        yield from _client_segments(spec, start_s, factor, random)
        return
    if isinstance(spec, OnOffArrivals):
        all_arrivals = _burst_segments(spec, start_s, factor, random)
    else:
        modulation, gaps = random.spawn(2)
        family = spec.family if isinstance(spec, RenewalArrivals) else "gamma"
        renewal = UnitRenewal(getattr(spec, "cv", 1.0), gaps, family)
        paths = rate_paths(spec, start_s, modulation)
        all_arrivals = (arrivals_along(path, renewal, factor) for path in paths)
    for index, arrival_s in enumerate(all_arrivals, start=1):
        yield Arrivals(start_s + index * SEGMENT_S, arrival_s, np.zeros(arrival_s.size, np.int64))


def mean_arrival_rate(spec: AnyArrivals, duration_s: float, factor: float) -> float:
    """Return the expected arrivals per second from 0 to ``duration_s``.

    Exact except for bursts, whose number of gamma gaps is approximated by that of a long burst.
    """
    if isinstance(spec, OnOffArrivals):
        in_burst = spec.on_s.mean * spec.burst_rps.mean * spec.rate_factor * factor
        per_burst = 1.0 + in_burst + (spec.cv * spec.cv - 1.0) / 2.0
        return max(per_burst, 1.0) / (spec.on_s.mean + spec.off_s.mean)
    rate = spec.rate if isinstance(spec, ClientsArrivals) else spec
    return mean_rate_between(rate, 0.0, duration_s) * factor


def client_shares(spec: ClientsArrivals) -> Floats:
    """Return the share of each client, largest first."""
    return zipf_shares(spec.clients, spec.zipf, spec.zipf_shift)


def zipf_shares(number: int, zipf: float, shift: float) -> Floats:
    """Return shares proportional to ``(i + shift) ** -zipf`` for i from 1."""
    ranks = np.arange(1, number + 1)
    # Relative to the first: with a large shift the powers themselves underflow.
    weights = ((1.0 + shift) / (ranks + shift)) ** zipf
    shares: Floats = weights / weights.sum()
    return shares


def _client_segments(
    spec: ClientsArrivals, start_s: float, factor: float, random: np.random.Generator
) -> Iterator[Arrivals]:
    modulation, burstiness, *streams = random.spawn(2 + spec.clients)
    spread = np.exp(spec.cv_sigma * burstiness.standard_normal(spec.clients))
    cvs = np.clip(spec.cv_median * spread, 0.01, 100.0).tolist()
    renewals = [UnitRenewal(cv, stream) for cv, stream in zip(cvs, streams, strict=True)]
    shares = (client_shares(spec) * factor).tolist()
    for path in rate_paths(spec.rate, start_s, modulation):
        yield _merge_clients(path, renewals, shares)


def _merge_clients(path: RatePath, renewals: list[UnitRenewal], shares: list[float]) -> Arrivals:
    by_client = [
        arrivals_along(path, renewal, share)
        for renewal, share in zip(renewals, shares, strict=True)
    ]
    client = np.repeat(np.arange(len(by_client)), [arrivals.size for arrivals in by_client])
    arrival_s = np.concatenate(by_client)
    order = np.argsort(arrival_s, kind="stable")
    return Arrivals(float(path.edges_s[-1]), arrival_s[order], client[order])


def _burst_segments(
    spec: OnOffArrivals, start_s: float, factor: float, random: np.random.Generator
) -> Iterator[Floats]:
    """Yield the arrivals of bursts; a burst can span several segments."""
    bursts = _bursts(spec, start_s, factor, random)
    ahead = [next(bursts)]
    for index in count(1):
        end_s = start_s + index * SEGMENT_S
        while ahead[-1].begin_s < end_s:
            ahead.append(next(bursts))
        arrival_s = np.concatenate([burst.arrival_s for burst in ahead])
        first, last = np.searchsorted(arrival_s, [end_s - SEGMENT_S, end_s])
        yield arrival_s[first:last]
        ahead = [burst for burst in ahead if burst.end_s > end_s]


class _Burst(NamedTuple):
    begin_s: float
    end_s: float
    arrival_s: Floats


def _bursts(
    spec: OnOffArrivals, start_s: float, factor: float, random: np.random.Generator
) -> Iterator[_Burst]:
    """Yield consecutive bursts, starting some time before ``start_s``."""
    shape = 1.0 / (spec.cv * spec.cv)
    rates = spec.burst_rps.scaled(spec.rate_factor * factor)
    modulation, gaps = random.spawn(2)
    begin_s = start_s - WARM_UP_CYCLES * (spec.on_s.mean + spec.off_s.mean)
    while True:
        draws = modulation.standard_normal(3).tolist()
        on_s, off_s, rate_rps = (
            min(max(part.median * math.exp(part.sigma * z), part.low), part.high)
            for part, z in zip((spec.on_s, spec.off_s, rates), draws, strict=True)
        )
        points = np.zeros(1)
        while points[-1] < on_s * rate_rps:
            more = draw_gaps(shape, 32 + int(on_s * rate_rps), gaps)
            points = np.concatenate((points, points[-1] + np.cumsum(more)))
        points = points[: np.searchsorted(points, on_s * rate_rps)]
        arrival_s = begin_s + (points / rate_rps if points.size else np.zeros(1))
        yield _Burst(begin_s, begin_s + on_s, arrival_s)
        begin_s += on_s + off_s

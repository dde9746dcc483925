"""Generate chat traffic with a wave and a spike; ``workload.traffic`` generates all other traffic.

NumPy's global random state is not used. Arrivals and lengths have separate random streams, so two
specs that differ only in mean lengths have the same arrivals. Only the uniform, normal and Poisson
draws of a PCG64 generator are used. Platform differences in the last bit of ``cos`` and ``exp``
disappear in the comparisons and rounding that follow.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import NoRequestsError
from aisim_gym.spec.generator import GeneratorSpec
from aisim_gym.spec.traffic import TrafficSpec
from aisim_gym.workload.arrays import requests_from_arrays
from aisim_gym.workload.request_table import RequestTable
from aisim_gym.workload.traffic import generate_traffic


@dataclass(frozen=True)
class LengthShape:
    """A mixture of log-normal distributions in arbitrary units.

    Attributes:
        weights: Probability of each component.
        medians: Median of each component.
        sigmas: Standard deviation of the logarithm in each component.
        longest: Lengths are cut at this multiple of the mean.
    """

    weights: tuple[float, ...]
    medians: tuple[float, ...]
    sigmas: tuple[float, ...]
    longest: float

    @property
    def mean(self) -> float:
        """Mean of the mixture before cutting and rounding."""
        parts = zip(self.weights, self.medians, self.sigmas, strict=True)
        return math.fsum(w * m * math.exp(s * s / 2.0) for w, m, s in parts)


CHAT_INPUT = LengthShape(
    # short questions / a fixed template / a template with history / long documents
    weights=(0.20, 0.24, 0.40, 0.16),
    medians=(0.22, 0.36, 0.95, 2.70),
    sigmas=(0.95, 0.06, 0.12, 0.40),
    longest=12.0,
)
"""Prompt lengths of chat: a few narrow template peaks, a long tail (traffic-data.md §2, Azure)."""

CHAT_OUTPUT = LengthShape(
    # short answers / answers of any length / answers near the usual stop
    weights=(0.42, 0.30, 0.28),
    medians=(0.46, 0.55, 1.90),
    sigmas=(0.36, 1.00, 0.08),
    longest=8.0,
)
"""Answer lengths of chat: two modes, short answers and answers near the usual length limit."""


def generate_requests(spec: GeneratorSpec | TrafficSpec) -> RequestTable:
    """Return the requests of a synthetic workload; the same spec gives the same table everywhere.

    Chat waves (``GeneratorSpec``) arrive in a Poisson process with the rate of
    :func:`chat_wave_rate_rps`, in ms since the start; their input and output lengths are
    independent of each other and of time, with means near ``mean_input_tokens`` and
    ``mean_output_tokens``, and their prompts share no blocks.

    Raises:
        NoRequestsError: If no request arrives.
        WorkloadError: If more than 50 million requests are expected.
    """
    if isinstance(spec, TrafficSpec):
        return generate_traffic(spec)
    arrival_stream, length_stream = np.random.SeedSequence(spec.seed).spawn(2)
    arrival_s = _wave_arrivals(spec, np.random.Generator(np.random.PCG64(arrival_stream)))
    if arrival_s.size == 0:
        raise NoRequestsError(
            f"generator: no request arrives within duration_s {spec.duration_s:g} at base_rate_rps "
            f"{spec.base_rate_rps:g} and peak_rate_rps {spec.peak_rate_rps:g} (seed {spec.seed})"
        )
    lengths = np.random.Generator(np.random.PCG64(length_stream))
    return requests_from_arrays(
        np.round(arrival_s * 1000.0, 6),  # whole ns survive writing and reading
        _draw_lengths(CHAT_INPUT, spec.mean_input_tokens, arrival_s.size, lengths),
        _draw_lengths(CHAT_OUTPUT, spec.mean_output_tokens, arrival_s.size, lengths),
    )


def chat_wave_rate_rps(spec: GeneratorSpec, at_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the arrival rate at the given seconds: a wave from base to peak, times the spike.

    The wave starts at ``base_rate_rps`` and is at ``peak_rate_rps`` after half a period; in
    [spike_at_s, spike_at_s + spike_duration_s) it is multiplied by ``spike_factor``.
    """
    wave = 0.5 - 0.5 * np.cos(2.0 * np.pi * at_s / spec.period_s)
    rate = spec.base_rate_rps + (spec.peak_rate_rps - spec.base_rate_rps) * wave
    if spec.spike_at_s is not None:
        since_spike_s = at_s - spec.spike_at_s
        in_spike = (since_spike_s >= 0.0) & (since_spike_s < spec.spike_duration_s)
        rate = np.where(in_spike, rate * spec.spike_factor, rate)
    return rate


def _wave_arrivals(spec: GeneratorSpec, random: np.random.Generator) -> NDArray[np.float64]:
    """Return arrivals in s, ascending, by thinning a Poisson process of the highest rate."""
    highest_rps = max(spec.base_rate_rps, spec.peak_rate_rps)
    if spec.spike_at_s is not None:
        highest_rps *= max(1.0, spec.spike_factor)
    count = int(random.poisson(highest_rps * spec.duration_s))
    arrival_s = np.sort(random.random(count) * spec.duration_s)
    kept = random.random(count) * highest_rps < chat_wave_rate_rps(spec, arrival_s)
    return arrival_s[kept]


def _draw_lengths(
    shape: LengthShape, mean_tokens: float, count: int, random: np.random.Generator
) -> NDArray[np.int64]:
    chosen = random.random(count)
    component = np.zeros(count, np.intp)
    for bound in np.cumsum(shape.weights)[:-1]:
        component += chosen >= bound
    medians = np.take(shape.medians, component) * (mean_tokens / shape.mean)
    lengths = medians * np.exp(np.take(shape.sigmas, component) * random.standard_normal(count))
    longest = max(1.0, shape.longest * mean_tokens)
    return np.rint(np.clip(lengths, 1.0, longest)).astype(np.int64)

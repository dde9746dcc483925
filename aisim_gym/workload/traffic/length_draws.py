"""Lengths of generated requests, drawn by inversion: one uniform number gives one length.

A mixture between two bounds is a distribution over finitely many integers, stored once as a table
of cumulative probabilities: no length is out of bounds, and no draw is repeated.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.spec.lengths import ClientLengths, ScaledMixture
from aisim_gym.spec.named_lengths import AnyLengths

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_erfc: Callable[[Floats], Floats] = np.vectorize(math.erfc, otypes=[np.float64])
_inverse_cdf: Callable[[Floats], Floats] = np.vectorize(NormalDist().inv_cdf, otypes=[np.float64])


class LengthSource(Protocol):
    """Maps quantile levels to lengths."""

    def tokens(self, ranks: Floats, client: Integers) -> Integers:
        """Return the length at each quantile level in (0, 1) for the client of the request."""
        ...


class LengthSources(NamedTuple):
    """Length sources of prompts and outputs."""

    input: LengthSource
    output: LengthSource


def length_sources(lengths: AnyLengths, clients: int, random: np.random.Generator) -> LengthSources:
    """Return the length sources of prompts and outputs; draws the means of clients."""
    if not isinstance(lengths, ClientLengths):
        return LengthSources(
            length_table(lengths.input_lengths), length_table(lengths.output_lengths)
        )
    z_input, z_other = random.standard_normal((2, clients))
    z_output = _correlate(z_input, z_other, lengths.log_correlation)
    return LengthSources(
        ClientLogNormals(
            math.log(lengths.input_median) + lengths.input_sigma * z_input,
            lengths.input_cv,
            lengths.max_input_tokens,
        ),
        ClientLogNormals(
            math.log(lengths.output_median) + lengths.output_sigma * z_output,
            lengths.output_cv,
            lengths.max_output_tokens,
        ),
    )


def longest_lengths(lengths: AnyLengths) -> tuple[int, int]:
    """Return the longest possible prompt and output, tokens."""
    if isinstance(lengths, ClientLengths):
        return lengths.max_input_tokens, lengths.max_output_tokens
    return lengths.input_lengths.longest, lengths.output_lengths.longest


def draw_ranks(
    lengths: AnyLengths, count: int, random: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return quantile levels in (0, 1) of ``count`` prompts and outputs with the given correlation.

    The levels of prompts do not depend on the correlation (a Gaussian copula, traffic-data.md §4).
    """
    spearman = 0.0 if isinstance(lengths, ClientLengths) else lengths.rank_correlation
    z = random.standard_normal((count, 2))
    z_output = _correlate(z[:, 0], z[:, 1], 2.0 * math.sin(math.pi * spearman / 6.0))
    return _normal_cdf(z[:, 0]), _normal_cdf(z_output)


class LengthTable:
    """A mixture as cumulative probabilities of the lengths from shortest to longest."""

    def __init__(self, lengths: ScaledMixture) -> None:
        """Compute the table, about 0.1 us per length and component."""
        mixture = lengths.mixture
        self._shortest = lengths.shortest
        upper = (np.arange(lengths.shortest, lengths.longest + 1) + 0.5) / lengths.factor
        upper = np.minimum(upper, mixture.max_tokens + 0.5)
        log_upper = np.log(upper)
        shares = np.zeros(upper.size)
        parts = zip(
            mixture.weights,
            mixture.medians,
            mixture.sigmas,
            mixture.component_bounds(),
            strict=True,
        )
        with _vanishing_shares():
            for weight, median, sigma, (low, high) in parts:
                distance = log_upper - math.log(median)
                below = _normal_cdf(distance / sigma) if sigma > 0.0 else distance > 0.0
                shares += weight * (below - low) / (high - low)
            self._shares = shares / shares[-1]

    def tokens(self, ranks: Floats, client: Integers | None = None) -> Integers:
        """Return the length at each quantile level in (0, 1), the same for all clients."""
        index = np.searchsorted(self._shares, ranks, side="right")
        tokens: Integers = np.minimum(index, self._shares.size - 1) + self._shortest
        return tokens

    @property
    def mean_tokens(self) -> float:
        """Mean length."""
        shares = np.diff(self._shares, prepend=0.0)
        return float(np.dot(shares, self._shortest + np.arange(shares.size)))


@lru_cache(maxsize=64)
def length_table(lengths: ScaledMixture) -> LengthTable:
    """Return the cached table of lengths."""
    return LengthTable(lengths)


class ClientLogNormals:
    """Log-normal lengths around the mean of the client, between 1 and a bound."""

    def __init__(self, log_means: Floats, cv: float, longest: int) -> None:
        """Create it from log means per client, the CV around them and the bound in tokens."""
        self._longest = longest
        self._sigma = math.sqrt(math.log1p(cv * cv))
        self._log_medians = log_means - self._sigma**2 / 2.0
        if self._sigma > 0.0:
            with _vanishing_shares():
                low, high = (
                    _normal_cdf((math.log(bound) - self._log_medians) / self._sigma)
                    for bound in (0.5, longest + 0.5)
                )
            self._below, self._within = low, high - low

    def tokens(self, ranks: Floats, client: Integers) -> Integers:
        """Return the length at each quantile level in (0, 1) for the given clients."""
        log_tokens = self._log_medians[client]
        if self._sigma > 0.0:
            with _vanishing_shares():
                shares = self._below[client] + ranks * self._within[client]
            shares = np.clip(shares, 1e-300, 1.0 - 2.0**-53)  # where the inverse is finite
            log_tokens = log_tokens + self._sigma * _inverse_cdf(shares)
        log_tokens = np.clip(log_tokens, 0.0, math.log(self._longest))
        return np.rint(np.exp(log_tokens)).astype(np.int64)


def _vanishing_shares() -> np.errstate:
    """Return a context that ignores underflow, regardless of the caller's settings."""
    return np.errstate(under="ignore")


def _normal_cdf(z: Floats) -> Floats:
    return 0.5 * _erfc(-z / math.sqrt(2.0))


def _correlate(z: Floats, other: Floats, correlation: float) -> Floats:
    """Return normal variates with the given correlation to ``z``."""
    return correlation * z + math.sqrt(max(0.0, 1.0 - correlation * correlation)) * other

"""Compare a policy with fixed fleets of equal cost, paired on the same episodes.

The frontier consists of the fixed fleet with the highest goodput for each number of GPUs, selected
on the episodes of the comparison, which favours the fixed fleets. It is linear in GPU-hours between
two sizes, falls to zero at zero GPU-hours below the smallest, and is constant above the largest. A
policy's advantage is its mean goodput minus that of the frontier at its mean GPU-hours.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aisim_gym.policies.rl.episode_metrics import EpisodeMetrics
from aisim_gym.policies.rl.evaluation import StaticFleet

CONFIDENCE = 0.95
RESAMPLES = 2000
BOOTSTRAP_SEED = 0

Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """A mean and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


class FrontierPoint(NamedTuple):
    """The best fixed fleet of a size.

    Attributes:
        fleet: Its workers.
        gpu_hours: Mean GPU-hours per episode.
        goodput_rps: Mean goodput over the episodes.
    """

    fleet: StaticFleet
    gpu_hours: float
    goodput_rps: float


class Advantage(NamedTuple):
    """A policy against the frontier, in good requests per second.

    Attributes:
        per_seed: One interval per training seed, over the episodes.
        pooled: Mean over the training seeds; resampled over episodes and, if there are several,
            over training seeds.
    """

    per_seed: list[Interval]
    pooled: Interval


class PolicyResults(NamedTuple):
    """Two results per policy and episode.

    Attributes:
        gpu_hours: Shape (policies, episodes).
        goodput_rps: Shape (policies, episodes).
    """

    gpu_hours: Floats
    goodput_rps: Floats

    @classmethod
    def of(cls, results: Sequence[Sequence[EpisodeMetrics]]) -> "PolicyResults":
        """Return the results of policies, each on the same episodes."""
        return cls(
            np.array([[episode.gpu_hours for episode in episodes] for episodes in results]),
            np.array([[episode.goodput_rps for episode in episodes] for episodes in results]),
        )


def frontier(results: Mapping[StaticFleet, Sequence[EpisodeMetrics]]) -> list[FrontierPoint]:
    """Return the best fixed fleet of every size, smallest first."""
    fleets, outcomes = list(results), PolicyResults.of(list(results.values()))
    best = _best_by_size(_sizes(fleets), *_means(outcomes))
    hours, goodput = _means(outcomes)
    return [FrontierPoint(fleets[i], float(hours[i]), float(goodput[i])) for i in best]


def goodput_at(gpu_hours: float, points: Sequence[FrontierPoint]) -> float:
    """Return the goodput of the frontier at a mean of GPU-hours per episode."""
    hours = np.array([point.gpu_hours for point in points])
    goodput = np.array([point.goodput_rps for point in points])
    return _interpolate(gpu_hours, hours, goodput)


def advantage(
    policies: Sequence[Sequence[EpisodeMetrics]],
    fixed: Mapping[StaticFleet, Sequence[EpisodeMetrics]],
) -> Advantage:
    """Return the advantage of policies over fixed fleets of equal cost.

    Args:
        policies: Results of each training seed per episode.
        fixed: Results of the fixed fleets on the same episodes.

    Raises:
        ValueError: If there are fewer than two episodes.
    """
    sizes, statics = _sizes(list(fixed)), PolicyResults.of(list(fixed.values()))
    learned = PolicyResults.of(policies)

    def difference(episodes: NDArray[np.int64], seeds: NDArray[np.int64]) -> float:
        hours, goodput = (values[:, episodes].mean(axis=1) for values in statics)
        best = _best_by_size(sizes, hours, goodput)
        gains = []
        for seed in seeds:
            at = float(learned.gpu_hours[seed, episodes].mean())
            fixed_rps = _interpolate(at, hours[best], goodput[best])
            gains.append(float(learned.goodput_rps[seed, episodes].mean()) - fixed_rps)
        return float(np.mean(gains))

    num_seeds, num_episodes = learned.gpu_hours.shape
    episodes, seeds = np.arange(num_episodes), np.arange(num_seeds)
    per_seed = [
        _interval((episodes,), partial(difference, seeds=np.array([seed]))) for seed in seeds
    ]
    pooled = per_seed[0] if num_seeds == 1 else _interval((episodes, seeds), difference)
    return Advantage(per_seed, pooled)


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean of values with its interval.

    Raises:
        ValueError: If there are fewer than two.
    """
    return _interval((np.asarray(values, np.float64),), np.mean)


def _interval(samples: tuple[NDArray[np.generic], ...], statistic: Callable[..., Any]) -> Interval:
    """Return a statistic with its percentile interval; samples are resampled independently."""
    from scipy.stats import bootstrap

    for sample in samples:
        if len(sample) < 2:
            raise ValueError(f"got {len(sample)} episode, expected at least 2 for an interval")
    bounds = bootstrap(
        samples,
        statistic,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(BOOTSTRAP_SEED),
    ).confidence_interval
    return Interval(float(statistic(*samples)), float(bounds.low), float(bounds.high))


def _sizes(fleets: Sequence[StaticFleet]) -> NDArray[np.int64]:
    return np.array([fleet.gpus for fleet in fleets], np.int64)


def _means(outcomes: PolicyResults) -> tuple[Floats, Floats]:
    return outcomes.gpu_hours.mean(axis=1), outcomes.goodput_rps.mean(axis=1)


def _best_by_size(sizes: NDArray[np.int64], hours: Floats, goodput: Floats) -> NDArray[np.int64]:
    """Return the fleet of each size with the highest goodput; ties go to the cheapest."""
    order = np.lexsort((hours, -goodput, sizes))
    _, first = np.unique(sizes[order], return_index=True)
    return order[first]


def _interpolate(at: float, hours: Floats, goodput: Floats) -> float:
    """Return the goodput at ``at`` GPU-hours, 0 at zero GPU-hours."""
    order = np.argsort(hours)
    return float(np.interp(at, np.r_[0.0, hours[order]], np.r_[0.0, goodput[order]]))

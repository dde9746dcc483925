"""Results of an episode, read from the ``info`` of its last step (policies.md §18.3)."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class EpisodeMetrics(NamedTuple):
    """Results of one episode.

    Attributes:
        reward: Sum of all rewards.
        num_steps: Steps taken.
        duration_s: Simulated time.
        arrived: Requests that arrived.
        good: Requests that completed within their limits.
        violations: Requests that arrived and are not good, including unfinished ones.
        goodput_rps: Good requests per second.
        attainment_frac: Share of the requests that are good; 1 if none arrived.
        gpu_hours: Paid GPU time.
        mean_gpus: Mean number of paid GPUs.
        cost: GPU-hours per 1,000 good requests; an episode without good requests counts as having
            one.
    """

    reward: float
    num_steps: int
    duration_s: float
    arrived: int
    good: int
    violations: int
    goodput_rps: float
    attainment_frac: float
    gpu_hours: float
    mean_gpus: float
    cost: float

    @classmethod
    def of(cls, reward: float, num_steps: int, info: Mapping[str, Any]) -> "EpisodeMetrics":
        """Return the results of an episode; rates are 0 if it ends at time 0.

        Args:
            reward: Sum of all rewards.
            num_steps: Steps taken.
            info: Info of the last step, as documented by the environments.
        """
        duration_s, gpu_hours = float(info["now_s"]), float(info["total_gpu_hours"])
        arrived, good = int(info["total_arrived"]), int(info["total_good"])
        return cls(
            reward=float(reward),
            num_steps=int(num_steps),
            duration_s=duration_s,
            arrived=arrived,
            good=good,
            violations=arrived - good,
            goodput_rps=good / duration_s if duration_s > 0.0 else 0.0,
            attainment_frac=good / arrived if arrived else 1.0,
            gpu_hours=gpu_hours,
            mean_gpus=gpu_hours * 3600.0 / duration_s if duration_s > 0.0 else 0.0,
            cost=1000.0 * gpu_hours / max(good, 1),
        )


SERVING_METRICS = (
    "gpu_hours",
    "goodput_rps",
    "attainment_frac",
    "cost",
    "violations",
    "mean_gpus",
)
"""Metrics that TensorBoard shows as ``serving/<name>``."""

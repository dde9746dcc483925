"""Comparison of policies as a table, a summary and a CSV file."""

import bisect
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from aisim_gym.policies.rl.episode_metrics import EpisodeMetrics
from aisim_gym.policies.rl.evaluation import StaticFleet
from aisim_gym.policies.rl.static_frontier import (
    Advantage,
    FrontierPoint,
    Interval,
    advantage,
    frontier,
    goodput_at,
    mean_interval,
)
from aisim_gym.report.atomic_file import replace_file

ENOUGH_SEEDS = 5
"""Minimum training seeds of a calibrated comparison (env-checklist.md 33)."""

COLUMNS = {
    "goodput_rps": "good req/s",
    "attainment_frac": "attainment",
    "gpu_hours": "GPU-hours",
    "cost": "GPU-h/1k good",
    "reward": "reward",
}
"""Metrics of the table and their headings."""


class Comparison(NamedTuple):
    """Results on one set of episodes.

    Attributes:
        learned: Learned policies by name, one per training seed.
        baselines: Planners by name.
        fixed: Every fixed fleet; empty if not requested.
        doubts: Reasons why the comparison is not calibrated; empty if it is.
    """

    learned: dict[str, list[EpisodeMetrics]]
    baselines: dict[str, list[EpisodeMetrics]]
    fixed: dict[StaticFleet, list[EpisodeMetrics]]
    doubts: list[str]

    @property
    def label(self) -> str:
        """Return ``uncalibrated: …`` with the doubts, or an empty string."""
        return f"uncalibrated: {'; '.join(self.doubts)}" if self.doubts else ""

    def frontier(self) -> list[FrontierPoint]:
        """Return the best fixed fleet of every size."""
        return frontier(self.fixed)

    def advantage(self) -> Advantage:
        """Return the advantage of the learned policies over fixed fleets of the same GPU-hours."""
        return advantage(list(self.learned.values()), self.fixed)

    def everything(self) -> dict[str, list[EpisodeMetrics]]:
        """Return all results by name."""
        fixed = {f"static {fleet.name}": episodes for fleet, episodes in self.fixed.items()}
        return {**self.learned, **self.baselines, **fixed}

    def shown(self) -> dict[str, list[EpisodeMetrics]]:
        """Return the results of the table, with the best fixed fleets of the relevant sizes.

        These are the sizes just cheaper and just more expensive than the learned policies, and all
        in between.
        """
        shown = {**self.learned, **self.baselines}
        if self.fixed:
            costs = [metric_mean(results, "gpu_hours") for results in self.learned.values()]
            points = self.frontier()
            hours = [point.gpu_hours for point in points]
            first = max(bisect.bisect_left(hours, min(costs)) - 1, 0)
            for point in points[first : bisect.bisect_right(hours, max(costs)) + 1]:
                shown[f"static {point.fleet.name}"] = self.fixed[point.fleet]
        return shown


def doubts_about(num_seeds: int, untuned: Sequence[str]) -> list[str]:
    """Return the reasons why a comparison is not calibrated (field case F65).

    Args:
        num_seeds: Training seeds of the learned policy.
        untuned: Baselines that run with default parameters.
    """
    doubts = []
    if num_seeds < ENOUGH_SEEDS:
        plural = "" if num_seeds == 1 else "s"
        doubts.append(f"{num_seeds} training seed{plural}, fewer than {ENOUGH_SEEDS}")
    if untuned:
        doubts.append(f"not tuned: {', '.join(untuned)}")
    return doubts


def comparison_table(comparison: Comparison, title: str) -> Table:
    """Return a table of the means of the relevant policies, each with its 95 % interval below."""
    caption = comparison.label or None
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("policy", min_width=10)
    for heading in COLUMNS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for name, episodes in comparison.shown().items():
        table.add_row(name, *(_cell(metric_interval(episodes, key)) for key in COLUMNS))
    return table


def advantage_lines(comparison: Comparison) -> list[str]:
    """Return text lines that compare policies with fixed fleets of the same GPU-hours."""
    found, points = comparison.advantage(), comparison.frontier()
    lines = []
    for (name, episodes), gain in zip(comparison.learned.items(), found.per_seed, strict=True):
        hours = metric_mean(episodes, "gpu_hours")
        lines.append(
            f"{name}: {_signed(gain)} req/s against fixed fleets of {hours:.3f} GPU-hours "
            f"({goodput_at(hours, points):.3f} req/s)"
        )
    if len(found.per_seed) > 1:
        lines.append(
            f"all {len(found.per_seed)} training seeds: {_signed(found.pooled)} req/s, over "
            "episodes and seeds"
        )
    return [*lines, comparison.label] if comparison.label else lines


def comparison_summary(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON values."""
    summary: dict[str, Any] = {
        "is_calibrated": not comparison.doubts,
        "doubts": comparison.doubts,
        "policies": {
            name: {key: metric_interval(episodes, key)._asdict() for key in EpisodeMetrics._fields}
            for name, episodes in comparison.shown().items()
        },
    }
    if comparison.fixed:
        found = comparison.advantage()
        summary["frontier"] = [
            {
                "fleet": point.fleet.name,
                "gpus": point.fleet.gpus,
                "gpu_hours": point.gpu_hours,
                "goodput_rps": point.goodput_rps,
            }
            for point in comparison.frontier()
        ]
        summary["advantage_rps"] = {
            "per_seed": {
                name: gain._asdict()
                for name, gain in zip(comparison.learned, found.per_seed, strict=True)
            },
            "pooled": found.pooled._asdict(),
        }
    return summary


def write_episodes(comparison: Comparison, path: Path) -> None:
    """Write a row per policy and episode, including every fixed fleet."""
    with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("policy", "episode", *EpisodeMetrics._fields))
        for name, episodes in comparison.everything().items():
            writer.writerows((name, k, *metrics) for k, metrics in enumerate(episodes))


def metric_interval(episodes: Sequence[EpisodeMetrics], key: str) -> Interval:
    """Return the mean of a metric over episodes with its interval."""
    return mean_interval([float(getattr(metrics, key)) for metrics in episodes])


def metric_mean(episodes: Sequence[EpisodeMetrics], key: str) -> float:
    """Return the mean of a metric over episodes."""
    return float(np.mean([getattr(metrics, key) for metrics in episodes]))


def _cell(interval: Interval) -> str:
    mean, low, high = (f"{x:.3g}" if abs(x) < 1000.0 else f"{x:.0f}" for x in interval)
    return f"{mean}\n{low}..{high}"


def _signed(interval: Interval) -> str:
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"

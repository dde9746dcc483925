"""Plots of training and evaluation; needs the extra ``plot``."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from aisim_gym.policies.rl.comparison import Comparison, metric_interval, metric_mean
from aisim_gym.policies.rl.episode_metrics import EpisodeMetrics
from aisim_gym.policies.rl.step_rows import read_rows
from aisim_gym.report.plots import (
    BLUE,
    FONT_PT,
    GREY,
    ORANGE,
    TITLE_PT,
    VERMILION,
    import_figure,
    save_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = {
    "reward": "Reward per episode",
    "goodput_rps": "Goodput (requests/s)",
    "gpu_hours": "GPU-hours per episode",
}
SMOOTHED_EPISODES = 50


def plot_training(episodes: Path, validations: Path, target: Path, title: str) -> Path:
    """Draw reward, goodput and GPU-hours of a training run over its steps.

    Args:
        episodes: ``episodes.csv`` of the run.
        validations: ``validations.csv`` of the run.
        target: Path of the plot.
        title: Title of the plot.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    rows, validated = read_rows(episodes), read_rows(validations)
    figure = _new_figure((8.0, 9.0), title)
    panels = list(figure.subplots(len(PANELS), 1, sharex=True))
    steps = _column(rows, "steps")
    for panel, (name, label) in zip(panels, PANELS.items(), strict=True):
        values = _column(rows, name)
        panel.plot(steps, values, ".", color=GREY, markersize=2, label="training episode")
        if len(values) >= SMOOTHED_EPISODES:
            kernel = np.full(SMOOTHED_EPISODES, 1.0 / SMOOTHED_EPISODES)
            mean = np.convolve(values, kernel, mode="valid")
            label_mean = f"mean of {SMOOTHED_EPISODES}"
            panel.plot(steps[SMOOTHED_EPISODES - 1 :], mean, color=BLUE, label=label_mean)
        _dress(panel, label)
    if validated:
        panels[0].plot(
            _column(validated, "steps"),
            _column(validated, "mean_reward"),
            "o-",
            color=VERMILION,
            markersize=4,
            label="validation",
        )
    panels[0].legend(fontsize=FONT_PT, frameon=False)
    figure.align_ylabels(panels)
    panels[-1].set_xlabel("environment steps", fontsize=FONT_PT)
    return _save(figure, target)


def plot_comparison(comparison: Comparison, target: Path, title: str) -> Path:
    """Draw goodput against GPU-hours of fixed fleets, their frontier, planners and policies.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    label = f"\n{comparison.label}" if comparison.label else ""
    figure = _new_figure((8.0, 6.0), title + label)
    panel = figure.subplots()
    if comparison.fixed:
        _draw_fixed(panel, comparison)
    for (name, episodes), marker in zip(comparison.baselines.items(), cycle("sv^<>ph")):
        _draw_policy(panel, episodes, name, ORANGE, marker)
    for i, episodes in enumerate(comparison.learned.values()):
        legend = "" if i else f"learned, training seeds: {len(comparison.learned)}"
        _draw_policy(panel, episodes, legend, VERMILION, "D")
    panel.legend(fontsize=FONT_PT, framealpha=1.0, edgecolor="white", loc="lower right")
    _dress(panel, "goodput (good requests/s)")
    panel.set_xlabel("GPU-hours per episode", fontsize=FONT_PT)
    panel.set_xlim(left=0.0)
    panel.set_ylim(bottom=0.0)
    return _save(figure, target)


def _draw_fixed(panel: "Axes", comparison: Comparison) -> None:
    results = list(comparison.fixed.values())
    hours = [metric_mean(episodes, "gpu_hours") for episodes in results]
    goodput = [metric_mean(episodes, "goodput_rps") for episodes in results]
    panel.plot(hours, goodput, ".", color=GREY, markersize=4, label="fixed fleet")
    points = comparison.frontier()
    panel.plot(
        [point.gpu_hours for point in points],
        [point.goodput_rps for point in points],
        "o-",
        color=BLUE,
        markersize=4,
        label="best fixed fleet of each size",
    )
    for point in points:
        is_at_axis = point.goodput_rps < 0.05 * max(goodput)
        panel.annotate(
            point.fleet.name,
            (point.gpu_hours, point.goodput_rps),
            xytext=(5, 4 if is_at_axis else -10),
            textcoords="offset points",
            fontsize=FONT_PT - 2,
            color=BLUE,
        )


def _draw_policy(
    panel: "Axes", episodes: Sequence[EpisodeMetrics], legend: str, color: str, marker: str
) -> None:
    hours = metric_interval(episodes, "gpu_hours")
    goodput = metric_interval(episodes, "goodput_rps")
    panel.errorbar(
        hours.mean,
        goodput.mean,
        xerr=[[hours.mean - hours.low], [hours.high - hours.mean]],
        yerr=[[goodput.mean - goodput.low], [goodput.high - goodput.mean]],
        fmt=marker,
        color=color,
        markersize=5,
        capsize=2,
        label=legend,
    )


def _new_figure(size_in: tuple[float, float], title: str) -> "Figure":
    figure = import_figure()(figsize=size_in, layout="constrained", facecolor="white")
    figure.suptitle(title, fontsize=TITLE_PT)
    return figure


def _dress(panel: "Axes", label: str) -> None:
    panel.set_ylabel(label, fontsize=FONT_PT)
    panel.grid(visible=True, alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)


def _column(rows: Sequence[dict[str, float]], name: str) -> NDArray[np.float64]:
    return np.array([row[name] for row in rows], np.float64)


def _save(figure: "Figure", target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return save_figure(figure, target)

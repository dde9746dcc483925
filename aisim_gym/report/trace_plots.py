"""Plots of workloads; needs the extra ``plot``.

Plots use their own Matplotlib figures, like those of runs (``plots.py``).
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from aisim_gym.report.plots import (
    BLUE,
    FONT_PT,
    GREY,
    ORANGE,
    TITLE_PT,
    VERMILION,
    add_legend,
    dress,
    import_figure,
    save_figure,
)
from aisim_gym.workload.request_table import RequestTable
from aisim_gym.workload.statistics import (
    TraceStatistics,
    arrivals_s,
    reusable_tokens,
    trace_statistics,
    window_counts,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRACE_SIZE_IN = (10.0, 9.5)
RATE_WINDOWS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 86_400.0)
MOST_RATE_WINDOWS = 400
LENGTH_BINS = 60
MOST_GAP_POINTS = 2000
REUSE_WINDOWS = 60


def plot_trace(
    requests: RequestTable, path: str | os.PathLike[str], *, title: str = "Workload"
) -> Path:
    """Draw a workload: rate over time, lengths, gaps between arrivals, shared prefixes.

    Args:
        requests: At least one request.
        path: Destination; the suffix gives the format (``.png``, ``.svg``, ``.pdf``). The file is
            written atomically.
        title: First line of the title.

    Returns:
        The file written.

    Raises:
        ImportError: If matplotlib is not installed; nothing is written.
        WorkloadError: If the table has no requests.

    Example:
        >>> from aisim_gym import requests_from_arrays
        >>> requests = requests_from_arrays([0.0, 400.0, 1500.0], [100, 80, 9], [3, 1, 7])
        >>> plot_trace(requests, "trace.png").name
        'trace.png'
    """
    return save_figure(draw_trace(requests, title=title), path)


def draw_trace(requests: RequestTable, *, title: str = "Workload") -> "Figure":
    """Return the figure of :func:`plot_trace`.

    Raises:
        ImportError: If matplotlib is not installed.
        WorkloadError: If the table has no requests.
    """
    figure_class = import_figure()
    statistics = trace_statistics(requests)
    figure = figure_class(figsize=TRACE_SIZE_IN, layout="constrained", facecolor="white")
    panels = figure.subplot_mosaic(
        [["rate", "rate"], ["lengths", "gaps"], ["reuse", "reuse"]], height_ratios=(1.0, 1.2, 0.8)
    )
    figure.suptitle(f"{title}\n{_describe(statistics)}", fontsize=TITLE_PT, linespacing=1.5)
    at_s = arrivals_s(requests)
    _draw_rate(panels["rate"], at_s, requests)
    _draw_lengths(panels["lengths"], requests)
    _draw_gaps(panels["gaps"], np.diff(at_s))
    _draw_reuse(panels["reuse"], requests, statistics)
    return figure


def _describe(statistics: TraceStatistics) -> str:
    parts = [f"{statistics.requests:,} requests"]
    if statistics.sessions:
        parts.append(f"{statistics.sessions:,} sessions")
    parts.append(f"{statistics.duration_s / 60.0:,.1f} min")
    if statistics.mean_rate_rps is not None:
        unit = "sessions/s" if statistics.sessions else "requests/s"
        parts.append(f"{statistics.mean_rate_rps:.3g} {unit}")
    if statistics.cv is not None:
        parts.append(f"CV {statistics.cv:.3g}")
    if statistics.idc_60s is not None:
        parts.append(f"IDC(60 s) {statistics.idc_60s:.3g}")
    return ", ".join(parts)


def _draw_rate(panel: "Axes", at_s: NDArray[np.float64], requests: RequestTable) -> None:
    what = "Session starts" if requests.has_sessions else "Arrivals"
    unit = "sessions/s" if requests.has_sessions else "requests/s"
    end_s = float(at_s[-1]) if at_s.size else 0.0
    window_s = next(
        (size for size in RATE_WINDOWS_S if end_s <= size * MOST_RATE_WINDOWS), RATE_WINDOWS_S[-1]
    )
    counts = window_counts(at_s, window_s)
    if counts.size == 0:
        _say(panel, "no time between first and last arrival" if at_s.size else "no arrival times")
        dress(panel, what, unit)
        return
    edges = np.arange(counts.size + 1) * window_s / 60.0
    panel.stairs(counts / window_s, edges, fill=True, color=GREY, label=f"mean of {window_s:g} s")
    mean = at_s.size / end_s
    panel.axhline(mean, color=BLUE, lw=1.4, linestyle=(0, (5, 2)), label=f"all: {mean:.3g}")
    panel.set_xlim(0.0, edges[-1])
    panel.set_ylim(0.0, None)
    panel.set_xlabel("minutes since the first arrival", fontsize=FONT_PT)
    dress(panel, what, unit)
    add_legend(panel)


def _draw_lengths(panel: "Axes", requests: RequestTable) -> None:
    longest = max(requests.input_tokens.max(), requests.output_tokens.max(), 2)
    # Bins of whole tokens: narrower bins would be empty at small lengths.
    edges = np.unique(np.rint(np.geomspace(1.0, longest + 1.0, LENGTH_BINS + 1))) - 0.5
    for name, tokens, color in (
        ("input", requests.input_tokens, BLUE),
        ("output", requests.output_tokens, ORANGE),
    ):
        counts, _ = np.histogram(tokens, edges)
        share = counts / tokens.size / np.diff(np.log10(edges))
        label = f"{name}, mean {tokens.mean():,.0f}"
        empty = np.count_nonzero(tokens == 0)
        if empty:
            label += f", {100.0 * empty / tokens.size:.3g} % are 0"
        panel.stairs(share, edges, fill=True, color=color, alpha=0.45, label=label)
        panel.stairs(share, edges, color=color, lw=1.2)
    panel.set_xscale("log")
    panel.set_xlim(0.8, None)
    panel.set_xlabel("tokens", fontsize=FONT_PT)
    dress(panel, "Lengths", "share of requests per decade")
    panel.legend(fontsize=FONT_PT - 1, frameon=False, loc="upper left")
    # Leave space for the legend above the highest bar.
    panel.set_ylim(0.0, panel.get_ylim()[1] * 1.25)


def _draw_gaps(panel: "Axes", gaps_s: NDArray[np.float64]) -> None:
    positive = np.sort(gaps_s[gaps_s > 0.0])
    dress(panel, "Gaps between arrivals", "share of gaps that are longer")
    if positive.size < 2:
        _say(panel, "no gaps between arrivals")
        return
    longer = np.arange(positive.size - 1, -1, -1) / gaps_s.size
    picked = np.unique(np.linspace(0, positive.size - 2, MOST_GAP_POINTS).astype(np.int64))
    # Keep all of the few long gaps, which shape the tail.
    picked = np.union1d(picked, np.arange(max(positive.size - 200, 0), positive.size - 1))
    label = "trace"
    if positive.size < gaps_s.size:
        label += f" ({100.0 * (1.0 - positive.size / gaps_s.size):.3g} % are 0)"
    panel.step(positive[picked], longer[picked], color="black", where="post", lw=1.6, label=label)
    mean_s = float(gaps_s.mean())
    times_s = np.geomspace(min(positive[0], mean_s / 10.0), max(positive[-1], mean_s * 10.0), 200)
    poisson = np.exp(-times_s / mean_s)
    label = "Poisson of the same rate"
    panel.plot(times_s, poisson, color=VERMILION, lw=1.2, linestyle=(0, (5, 2)), label=label)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlim(times_s[0], times_s[-1])
    panel.set_ylim(0.5 / gaps_s.size, 1.5)
    panel.set_xlabel("seconds", fontsize=FONT_PT)
    panel.legend(fontsize=FONT_PT - 1, frameon=False, loc="lower left")


def _draw_reuse(panel: "Axes", requests: RequestTable, statistics: TraceStatistics) -> None:
    dress(panel, "Prompt tokens that an earlier request had, too", "share of input tokens")
    panel.set_ylim(0.0, 1.0)
    if statistics.reusable_frac is None:
        _say(panel, "delta sessions do not give whole prompts")
        return
    if statistics.block_references == 0:
        _say(panel, "the trace has no hash ids: prompts share nothing")
        return
    starts = np.linspace(0, len(requests), min(REUSE_WINDOWS, len(requests)) + 1).astype(np.int64)
    reused = np.add.reduceat(reusable_tokens(requests), starts[:-1])
    share = reused / np.add.reduceat(requests.input_tokens, starts[:-1])
    panel.stairs(
        share, starts, fill=True, color=BLUE, alpha=0.6, label=f"of {starts[1]:,} requests"
    )
    mean = statistics.reusable_frac
    panel.axhline(mean, color="black", lw=1.4, linestyle=(0, (5, 2)), label=f"all: {mean:.3f}")
    panel.set_xlim(0, len(requests))
    panel.set_xlabel("requests so far", fontsize=FONT_PT)
    add_legend(panel)


def _say(panel: "Axes", text: str) -> None:
    """Show a text in a panel without data."""
    panel.text(0.5, 0.5, text, ha="center", va="center", transform=panel.transAxes, color=GREY)
    panel.set_xticks([])
    panel.set_yticks([])

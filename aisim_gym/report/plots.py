"""Plots of runs; needs the extra ``plot``.

Plots use their own Matplotlib figures, independent of pyplot, its global state and the user's
settings. Colours are the colour-blind safe palette of Okabe and Ito.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aisim_gym.replay import Replay
from aisim_gym.report.atomic_file import replace_file
from aisim_gym.report.completed import CompletedRequests
from aisim_gym.report.headline import Headline, headline
from aisim_gym.report.timeline import Latencies, Timeline, WorkerCounts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, PURPLE, VERMILION, GREY = "#0072B2", "#E69F00", "#CC79A7", "#D55E00", "#8C8C8C"
SIZE_IN = (10.0, 11.0)
DOTS_PER_INCH = 120
FONT_PT, TITLE_PT = 10, 13
MOST_DOTS = 20_000
LEGEND_DOT_PT2 = 25.0

POOL_TITLES = {"prefill": "Prefill workers", "decode": "Decode workers", "agg": "Workers"}


def plot_run(replay: Replay, path: str | os.PathLike[str], *, planner: str = "") -> Path:
    """Draw a run: arrivals, workers per pool, time to first token and between tokens.

    Args:
        replay: The run, finished or paused.
        path: Destination; the suffix gives the format (``.png``, ``.svg``, ``.pdf``). The file is
            written atomically.
        planner: Name of the planner, for the title.

    Returns:
        The file written.

    Raises:
        ImportError: If matplotlib is not installed; nothing is written.

    Example:
        >>> from aisim_gym import Replay, requests_from_arrays
        >>> replay = Replay({"fleet": {"kind": "agg"}}, requests_from_arrays([0.0], [100], [3]))
        >>> replay.advance_to_tick()
        >>> plot_run(replay, "run.png").name
        'run.png'
    """
    return save_figure(draw_run(replay, planner=planner), path)


def save_figure(figure: "Figure", path: str | os.PathLike[str]) -> Path:
    """Write a figure; the suffix of ``path`` gives the format, PNG without one.

    Returns:
        The file written, with ``~`` expanded; it is written atomically.
    """
    target = Path(path).expanduser()
    with replace_file(target) as temporary:
        figure.savefig(temporary, format=target.suffix[1:] or "png", dpi=DOTS_PER_INCH)
    return target


def draw_run(replay: Replay, *, planner: str = "") -> "Figure":
    """Return the figure of :func:`plot_run`.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    figure_class = import_figure()
    timeline, sla = Timeline.of(replay), replay.spec.sla
    count = 3 + len(timeline.pools)
    figure = figure_class(figsize=SIZE_IN, layout="constrained", facecolor="white")
    panels = list(figure.subplots(count, 1, sharex=True))
    figure.suptitle(_title(planner, replay), fontsize=TITLE_PT, linespacing=1.5)
    _draw_arrivals(panels[0], timeline)
    for panel, (name, workers) in zip(panels[1:], timeline.pools.items(), strict=False):
        _draw_workers(panel, workers, POOL_TITLES[name])
    _draw_latency(panels[-2], timeline.ttft, sla.ttft_ms, "Time to first token", 1e-3)
    _draw_latency(panels[-1], timeline.itl, sla.itl_ms, "Mean time between tokens", 1.0)
    figure.align_ylabels(panels)
    panels[-1].set_xlabel("simulated time (minutes)", fontsize=FONT_PT)
    panels[-1].set_xlim(0.0, max(timeline.end_s / 60.0, 1e-6))
    return figure


def _title(planner: str, replay: Replay) -> str:
    first = f"Planner: {planner}" if planner else "Replay"
    if not replay.is_done or replay.hit_time_limit:
        first += f" (stopped at {replay.now_ms / 1000.0:.0f} s)"
    return f"{first}\n{describe_headline(headline(replay), replay)}"


def describe_headline(numbers: Headline, replay: Replay) -> str:
    """Return the headline numbers of a run in one line, omitting those without samples."""
    sla, output_tokens = replay.spec.sla, CompletedRequests.of(replay.state).output_tokens
    parts = [f"{numbers.gpu_hours:.2f} GPU-hours"]
    if numbers.arrived and (sla.ttft_ms, sla.itl_ms, sla.e2e_ms) != (None, None, None):
        parts.append(f"SLO met by {100.0 * numbers.slo_attainment_frac:.1f} % of requests")
    if (output_tokens >= 1).any():
        parts.append(f"TTFT p99 {time_text(numbers.ttft_p99_ms)}")
    if (output_tokens >= 2).any():
        parts.append(f"ITL p99 {time_text(numbers.itl_p99_ms)}")
    if numbers.completed < numbers.arrived:
        parts.append(f"{numbers.arrived - numbers.completed:,} not completed")
    return ", ".join(parts)


def time_text(ms: float) -> str:
    """Return a time as readable text: ms below one second, else seconds."""
    return f"{ms:.0f} ms" if ms < 1000.0 else f"{ms / 1000.0:,.1f} s"


def _draw_arrivals(panel: "Axes", timeline: Timeline) -> None:
    edges = timeline.arrival_edges_s / 60.0
    panel.stairs(timeline.arrivals_rps, edges, fill=True, color=GREY, label="all")
    if timeline.not_completed_rps.any():
        label = "not completed in this run"
        panel.stairs(timeline.not_completed_rps, edges, fill=True, color=VERMILION, label=label)
        add_legend(panel)
    dress(panel, f"Arrivals (mean of {timeline.window_s:g} s)", "requests/s")


def _draw_workers(panel: "Axes", workers: WorkerCounts, title: str) -> None:
    from matplotlib.ticker import MaxNLocator

    minutes = workers.at_s / 60.0
    base = np.zeros(minutes.size)
    for name, counts, color, hatch in (
        ("active", workers.active, BLUE, None),
        ("starting", workers.starting, ORANGE, "////"),
        ("draining", workers.draining, PURPLE, "...."),
    ):
        if not counts.any():
            continue
        panel.fill_between(
            minutes,
            base,
            base + counts,
            step="post",
            facecolor=color,
            edgecolor="white" if hatch else color,
            hatch=hatch,
            linewidth=0.0,
            label=name,
        )
        base = base + counts
    panel.set_ylim(0.0, max(1.0, float(base.max())) * 1.08)
    panel.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    dress(panel, title, "workers")
    add_legend(panel)


def _draw_latency(
    panel: "Axes", latencies: Latencies, slo_ms: float | None, title: str, scale: float
) -> None:
    """Draw requests as dots and percentiles as lines; ``scale`` converts ms to the panel's unit."""
    unit, long_unit = ("s", "seconds") if scale == 1e-3 else ("ms", "milliseconds")
    every = max(1, -(-latencies.value_ms.size // MOST_DOTS))
    minutes, values = latencies.arrival_s[::every] / 60.0, latencies.value_ms[::every] * scale
    missed = np.zeros(values.size, np.bool_) if slo_ms is None else values > slo_ms * scale
    for dots, color, label in (
        (~missed, GREY, "request"),
        (missed, VERMILION, "request over SLO"),
    ):
        if dots.any():
            panel.scatter(
                minutes[dots],
                values[dots],
                s=3.0,
                color=color,
                alpha=0.35,
                linewidths=0.0,
                label=label,
                rasterized=True,
            )
    window_minutes = latencies.window_s / 60.0
    for name, values_ms, color, width in (
        ("p99", latencies.p99_ms, BLUE, 1.2),
        ("p50", latencies.p50_ms, "black", 1.8),
    ):
        # Markers show windows between two empty ones, which lines do not reach.
        panel.plot(
            window_minutes,
            values_ms * scale,
            color=color,
            linewidth=width,
            marker=".",
            markersize=3.0,
            label=name,
        )
    if slo_ms is not None:
        slo = slo_ms * scale
        label = f"SLO {slo:g} {unit}"
        panel.axhline(slo, color=VERMILION, lw=1.6, linestyle=(0, (5, 2)), label=label)
    _use_log_scale(panel, values, None if slo_ms is None else slo_ms * scale)
    dress(panel, f"{title}, by arrival", long_unit)
    add_legend(panel)


def _use_log_scale(panel: "Axes", values: np.ndarray, slo: float | None) -> None:
    """Scale the axis logarithmically from the fastest request (or the SLO) to the slowest."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    shown = values[values > 0.0]
    if slo is not None:
        shown = np.append(shown, slo)
    if shown.size == 0:
        return
    low, high = float(np.percentile(shown, 0.5)), float(shown.max())
    # Set the limits first: Matplotlib guesses the limits of a log axis without data.
    panel.set_ylim(low / 1.3, max(high, low * 2.0) * 1.5)
    panel.set_yscale("log")
    # Decades alone would give a narrow range a single label.
    ticks: tuple[float, ...] = (1.0,) if high / low > 100.0 else (1.0, 2.0, 5.0)
    if high / low < 10.0:
        ticks = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    panel.yaxis.set_major_locator(LogLocator(subs=ticks, numticks=12))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_minor_formatter(NullFormatter())


def dress(panel: "Axes", title: str, unit: str) -> None:
    """Set title, unit of the vertical axis and common style of a panel."""
    panel.set_title(title, loc="left", fontsize=FONT_PT + 1, fontweight="bold")
    panel.set_ylabel(unit, fontsize=FONT_PT)
    panel.tick_params(labelsize=FONT_PT)
    panel.grid(axis="both", color="#D9D9D9", linewidth=0.6)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def add_legend(panel: "Axes") -> None:
    """Place the legend beside the title, where it hides no data."""
    from matplotlib.collections import PathCollection

    if not panel.get_legend_handles_labels()[0]:
        return
    legend = panel.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.2,
        ncols=6,
        fontsize=FONT_PT - 1,
        frameon=False,
        columnspacing=1.2,
        handlelength=1.6,
    )
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1.0)
            if isinstance(handle, PathCollection):
                handle.set_sizes([LEGEND_DOT_PT2])


def import_figure() -> "type[Figure]":
    """Return Matplotlib's ``Figure`` class, or raise ImportError with an install hint."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib, which is not installed: pip install 'aisim-gym[plot]'"
        ) from error
    return Figure

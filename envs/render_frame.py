"""Draw an episode as an image; needs the extra ``plot``.

Frames use their own Matplotlib figure, independent of pyplot, its global state and the user's
settings, so that equal episodes give equal frames. Static elements (texts, ticks, grids) are drawn
once and cached as a background, because they take ten times as long as the data.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from aisim_gym.envs.episode_record import EpisodeRecord
from aisim_gym.replay import FleetDescription
from aisim_gym.report.plots import BLUE, GREY, ORANGE, PURPLE, VERMILION

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D
    from matplotlib.patches import StepPatch
    from matplotlib.text import Text

SIZE_PX = (960, 640)
"""Width and height, both even as video codecs require."""

DOTS_PER_INCH = 100
FONT_PT, TITLE_PT, TILE_PT = 8.5, 9.5, 15.0
THICK_PT, THIN_PT = 1.6, 0.8
INK, FAINT, OFFERED = "#222222", "#D9D9D9", "#BDBDBD"

FIRST_SPAN_TICKS = 60
"""Initial ticks on the time axis; when full, it doubles, up to the horizon."""

MANY_TICKS = 240
"""Number of ticks from which lines are thin, so that they do not merge."""

LATENCY_TOP = 2.0
"""Upper end of the latency axis, in limits."""

ROUND_TOPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)

POOL_TITLES = {"workers": "Fleet", "prefill": "Prefill", "decode": "Decode"}
POOL_COLORS = {"workers": BLUE, "prefill": ORANGE, "decode": BLUE}

TILES = (
    ("", 0.062),  # the time; its caption shows the horizon
    ("GPU-hours", 0.225),
    ("USD so far", 0.355),
    ("good requests/s", 0.485),
    ("of ended requests good", 0.635),
    ("requests in flight", 0.845),
)
"""Captions of the large numbers and their positions."""

NOTHING = "\N{EN DASH}"
"""Placeholder of a missing number."""

TIME_UNITS = ((300.0, 1.0, "s"), (3 * 3600.0, 60.0, "min"), (4 * 86400.0, 3600.0, "h"))
"""Longest span of a unit in s, its length in s, its name; days beyond."""


ArtistT = TypeVar("ArtistT", bound="Artist")


class Scales(NamedTuple):
    """Axis limits, which determine the background and rarely change."""

    span_s: float
    rate_top: float
    queue_top: float
    worker_tops: tuple[float, ...]


class Latency(NamedTuple):
    """Artists of a latency: steps, and marks where they leave the panel."""

    column: str
    limit_ms: float
    steps: "StepPatch"
    beyond: "Line2D"
    beyond_y: float


class FramePainter:
    """Draws the record of an episode; one painter serves all episodes of a fleet."""

    def __init__(self, fleet: FleetDescription) -> None:
        """Create the figure.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError(
                "render_mode 'rgb_array' needs matplotlib, which is not installed: "
                "pip install 'aisim-gym[plot]'"
            ) from error
        self._lines: list[StepPatch] = []
        self._moving: list[Artist] = []  # drawn in every frame, in this order
        self._scales: Scales | None = None
        with _own_settings():
            size_in = (SIZE_PX[0] / DOTS_PER_INCH, SIZE_PX[1] / DOTS_PER_INCH)
            self._figure = Figure(figsize=size_in, dpi=DOTS_PER_INCH, facecolor="white")
            self._canvas: Any = FigureCanvasAgg(self._figure)
            self._tiles = [self._add_tile(caption, x) for caption, x in TILES]
            self._horizon = self._move(self._add_caption("", TILES[0][1]))
            self._add_panels(EpisodeRecord(fleet, 0.0).pool_names)
            self._add_load()
            self._add_latencies(fleet)

    def draw(self, record: EpisodeRecord) -> NDArray[np.uint8]:
        """Return a frame of shape (height, width, 3) of an episode of at least one tick."""
        self._prepare_background(_scales_of(record))
        self._fill_tiles(record)
        self._fill_panels(record)
        self._canvas.restore_region(self._background)
        for artist in self._moving:
            self._figure.draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[:, :, :3].copy()

    # Layout, once

    def _add_tile(self, caption: str, x: float) -> "Text":
        self._add_caption(caption, x)
        tile = self._figure.text(x, 0.94, "", fontsize=TILE_PT, fontweight="bold", color=INK)
        return self._move(tile)

    def _add_caption(self, text: str, x: float) -> "Text":
        return self._figure.text(x, 0.912, text, fontsize=FONT_PT, color="#555555")

    def _add_panels(self, names: tuple[str, ...]) -> None:
        grid = self._figure.add_gridspec(
            3, 2, left=0.062, right=0.975, top=0.85, bottom=0.075, hspace=0.3, wspace=0.17
        )
        places = [grid[1:, 0]] if len(names) == 1 else [grid[1, 0], grid[2, 0]]
        self._load = self._add_panel(grid[0, 0], "Load", "requests/s")
        self._latency = self._add_panel(grid[0, 1], "Mean latency", "")
        self._workers = [
            self._add_panel(place, POOL_TITLES[name], "workers", whole=True)
            for place, name in zip(places, names, strict=True)
        ]
        self._queue = self._add_panel(grid[1, 1], "Waiting requests", "requests")
        self._kv = self._add_panel(grid[2, 1], "KV memory in use", "")
        self._panels = [self._load, self._latency, *self._workers, self._queue, self._kv]
        self._scaled = [self._load, *self._workers, self._queue]
        for panel in self._scaled:
            panel.yaxis.set_animated(True)
        for panel in (self._workers[-1], self._kv):
            panel.tick_params(axis="x", labelbottom=True)
        self._kv.set_ylim(0.0, 1.0)
        self._kv.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        self._layers = [self._add_layers(panel) for panel in self._workers]
        self._queue_steps = self._add_pool_steps(self._queue, names)
        self._kv_steps = self._add_pool_steps(self._kv, names)

    def _add_panel(self, place: Any, title: str, unit: str, *, whole: bool = False) -> "Axes":
        from matplotlib.ticker import MaxNLocator

        panel = self._figure.add_subplot(place)
        # Fixed positions avoid that Matplotlib measures all texts.
        panel.set_title(title, loc="left", y=1.0, pad=5.0, fontsize=TITLE_PT, fontweight="bold")
        panel.set_ylabel(unit, fontsize=FONT_PT)
        panel.yaxis.set_label_coords(-0.1, 0.5)
        panel.tick_params(labelsize=FONT_PT, color=FAINT, length=2.0, labelbottom=False)
        panel.grid(axis="y", color=FAINT, linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 3, 5, 6, 10]))
        panel.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10], integer=whole))
        panel.yaxis.set_major_formatter(lambda value, _: _count_text(value))
        return panel

    def _move(self, artist: ArtistT) -> ArtistT:
        """Draw ``artist`` in every frame instead of in the background."""
        artist.set_animated(True)
        self._moving.append(artist)
        return artist

    def _add_steps(self, panel: "Axes", **style: Any) -> "StepPatch":
        """Add a line or, with ``fill``, an area over the intervals between ticks."""
        return self._move(panel.stairs([0.0], [0.0, 1.0], **style))

    def _add_line(self, panel: "Axes", color: str, label: str, dash: Any = "-") -> "StepPatch":
        line = self._add_steps(panel, baseline=None, color=color, linestyle=dash, label=label)
        line.set_linewidth(THICK_PT)
        self._lines.append(line)
        return line

    def _add_load(self) -> None:
        self._arrived = self._add_steps(
            self._load, fill=True, facecolor=OFFERED, linewidth=0.0, label="offered"
        )
        self._completed = self._add_line(self._load, BLUE, "completed")
        _add_legend(self._load)

    def _add_latencies(self, fleet: FleetDescription) -> None:
        panel = self._latency
        panel.set_ylim(0.0, LATENCY_TOP)
        panel.set_yticks([0.0, 1.0, LATENCY_TOP], ["0", "limit", f"{LATENCY_TOP:g} x"])
        self._move(panel.axhline(1.0, color=VERMILION, linewidth=1.4, linestyle=(0, (5, 2))))
        self._latencies = []
        for name, limit_ms, color, height in (
            ("ttft", fleet.ttft_slo_ms, ORANGE, 0.95),
            ("itl", fleet.itl_slo_ms, BLUE, 0.86),
        ):
            assert limit_ms is not None
            steps = self._add_line(panel, color, f"{name.upper()} / {limit_ms:g} ms")
            (beyond,) = panel.plot([], [], "^", color=color, markersize=5.0, markeredgewidth=0.0)
            self._latencies.append(
                Latency(f"{name}_ms", limit_ms, steps, self._move(beyond), height * LATENCY_TOP)
            )
        panel.plot([], [], "^", color=GREY, markersize=5.0, label="higher")
        _add_legend(panel)

    def _add_layers(self, panel: "Axes") -> list["StepPatch"]:
        """Add the stacked worker counts of a pool, and its target."""
        layers = [
            self._add_steps(
                panel,
                baseline=[0.0],
                fill=True,
                facecolor=color,
                edgecolor="white" if hatch else color,
                hatch=hatch,
                linewidth=0.0,
                label=name,
            )
            for name, color, hatch in (
                ("active", BLUE, None),
                ("starting", ORANGE, "////"),
                ("draining", PURPLE, "...."),
            )
        ]
        layers.append(self._add_line(panel, INK, "target", (0, (3, 1))))
        _add_legend(panel)
        return layers

    def _add_pool_steps(self, panel: "Axes", names: tuple[str, ...]) -> list["StepPatch"]:
        steps = [self._add_line(panel, POOL_COLORS[name], name) for name in names]
        if len(names) > 1:
            _add_legend(panel)
        return steps

    # Frame after frame

    def _prepare_background(self, scales: Scales) -> None:
        """Redraw the background after a change of the axes."""
        if scales == self._scales:
            return
        with _own_settings():
            if self._scales is None or scales.span_s != self._scales.span_s:
                self._draw_texts_and_time_axes(scales.span_s)
            self._canvas.restore_region(self._texts)
            tops = (scales.rate_top, *scales.worker_tops, scales.queue_top)
            for panel, top in zip(self._scaled, tops, strict=True):
                panel.set_ylim(0.0, top)
                self._figure.draw_artist(panel.yaxis)
        self._background = self._canvas.copy_from_bbox(self._figure.bbox)
        self._scales = scales

    def _draw_texts_and_time_axes(self, span_s: float) -> None:
        self._unit_s, unit = next(
            ((unit_s, unit) for longest_s, unit_s, unit in TIME_UNITS if span_s <= longest_s),
            (86400.0, "d"),
        )
        for panel in self._panels:
            panel.set_xlim(0.0, span_s / self._unit_s)
        for panel in (self._workers[-1], self._kv):
            panel.set_xlabel(f"simulated time ({unit})", fontsize=FONT_PT)
        self._canvas.draw()
        self._texts = self._canvas.copy_from_bbox(self._figure.bbox)

    def _fill_tiles(self, record: EpisodeRecord) -> None:
        now_s = float(record.edges_s()[-1])
        gpu_hours, gpu_usd, good, ended, in_flight = (
            float(record.column(name)[-1])
            for name in ("gpu_hours", "gpu_usd", "good", "ended", "in_flight")
        )
        texts = (
            _clock_text(now_s),
            f"{gpu_hours:,.3f}",
            f"{gpu_usd:,.2f}",
            f"{good / now_s:,.2f}" if ended else NOTHING,
            f"{good / ended:.1%}" if ended else NOTHING,
            f"{in_flight:,.0f}",
        )
        for tile, text in zip(self._tiles, texts, strict=True):
            tile.set_text(text)
        self._horizon.set_text(f"of {_clock_text(record.horizon_s)} simulated")

    def _fill_panels(self, record: EpisodeRecord) -> None:
        edges = record.edges_s() / self._unit_s
        for line in self._lines:
            line.set_linewidth(THIN_PT if len(record) > MANY_TICKS else THICK_PT)
        self._arrived.set_data(record.rate_rps("arrived"), edges, 0.0)
        self._completed.set_data(record.rate_rps("completed"), edges)
        for latency in self._latencies:
            ratio = record.column(latency.column) / latency.limit_ms
            latency.steps.set_data(ratio, edges)
            middles = (edges[:-1] + edges[1:])[ratio > LATENCY_TOP] / 2.0
            latency.beyond.set_data(middles, np.full(middles.size, latency.beyond_y))
        for i, layers in enumerate(self._layers):
            base = np.zeros(len(record))
            for layer, state in zip(layers, ("active", "starting", "draining"), strict=False):
                top = base + record.pool_column(i, state)
                layer.set_data(top, edges, cast(Any, base))  # Matplotlib's types allow only numbers
                base = top
            layers[-1].set_data(record.pool_column(i, "target"), edges)
            self._queue_steps[i].set_data(record.pool_column(i, "queued"), edges)
            self._kv_steps[i].set_data(record.pool_column(i, "kv_frac"), edges)


@contextmanager
def _own_settings() -> Iterator[None]:
    """Draw with Matplotlib's defaults, independent of the user's style."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        yield


def _add_legend(panel: "Axes") -> None:
    """Place the legend beside the title, where it hides no data."""
    panel.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.5,
        borderpad=0.0,
        ncols=4,
        fontsize=FONT_PT,
        frameon=False,
        columnspacing=0.9,
        handlelength=1.2,
        handletextpad=0.4,
    )


def _scales_of(record: EpisodeRecord) -> Scales:
    """Return axis limits that fit the episode so far and rarely change."""
    now_s = float(record.edges_s()[-1])
    span_s = FIRST_SPAN_TICKS * record.fleet.limits.tick_s
    while span_s < now_s:
        span_s *= 2.0
    rates = np.concatenate([record.rate_rps("arrived"), record.rate_rps("completed")])
    queued, workers = [], []
    for i in range(len(record.pool_names)):
        queued.append(record.pool_column(i, "queued"))
        stack = sum(record.pool_column(i, name) for name in ("active", "starting", "draining"))
        workers.append(_round_top(np.append(stack, record.pool_column(i, "target")), 4.0))
    return Scales(
        span_s=max(now_s, min(span_s, record.horizon_s)),
        rate_top=_round_top(rates[np.isfinite(rates)], 0.1),
        queue_top=_round_top(np.concatenate(queued), 10.0),
        worker_tops=tuple(workers),
    )


def _round_top(values: NDArray[np.float64], least: float) -> float:
    """Return a round axis limit, at least ``least``, with a margin above the values."""
    wanted = max(least, 1.05 * float(values.max(initial=0.0)))
    power = 10.0 ** np.floor(np.log10(wanted))
    return float(next(top * power for top in ROUND_TOPS if top * power >= wanted))


def _count_text(value: float) -> str:
    """Return the label of a tick, short enough for the margin."""
    return f"{value:g}" if value < 1000 else f"{value / 1000:g}k"


def _clock_text(time_s: float) -> str:
    """Return a time as ``mm:ss``, ``h:mm:ss`` or, from two days on, in days."""
    minutes, seconds = divmod(int(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{time_s / 86400.0:.2f} d"
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes:02d}:{seconds:02d}"

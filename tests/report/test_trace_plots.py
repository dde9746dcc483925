"""Pictures of workloads: what is on them, for ordinary and for odd tables."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from aisim_gym.errors import WorkloadError
from aisim_gym.report.trace_plots import draw_trace, plot_trace
from aisim_gym.workload import RequestTable, requests_from_arrays, requests_from_mooncake_rows

pytest.importorskip("matplotlib")

ROW = {"input_length": 4, "output_length": 1, "hash_ids": [1], "session_id": "a"}


def poisson_like(count: int = 600) -> RequestTable:
    random = np.random.default_rng(2)
    prompts = [[0, 1 + index % 50] for index in range(count)]
    arrival_ms = np.cumsum(random.exponential(500.0, count))
    outputs = random.integers(0, 300, count)
    return requests_from_arrays(arrival_ms, random.integers(5, 9, count), outputs, prompts, 4)


def texts(requests: RequestTable) -> list[str]:
    """Return what stands in the panels, outside of axes and legends."""
    return [text.get_text() for panel in draw_trace(requests).axes for text in panel.texts]


def test_picture_is_written_whole(tmp_path: Path) -> None:
    path = plot_trace(poisson_like(), tmp_path / "trace.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in plot_trace(poisson_like(), tmp_path / "trace.svg").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_panels_have_titles_units_and_legends() -> None:
    figure = draw_trace(poisson_like(), title="mine")
    titles = [panel.get_title("left") for panel in figure.axes]
    assert titles == [
        "Arrivals",
        "Lengths",
        "Gaps between arrivals",
        "Prompt tokens that an earlier request had, too",
    ]
    assert figure.axes[0].get_ylabel() == "requests/s"
    assert [panel.get_xscale() for panel in figure.axes] == ["linear", "log", "log", "linear"]
    legends = [
        [text.get_text() for text in legend.get_texts()]
        for panel in figure.axes
        if (legend := panel.get_legend()) is not None
    ]
    assert any(label.startswith("mean of 1 s") for label in legends[0])
    assert any("are 0" in label for label in legends[1])
    assert "Poisson of the same rate" in legends[2]
    title = figure.get_suptitle()
    assert title.startswith("mine\n600 requests, ")


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        (requests_from_arrays([0.0], [4], [1]), "no time between first and last arrival"),
        (requests_from_arrays([3.0, 3.0, 3.0], [4] * 3, [0] * 3), "no gaps between arrivals"),
        (requests_from_arrays([0.0, 9e3], [4] * 2, [1] * 2), "the trace has no hash ids"),
        (
            requests_from_mooncake_rows([ROW | {"timestamp": 0}, ROW], 4, is_delta=True),
            "delta sessions do not give whole prompts",
        ),
        (requests_from_mooncake_rows([ROW], 4, is_closed_loop=True), "no arrival times"),
    ],
)
def test_what_cannot_be_drawn_is_said(requests: RequestTable, said: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_trace(requests, tmp_path / "odd.png")
    assert any(text.startswith(said) for text in texts(requests))


def test_empty_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="has no requests"):
        plot_trace(requests_from_arrays([], [], []), tmp_path / "none.png")
    assert list(tmp_path.iterdir()) == []

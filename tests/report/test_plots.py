"""Pictures: what is on them, and that nothing else changes."""

import sys
import warnings
from pathlib import Path

import pytest
from support.fleets import arrivals, every, run_small, small_fleet

from aisim_gym.replay import Replay
from aisim_gym.report import headline
from aisim_gym.report.plots import describe_headline, draw_run, plot_run, time_text
from aisim_gym.workload import RequestTable

pytest.importorskip("matplotlib")

SLO = {"ttft_ms": 15.0, "itl_ms": 1.0}


@pytest.fixture(scope="module")
def replay() -> Replay:
    """A disaggregated run that starts, cancels and drains workers and misses its SLO."""
    fleet = small_fleet(prefill=1, decode=1, startup_ms=30.0, sla=SLO)
    ticks = [(10.0, 3, 2), (25.0, 2, 2), (70.0, 1, 1)]
    return run_small(fleet, arrivals(every(4.0, 30)), ticks).replay


def test_picture_is_written_whole(replay: Replay, tmp_path: Path) -> None:
    path = plot_run(replay, tmp_path / "run.png", planner="scripted")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [path]


def test_file_name_chooses_the_format(replay: Replay, tmp_path: Path) -> None:
    assert b"<svg" in plot_run(replay, tmp_path / "run.svg").read_bytes()


def test_panels_have_titles_units_and_the_slo(replay: Replay) -> None:
    figure = draw_run(replay, planner="scripted")
    titles = [panel.get_title("left").split(",")[0] for panel in figure.axes]
    assert titles == [
        "Arrivals (mean of 1 s)",
        "Prefill workers",
        "Decode workers",
        "Time to first token",
        "Mean time between tokens",
    ]
    units = [panel.get_ylabel() for panel in figure.axes]
    assert units == ["requests/s", "workers", "workers", "seconds", "milliseconds"]
    assert figure.axes[-1].get_xlabel() == "simulated time (minutes)"
    legends = [
        [text.get_text() for text in legend.get_texts()]
        for panel in figure.axes
        if (legend := panel.get_legend()) is not None
    ]
    assert ["active", "starting", "draining"] in legends
    assert any("SLO 0.015 s" in legend for legend in legends)
    assert any("SLO 1 ms" in legend for legend in legends)


def test_title_names_planner_and_headline_numbers(replay: Replay) -> None:
    title = draw_run(replay, planner="scripted").get_suptitle()
    assert title.startswith("Planner: scripted\n")
    assert describe_headline(headline(replay), replay) in title
    assert "GPU-hours" in title
    assert "SLO met by" in title


def test_aggregated_fleet_has_one_worker_panel() -> None:
    run = run_small(small_fleet(workers=2), arrivals(every(4.0, 10)))
    titles = [panel.get_title("left") for panel in draw_run(run.replay).axes]
    assert len(titles) == 4
    assert titles[1] == "Workers"


def test_run_that_has_not_begun_is_drawn(tmp_path: Path) -> None:
    replay = Replay(small_fleet(workers=2), arrivals([5.0]))
    plot_run(replay, tmp_path / "run.png")
    assert "stopped at 0 s" in draw_run(replay).get_suptitle()


@pytest.mark.parametrize(
    "requests",
    [
        arrivals([]),
        arrivals([0.0, 5.0], output_tokens=0),
        arrivals([0.0, 5.0], output_tokens=1),
        arrivals([0.0, 5.0], input_tokens=1000),
    ],
    ids=["none", "no-output", "one-token", "rejected"],
)
@pytest.mark.parametrize("sla", [{}, SLO])
def test_panels_without_data_are_drawn_without_a_warning(
    requests: RequestTable, sla: dict[str, float], tmp_path: Path
) -> None:
    spec = small_fleet(prefill=1, decode=1, engine={"num_gpu_blocks": 8}, sla=sla)
    replay = run_small(spec, requests).replay
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_run(replay, tmp_path / "run.png")


def test_title_omits_what_was_not_measured() -> None:
    spec = small_fleet(workers=1, sla=SLO)
    nothing = run_small(spec, arrivals([])).replay
    assert describe_headline(headline(nothing), nothing) == "0.00 GPU-hours"
    one_token = run_small(spec, arrivals([0.0], output_tokens=1)).replay
    assert "TTFT p99 10 ms" in describe_headline(headline(one_token), one_token)
    assert "ITL" not in describe_headline(headline(one_token), one_token)


def test_title_says_where_the_time_limit_stopped_the_run() -> None:
    spec = small_fleet(workers=1, max_sim_time_ms=2000.0)
    replay = run_small(spec, arrivals(every(500.0, 8))).replay
    assert replay.is_done
    assert draw_run(replay).get_suptitle().startswith("Replay (stopped at 2 s)\n")


def test_pyplot_and_settings_stay_as_they_are(replay: Replay, tmp_path: Path) -> None:
    import matplotlib
    import matplotlib.pyplot as plt

    figures, backend = plt.get_fignums(), matplotlib.get_backend()
    settings = dict(matplotlib.rcParams)
    plot_run(replay, tmp_path / "run.png")
    assert plt.get_fignums() == figures
    assert matplotlib.get_backend() == backend
    assert dict(matplotlib.rcParams) == settings


def test_missing_matplotlib_is_told_with_the_extra(
    replay: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'aisim-gym\[plot\]'"):
        plot_run(replay, tmp_path / "run.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ms", "text"), [(0.4, "0 ms"), (999.0, "999 ms"), (2590.0, "2.6 s"), (1.0601e6, "1,060.1 s")]
)
def test_times_are_written_for_people(ms: float, text: str) -> None:
    assert time_text(ms) == text

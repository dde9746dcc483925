"""``aisim-gym demo``: table, pictures and text; how the fleets are sized."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.cli import run_cli

from aisim_gym.cli.demo_runs import DemoRun, Plan, demo_plans, tell_story
from aisim_gym.cli.demo_setup import (
    ITL_SLO_MS,
    SLO_SHARE,
    DemoSetup,
    Split,
    hold,
    round_up_nicely,
)
from aisim_gym.replay import Replay, ScalingLimits
from aisim_gym.report import ScaleEvents, headline, summarize
from aisim_gym.spec import GeneratorSpec, WorkloadSpec
from aisim_gym.workload import generate_requests, requests_from_arrays

PLANNERS = ("static", "undersized", "hpa")


def test_demo_makes_table_text_pictures_and_reports(tmp_path: Path) -> None:
    result = run_cli("demo", "--minutes", "2", "--out", tmp_path)
    assert result.status == 0, result.err
    for planner in PLANNERS:
        assert re.search(rf"^ *{planner} +\d", result.out, re.MULTILINE)
        assert (tmp_path / f"{planner}.png").read_bytes().startswith(b"\x89PNG")
        manifest = json.loads((tmp_path / planner / "manifest.json").read_text())
        assert manifest["spec"]["workload"]["generator"]["duration_s"] == 120.0
    text = " ".join(result.out.split())
    assert re.search(r"hpa (kept|scaled) .* decode workers .* the static fleet of", text)
    assert "The percentiles of ITL are over all gaps between tokens" in text
    assert re.search(r"The undersized fleet of \d+P\+\d+D used .* between tokens", text)
    for said in (
        "Workload: ",
        "Service level: ",
        "Looking for the smallest fleet",
        "Replaying hpa",
    ):
        assert said in result.err


def test_demo_without_matplotlib_has_the_table_and_a_hint(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("demo_runs", "run_folder"):
        monkeypatch.setattr(f"aisim_gym.cli.{module}.can_plot", lambda: False, raising=True)
    result = run_cli("demo", "--trace", trace, "--out", tmp_path / "out")
    assert result.status == 0, result.err
    assert "pip install 'aisim-gym[plot]'" in result.out
    assert "Picture:" not in result.out
    assert "This workload is too small to compare planners on: the smallest fleet, 1P+1D" in (
        " ".join(result.out.split())
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(PLANNERS)


def test_seed_does_not_go_with_a_trace(trace: Path) -> None:
    result = run_cli("demo", "--trace", trace, "--seed", "2")
    assert result.status == 2
    assert "--seed is for generated traffic" in result.err


def test_unusable_folder_is_told_before_anything_runs(trace: Path) -> None:
    result = run_cli("demo", "--trace", trace, "--out", trace)
    assert result.status == 2
    assert result.err.startswith(f"aisim-gym: --out {trace}: not a folder; expected a folder")


@pytest.mark.parametrize(
    ("fewest", "most", "gpu_hours", "said"),
    [
        (
            Split(1, 2),
            Split(3, 8),
            2.0,
            "scaled between 1 and 3 prefill and between 2 and 8 decode workers (1 started, 5 "
            "removed) and kept the SLO for 50.0 % of the requests with 2.00 GPU-hours, 50 % fewer "
            "than the static fleet of",
        ),
        (Split(1, 2), Split(1, 8), 5.0, "kept 1 prefill and scaled between 2 and 8 decode workers"),
        (Split(1, 2), Split(1, 2), 5.0, "kept 1 prefill and 2 decode workers"),
        (Split(1, 2), Split(1, 2), 5.0, "5.00 GPU-hours, 25 % more than the"),
        (Split(1, 2), Split(1, 2), 4.01, "4.01 GPU-hours, as many as the"),
    ],
)
def test_text_fits_the_numbers(
    setup: DemoSetup, fewest: Split, most: Split, gpu_hours: float, said: str
) -> None:
    def run(plan: Plan, fewest: Split, most: Split, gpu_hours: float) -> DemoRun:
        replay = Replay(setup.spec(plan.start), setup.requests)
        report = replace(summarize(replay), scale_events=ScaleEvents(1, 2, 3))
        numbers = replace(headline(report), gpu_hours=gpu_hours, slo_attainment_frac=0.5)
        return DemoRun(plan, replay, report, numbers, fewest, most)

    static, undersized, hpa = demo_plans(setup, Split(3, 8))
    text = tell_story(
        [
            run(static, Split(3, 8), Split(3, 8), 4.0),
            run(undersized, Split(1, 4), Split(1, 4), 2.0),
            run(hpa, fewest, most, gpu_hours),
        ]
    )
    assert said in text
    assert "GPU-hours and kept it for 50.0 %: no request was finished." in text


@pytest.fixture(scope="module")
def setup() -> DemoSetup:
    """Three minutes of generated traffic."""
    generator = GeneratorSpec(duration_s=180.0, period_s=180.0, spike_at_s=None, peak_rate_rps=6.0)
    return DemoSetup.of(WorkloadSpec(generator=generator), generate_requests(generator))


def attained(setup: DemoSetup, split: Split) -> float:
    replay = Replay.run(setup.spec(split), hold(split), limits=ScalingLimits(tick_s=60.0))
    return headline(replay).slo_attainment_frac


def test_well_sized_fleet_is_the_smallest_that_keeps_the_slo(setup: DemoSetup) -> None:
    tried: list[Split] = []
    split = setup.size_fleet(tried.append)
    assert len(tried) == len(set(tried))
    assert attained(setup, split) >= SLO_SHARE
    assert split.decode > 1
    assert attained(setup, split._replace(decode=split.decode - 1)) < SLO_SHARE


def test_setup_fits_the_longest_request_and_the_slowest_prompts() -> None:
    lengths = np.array([1000, 60_000])
    requests = requests_from_arrays([0.0, 1000.0], lengths, [100, 100])
    setup = DemoSetup.of(WorkloadSpec(), requests)
    assert setup.num_gpu_blocks * 64 >= 4 * 60_100
    assert setup.num_gpu_blocks & (setup.num_gpu_blocks - 1) == 0
    spec = setup.spec(Split(1, 1))
    assert (spec.sla.ttft_ms, spec.sla.itl_ms) == (setup.ttft_slo_ms, ITL_SLO_MS)
    assert spec.max_sim_time_ms == 301_000.0


@pytest.mark.parametrize(
    ("value", "rounded"), [(1.0, 1.0), (1.01, 2.0), (2400.0, 3000.0), (51.0, 100.0), (0.04, 0.05)]
)
def test_service_levels_are_round_numbers(value: float, rounded: float) -> None:
    assert round_up_nicely(value) == pytest.approx(rounded)


def test_half_of_a_fleet_keeps_a_worker_per_pool() -> None:
    assert Split(1, 5).half() == Split(1, 2)
    assert str(Split(1, 5)) == "1P+5D"

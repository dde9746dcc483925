"""The demo's three runs, their table, and what they say in two sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from aisim_gym.cli.demo_setup import ITL_SLO_MS, TICK_S, DemoSetup, Split, hold
from aisim_gym.cli.planned_run import PlannedRun
from aisim_gym.cli.progress import Narrator
from aisim_gym.cli.run_folder import can_plot, write_run
from aisim_gym.replay import Replay, ScalingLimits
from aisim_gym.report import Headline, ScaleEvents, headline, summarize
from aisim_gym.report.plots import time_text
from aisim_gym.report.timeline import Timeline

if TYPE_CHECKING:
    from aisim_gym.policies import HpaPolicy, StaticPolicy


@dataclass(frozen=True)
class Plan:
    """A run to be.

    Attributes:
        name: Of its folder and its line in the table.
        policy: The planner, with its parameters.
        start: Workers at the start.
        limits: What the planner may do.
    """

    name: str
    policy: "StaticPolicy | HpaPolicy"
    start: Split
    limits: ScalingLimits

    @property
    def title(self) -> str:
        """Return the planner with the workers it starts with."""
        return (
            f"{self.name}, from {self.start}" if self.name == "hpa" else f"{self.name} {self.start}"
        )


@dataclass(frozen=True)
class DemoRun:
    """A run that was.

    Attributes:
        plan: What it was to be.
        numbers: Its headline.
        goodput_rps: Requests within the SLO per second.
        scale_events: Workers started, cancelled and drained.
        fewest: Fewest active workers per pool.
        most: Most active workers per pool.
        folder: Its report.
        picture: Its picture, None without matplotlib.
    """

    plan: Plan
    numbers: Headline
    goodput_rps: float
    scale_events: ScaleEvents
    fewest: Split
    most: Split
    folder: Path
    picture: Path | None

    @property
    def fleet(self) -> str:
        """Active workers per pool, with their range."""
        pools = zip(self.fewest, self.most, "PD", strict=True)
        return "+".join(
            f"{low}{letter}" if low == high else f"{low}…{high}{letter}"
            for low, high, letter in pools
        )


def demo_plans(setup: DemoSetup, split: Split) -> list[Plan]:
    """Return the runs: the well-sized fleet, half of it, and ``hpa`` between them."""
    half = split.half()
    fixed = ScalingLimits(tick_s=TICK_S)
    # The same ceiling as the well-sized fleet: what hpa saves is not bought with a larger one.
    scaled = ScalingLimits(tick_s=TICK_S, max_gpus=sum(split))
    return [
        Plan("static", hold(split), split, fixed),
        Plan("undersized", hold(half), half, fixed),
        Plan("hpa", setup.hpa(), half, scaled),
    ]


def run_plan(plan: Plan, setup: DemoSetup, out: Path, narrator: Narrator) -> DemoRun:
    """Replay a plan and write its report and picture into ``out``."""
    narrator.note(f"Replaying {plan.title}")
    run = PlannedRun(setup.spec(plan.start), plan.policy, setup.requests, plan.limits)
    replay = run.finish(narrator.follow(f"Replaying {plan.name}"))
    narrator.wait(f"Drawing and writing {plan.name}")
    folder, picture = out / plan.name, out / f"{plan.name}.png"
    parameters: dict[str, Any] = plan.policy.parameters.model_dump(mode="json")
    write_run(replay, folder, plan.title, parameters, plan.limits, picture)
    return _result(plan, replay, folder, picture if can_plot() else None)


def _result(plan: Plan, replay: Replay, folder: Path, picture: Path | None) -> DemoRun:
    report, pools = summarize(replay), Timeline.of(replay).pools
    active = [pools[name].active for name in ("prefill", "decode")]
    return DemoRun(
        plan=plan,
        numbers=headline(report),
        goodput_rps=report.summary["goodput_request_throughput_rps"],
        scale_events=report.scale_events,
        fewest=Split(*(int(counts.min()) for counts in active)),
        most=Split(*(int(counts.max()) for counts in active)),
        folder=folder,
        picture=picture,
    )


def results_table(runs: Sequence[DemoRun], setup: DemoSetup) -> Table:
    """Return the comparison, a line per run."""
    table = Table(
        title=f"Service level (SLO): TTFT {setup.ttft_slo_ms / 1000.0:g} s, ITL {ITL_SLO_MS:g} ms",
        box=SIMPLE_HEAD,
        padding=0,  # fits into 80 columns
        pad_edge=False,
        caption_justify="left",
        caption="P, D: active prefill and decode workers. TTFT, ITL: time to the first token, "
        "between tokens. Scale events: workers started, cancelled, drained.",
    )
    for name in ("Planner", "Workers"):
        table.add_column(name, no_wrap=True)
    for name in (
        "GPU-\nhours",
        "SLO\nmet",
        "Goodput\nreq/s",
        "TTFT s\np50",
        "\np99",
        "ITL ms\np50",
        "\np99",
        "Scale\nevents",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for run in runs:
        numbers = run.numbers
        table.add_row(
            run.plan.name,
            run.fleet,
            f"{numbers.gpu_hours:.2f}",
            f"{100.0 * numbers.slo_attainment_frac:.1f} %",
            f"{run.goodput_rps:.2f}",
            _three_digits(numbers.ttft_p50_ms / 1000.0),
            _three_digits(numbers.ttft_p99_ms / 1000.0),
            f"{numbers.itl_p50_ms:.0f}",
            f"{numbers.itl_p99_ms:.0f}",
            "/".join(map(str, run.scale_events)),
        )
    return table


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 10.0 else f"{value:.1f}" if value < 100.0 else f"{value:.0f}"


def tell_story(runs: Sequence[DemoRun]) -> str:
    """Return two sentences on what the planners did, from the numbers of the three runs."""
    static, undersized, hpa = runs
    events, saved_frac = hpa.scale_events, 1.0 - hpa.numbers.gpu_hours / static.numbers.gpu_hours
    compared = f"{100.0 * abs(saved_frac):.0f} % {'fewer' if saved_frac >= 0.0 else 'more'} than"
    return (
        f"hpa scaled between {hpa.fewest.prefill} and {hpa.most.prefill} prefill and between "
        f"{hpa.fewest.decode} and {hpa.most.decode} decode workers ({events.started} started, "
        f"{events.drained + events.cancelled} removed) and kept the SLO for {_share(hpa)} of the "
        f"requests with {hpa.numbers.gpu_hours:.2f} GPU-hours, {compared} the static fleet of "
        f"{static.most}, which kept it for {_share(static)}. "
        f"The undersized fleet of {undersized.most} used {undersized.numbers.gpu_hours:.2f} "
        f"GPU-hours and kept it for {_share(undersized)}: {_miss(undersized)}."
    )


def _share(run: DemoRun) -> str:
    return f"{100.0 * run.numbers.slo_attainment_frac:.1f} %"


def _miss(run: DemoRun) -> str:
    """Say how far a run was from the service level."""
    numbers = run.numbers
    text = (
        f"its p99 is {time_text(numbers.ttft_p99_ms)} to the first token and "
        f"{time_text(numbers.itl_p99_ms)} between tokens"
    )
    unfinished = numbers.arrived - numbers.completed
    return text + (f", and {unfinished:,} requests were not finished" if unfinished else "")

"""The three runs of the demo, their table, files and summary text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from aisim_gym.cli.demo_setup import ITL_SLO_MS, TICK_S, DemoSetup, Split, hold
from aisim_gym.cli.progress import Narrator
from aisim_gym.cli.results_table import NO_SAMPLES
from aisim_gym.cli.run_folder import can_plot, write_run
from aisim_gym.replay import Replay, ScalingLimits
from aisim_gym.report import Headline, Report, headline, summarize
from aisim_gym.report.plots import time_text
from aisim_gym.report.timeline import Timeline

if TYPE_CHECKING:
    from aisim_gym.policies import HpaPolicy, StaticPolicy


@dataclass(frozen=True)
class Plan:
    """A planned run.

    Attributes:
        name: Name of its folder and its line in the table.
        policy: The planner, with its parameters.
        start: Initial workers.
        limits: Limits of the planner.
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
    """A completed run.

    Attributes:
        plan: Plan of the run.
        replay: Replay of the run.
        report: Its results.
        numbers: Its headline numbers.
        fewest: Fewest active workers per pool.
        most: Most active workers per pool.
    """

    plan: Plan
    replay: Replay
    report: Report
    numbers: Headline
    fewest: Split
    most: Split

    @property
    def fleet(self) -> str:
        """Active workers per pool, with their range."""
        pools = zip(self.fewest, self.most, "PD", strict=True)
        return "+".join(
            f"{low}{letter}" if low == high else f"{low}…{high}{letter}"
            for low, high, letter in pools
        )


class DemoFiles(NamedTuple):
    """Files of a run: its report, and its plot, None without matplotlib."""

    folder: Path
    picture: Path | None


def demo_plans(setup: DemoSetup, split: Split) -> list[Plan]:
    """Return the plans: the well-sized fleet, half of it, and ``hpa`` between them."""
    half = split.half()
    fixed = ScalingLimits(tick_s=TICK_S)
    # The same ceiling as the well-sized fleet, so that hpa cannot gain from a larger fleet.
    scaled = ScalingLimits(tick_s=TICK_S, max_gpus=sum(split))
    return [
        Plan("static", hold(split), split, fixed),
        Plan("undersized", hold(half), half, fixed),
        Plan("hpa", setup.hpa(), half, scaled),
    ]


def run_plan(plan: Plan, setup: DemoSetup, narrator: Narrator) -> DemoRun:
    """Replay a plan."""
    narrator.note(f"Replaying {plan.title}")
    spec = setup.spec(plan.start)
    replay = Replay.prepare(spec, plan.policy, setup.requests, limits=plan.limits)
    replay.follow(plan.policy, narrator.follow(f"Replaying {plan.name}"))
    report, pools = summarize(replay), Timeline.of(replay).pools
    active = [pools[name].active for name in ("prefill", "decode")]
    return DemoRun(
        plan=plan,
        replay=replay,
        report=report,
        numbers=headline(report),
        fewest=Split(*(int(counts.min()) for counts in active)),
        most=Split(*(int(counts.max()) for counts in active)),
    )


def write_demo_run(run: DemoRun, out: Path) -> DemoFiles:
    """Write report and plot of a run to ``out``."""
    plan, folder, picture = run.plan, out / run.plan.name, out / f"{run.plan.name}.png"
    parameters: dict[str, Any] = plan.policy.parameters.model_dump(mode="json")
    write_run(run.replay, run.report, folder, plan.title, parameters, plan.limits, picture=picture)
    return DemoFiles(folder, picture if can_plot() else None)


def results_table(runs: Sequence[DemoRun], setup: DemoSetup) -> Table:
    """Return the comparison, a line per run."""
    table = Table(
        title=f"Service level (SLO): TTFT {setup.ttft_slo_ms / 1000.0:g} s, ITL {ITL_SLO_MS:g} ms",
        box=SIMPLE_HEAD,
        padding=0,  # fits 80 columns
        pad_edge=False,
        caption_justify="left",
        caption="P, D: active prefill and decode workers. TTFT, ITL: time to the first token, "
        "between tokens. The percentiles of ITL are over all gaps between tokens; the SLO bounds a "
        "request's mean gap. Scale events: workers started, cancelled, drained.",
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
        numbers, summary = run.numbers, run.report.summary
        times = (
            (_three_digits(numbers.ttft_p50_ms / 1000.0), "num_ttft_samples"),
            (_three_digits(numbers.ttft_p99_ms / 1000.0), "num_ttft_samples"),
            (f"{numbers.itl_p50_ms:.0f}", "num_tpot_samples"),
            (f"{numbers.itl_p99_ms:.0f}", "num_tpot_samples"),
        )
        table.add_row(
            run.plan.name,
            run.fleet,
            f"{numbers.gpu_hours:.2f}",
            f"{100.0 * numbers.slo_attainment_frac:.1f} %",
            f"{summary['goodput_request_throughput_rps']:.2f}",
            *(text if summary[samples] else NO_SAMPLES for text, samples in times),
            "/".join(map(str, run.report.scale_events)),
        )
    return table


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 10.0 else f"{value:.1f}" if value < 100.0 else f"{value:.0f}"


def tell_story(runs: Sequence[DemoRun]) -> str:
    """Return a two-sentence comparison of the three runs."""
    static, undersized, hpa = runs
    if undersized.plan.start == static.plan.start:
        return (
            f"This workload is too small to compare planners on: the smallest fleet, "
            f"{static.most}, serves it as well as any, so that all three runs are the same and "
            "nothing is left to scale. Take a longer or busier one."
        )
    events = hpa.report.scale_events
    return (
        f"hpa {_scaled(hpa)} ({events.started} started, {events.drained + events.cancelled} "
        f"removed) and kept the SLO for {_share(hpa)} of the requests with "
        f"{hpa.numbers.gpu_hours:.2f} GPU-hours, "
        f"{_compared(hpa.numbers.gpu_hours, static.numbers.gpu_hours)} the static fleet of "
        f"{static.most}, which kept it for {_share(static)}. "
        f"The undersized fleet of {undersized.most} used {undersized.numbers.gpu_hours:.2f} "
        f"GPU-hours and kept it for {_share(undersized)}: {_miss(undersized)}."
    )


def _scaled(run: DemoRun) -> str:
    """Describe the range of workers of a run per pool."""
    pools = list(zip(run.fewest, run.most, ("prefill", "decode"), strict=True))
    kept = [f"{low} {name}" for low, high, name in pools if low == high]
    scaled = [f"between {low} and {high} {name}" for low, high, name in pools if low != high]
    said = [
        f"{verb} {' and '.join(part)}"
        for verb, part in (("kept", kept), ("scaled", scaled))
        if part
    ]
    return f"{' and '.join(said)} workers"


def _compared(gpu_hours: float, static_gpu_hours: float) -> str:
    percent = round(100.0 * (1.0 - gpu_hours / static_gpu_hours))
    if percent == 0:
        return "as many as"
    return f"{abs(percent)} % {'fewer' if percent > 0 else 'more'} than"


def _share(run: DemoRun) -> str:
    return f"{100.0 * run.numbers.slo_attainment_frac:.1f} %"


def _miss(run: DemoRun) -> str:
    """Describe how far a run was from the service level."""
    numbers = run.numbers
    unfinished = numbers.arrived - numbers.completed
    if not numbers.completed:
        return "no request was finished"
    text = (
        f"its p99 is {time_text(numbers.ttft_p99_ms)} to the first token and "
        f"{time_text(numbers.itl_p99_ms)} between tokens"
    )
    return text + (f", and {unfinished:,} requests were not finished" if unfinished else "")

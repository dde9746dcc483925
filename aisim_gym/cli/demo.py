"""``aisim-gym demo``: compare three planners on half an hour of traffic."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from aisim_gym.cli.demo_setup import DemoSetup, Split
    from aisim_gym.cli.progress import Narrator
    from aisim_gym.spec import WorkloadSpec
    from aisim_gym.workload import RequestTable


def demo(
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Trace file, plain or .gz: Mooncake JSONL or Azure CSV; default: generated chat "
            "traffic, one wave with a spike."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for plots and reports.")] = Path("runs/demo"),
    minutes: Annotated[
        float, typer.Option(help="Length of the traffic; longer traces are cut.", min=0.1)
    ] = 30.0,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the generated traffic; default: 1.", min=0)
    ] = None,
) -> None:
    """Compare planners on half an hour of traffic: a table, and a plot of every run.

    A disaggregated vLLM fleet serves the same requests three times: by a static fleet that is just
    large enough (found by replays), by a static fleet of half that size, and by a fleet that hpa
    scales, which starts at half size and may use as many GPUs as the large fleet. Takes a minute or
    two.

    Example: [cyan]aisim-gym demo --trace azure_llm_2023_conv.csv.gz --out runs/azure[/cyan]
    """
    from rich.console import Console

    from aisim_gym.cli.demo_runs import (
        demo_plans,
        results_table,
        run_plan,
        tell_story,
        write_demo_run,
    )
    from aisim_gym.cli.progress import Narrator
    from aisim_gym.cli.run_folder import PICTURES_NEED, can_plot, prepare_folder
    from aisim_gym.workload import load_workload

    workload = _choose_workload(trace, minutes, seed)
    requests = load_workload(workload).between(0.0, minutes * 60_000.0)
    if not len(requests):
        raise ValueError(f"no request arrives within the first {minutes:g} minutes")
    folder = prepare_folder(out)
    with Narrator() as narrator:
        narrator.note(f"Workload: {_describe(requests)}")
        setup = _choose_setup(workload, requests, narrator)
        split = _size_fleet(setup, narrator)
        runs = [run_plan(plan, setup, narrator) for plan in demo_plans(setup, split)]
    console = Console(highlight=False)
    console.print(results_table(runs, setup))
    console.print(tell_story(runs), soft_wrap=not console.is_terminal)
    files = []
    for run in runs:
        with Narrator() as narrator:
            narrator.wait(f"Drawing and writing {run.plan.name}")
            files.append(write_demo_run(run, folder))
    for _, picture in files:
        if picture is not None:
            typer.echo(f"Picture: {picture}")
    typer.echo(f"Reports: {', '.join(str(written.folder) for written in files)}")
    if not can_plot():
        typer.echo(PICTURES_NEED)


def _choose_workload(trace: Path | None, minutes: float, seed: int | None) -> "WorkloadSpec":
    from aisim_gym.spec import GeneratorSpec, WorkloadSpec
    from aisim_gym.workload import detect_trace_format

    if trace is None:
        duration_s = minutes * 60.0
        generator = GeneratorSpec(
            duration_s=duration_s,
            period_s=duration_s,
            spike_at_s=duration_s * 7.0 / 12.0,
            spike_duration_s=duration_s / 30.0,
            seed=1 if seed is None else seed,
        )
        return WorkloadSpec(generator=generator)
    if seed is not None:
        raise ValueError("--seed is for generated traffic, and --trace was given: leave one out")
    trace = trace.expanduser().absolute()
    return WorkloadSpec.from_data(
        {"trace_files": [str(trace)], "trace_format": detect_trace_format(trace)}
    )


def _describe(requests: "RequestTable") -> str:
    return (
        f"{len(requests):,} requests in {requests.duration_s / 60.0:.1f} minutes, on average "
        f"{requests.input_tokens.mean():,.0f} prompt and {requests.output_tokens.mean():,.0f} "
        "output tokens"
    )


def _choose_setup(
    workload: "WorkloadSpec", requests: "RequestTable", narrator: "Narrator"
) -> "DemoSetup":
    from aisim_gym.cli.demo_setup import ITL_SLO_MS, DemoSetup

    setup = DemoSetup.of(workload, requests)
    narrator.note(
        f"Service level: first token within {setup.ttft_slo_ms / 1000.0:g} s, "
        f"then {ITL_SLO_MS:g} ms per token on average"
    )
    return setup


def _size_fleet(setup: "DemoSetup", narrator: "Narrator") -> "Split":
    from aisim_gym.cli.demo_setup import SLO_SHARE

    narrator.note(
        f"Looking for the smallest fleet that keeps it for {100.0 * SLO_SHARE:g} % of requests"
    )
    split = setup.size_fleet(lambda tried: narrator.wait(f"Trying {tried}"))
    narrator.note(f"Found: {split} (prefill and decode workers)")
    return split

"""``aisim-gym replay``: run one replay from a spec file or flags."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from aisim_gym.replay import ScalingPolicy
    from aisim_gym.spec import ReplaySpec

WORKLOAD, FLEET, PLANNER, RUN = "Workload", "Fleet", "Planner", "Service level and run"


def replay(
    spec: Annotated[
        Path | None,
        typer.Argument(help="Spec file, .toml or .json; flags override it.", show_default=False),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Trace file, plain or .gz: Mooncake, Azure, BurstGPT, our CSV.",
            rich_help_panel=WORKLOAD,
        ),
    ] = None,
    trace_format: Annotated[
        str | None,
        typer.Option(
            help="Its format; default: detected from its content.", rich_help_panel=WORKLOAD
        ),
    ] = None,
    trace_block_size: Annotated[
        int | None,
        typer.Option(help="Tokens per hash id in the trace.", rich_help_panel=WORKLOAD),
    ] = None,
    speedup: Annotated[
        float | None,
        typer.Option(help="Divides all arrival times, > 0.", rich_help_panel=WORKLOAD),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            help="Concurrent requests or sessions: a closed loop instead of arrival times.",
            rich_help_panel=WORKLOAD,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Workers of an aggregated fleet.", rich_help_panel=FLEET),
    ] = None,
    prefill: Annotated[
        int | None,
        typer.Option(help="Prefill workers of a disaggregated fleet.", rich_help_panel=FLEET),
    ] = None,
    decode: Annotated[
        int | None,
        typer.Option(help="Decode workers of a disaggregated fleet.", rich_help_panel=FLEET),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="Scheduler: vllm, sglang or trtllm.", rich_help_panel=FLEET),
    ] = None,
    startup_s: Annotated[
        float | None,
        typer.Option(help="Seconds until an added worker is active.", rich_help_panel=FLEET),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Any field of the spec, repeatable: --set fleet.engine.engine.num_gpu_blocks=2048",
            rich_help_panel=FLEET,
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="Planner that scales the fleet: static, hpa, …; default: no scaling.",
            rich_help_panel=PLANNER,
        ),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            metavar="NAME=VALUE",
            help="A parameter of the planner, repeatable; the value is JSON.",
            rich_help_panel=PLANNER,
        ),
    ] = None,
    tick_s: Annotated[
        float, typer.Option(help="Seconds between decisions.", rich_help_panel=PLANNER)
    ] = 30.0,
    max_workers: Annotated[
        int | None, typer.Option(help="Maximum workers of a pool.", rich_help_panel=PLANNER)
    ] = None,
    max_gpus: Annotated[
        int | None, typer.Option(help="Maximum GPUs of the fleet.", rich_help_panel=PLANNER)
    ] = None,
    ttft_slo_ms: Annotated[
        float | None,
        typer.Option(help="Bound on the time to first token.", rich_help_panel=RUN),
    ] = None,
    itl_slo_ms: Annotated[
        float | None,
        typer.Option(help="Bound on a request's mean gap between tokens.", rich_help_panel=RUN),
    ] = None,
    max_sim_time_ms: Annotated[
        float | None,
        typer.Option(help="Simulated time at which the run stops.", rich_help_panel=RUN),
    ] = None,
    telemetry_ms: Annotated[
        float | None,
        typer.Option(
            help="Simulated time between telemetry samples, written to the folder.",
            rich_help_panel=RUN,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the report, records per request and a plot.", rich_help_panel=RUN
        ),
    ] = None,
    parquet: Annotated[
        bool,
        typer.Option(
            "--parquet",
            help="Also write the records per request as Parquet; needs pyarrow.",
            rich_help_panel=RUN,
        ),
    ] = False,
) -> None:
    """Replay a workload through a fleet and print the results.

    An interrupted run prints and writes its results so far, marked as partial.

    Example: [cyan]aisim-gym replay --trace trace.jsonl.gz --prefill 2 --decode 4 --startup-s 30
    --policy hpa --tick-s 15 --ttft-slo-ms 2000 --itl-slo-ms 100 --out runs/mine[/cyan]
    """
    from rich.console import Console

    from aisim_gym.cli.progress import Narrator
    from aisim_gym.cli.results_table import results_table
    from aisim_gym.cli.run_folder import PICTURES_NEED, can_plot, prepare_folder, write_run
    from aisim_gym.cli.spec_options import SpecOptions, build_spec, parse_assignments
    from aisim_gym.replay import Replay, ScalingLimits
    from aisim_gym.report import summarize

    options = SpecOptions(
        trace=trace,
        trace_format=trace_format,
        trace_block_size=trace_block_size,
        speedup=speedup,
        concurrency=concurrency,
        workers=workers,
        prefill=prefill,
        decode=decode,
        backend=backend,
        startup_s=startup_s,
        ttft_slo_ms=ttft_slo_ms,
        itl_slo_ms=itl_slo_ms,
        max_sim_time_ms=max_sim_time_ms,
        telemetry_ms=telemetry_ms,
        settings=settings or (),
    )
    full_spec = build_spec(spec, options)
    given = dict(parse_assignments("--param", parameters or ()))
    planner = _make_planner(policy, given)
    limits = ScalingLimits(tick_s=tick_s, max_workers=max_workers, max_gpus=max_gpus)
    if parquet:
        _check_parquet(out, full_spec)
    run = Replay.prepare(full_spec, planner, limits=limits)
    folder = None if out is None else prepare_folder(out)
    was_interrupted = False
    with Narrator() as narrator:
        try:
            run.follow(planner, narrator.follow("Replaying"))
        except KeyboardInterrupt:
            was_interrupted = True
            narrator.note("Interrupted: results of the run so far follow")
    report = summarize(run)
    Console(highlight=False).print(results_table(run, report))
    if folder is not None:
        narrator.note(f"Writing to {out}")
        files = write_run(run, report, folder, policy or "none", given, limits, parquet=parquet)
        if not can_plot():
            narrator.note(PICTURES_NEED)
        typer.echo(f"{out}: " + ", ".join(file.name for file in files))
    if was_interrupted:
        raise KeyboardInterrupt


def _make_planner(name: str | None, parameters: dict[str, object]) -> "ScalingPolicy | None":
    from aisim_gym.errors import SpecError
    from aisim_gym.policies import make_policy

    if name is None:
        if parameters:
            raise ValueError("--param: there is no planner, name one with --policy")
        return None
    try:
        return make_policy(name, **parameters)
    except (SpecError, TypeError) as error:
        hint = "" if parameters else "; its parameters are given with --param NAME=VALUE"
        raise ValueError(f"--policy {name}: {error}{hint}") from error


def _check_parquet(out: Path | None, spec: "ReplaySpec") -> None:
    from aisim_gym.cli.run_folder import check_parquet

    if out is None:
        raise ValueError("--parquet: there is nowhere to write to, name a folder with --out")
    if not spec.capture_per_request:
        raise ValueError(
            "--parquet: there are no records per request, capture_per_request is false in the spec"
        )
    check_parquet()

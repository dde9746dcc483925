"""``aisim-gym replay``: one run, from a spec file or from flags."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from aisim_gym.replay import Replay, ScalingPolicy

WORKLOAD, FLEET, PLANNER, RUN = "Workload", "Fleet", "Planner", "Service level and run"


def replay(
    spec: Annotated[
        Path | None,
        typer.Argument(help="Spec file, .toml or .json; flags win over it.", show_default=False),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Trace file, plain or .gz: Mooncake JSONL or Azure CSV.", rich_help_panel=WORKLOAD
        ),
    ] = None,
    trace_format: Annotated[
        str | None,
        typer.Option(help="Its format; default: judged by its content.", rich_help_panel=WORKLOAD),
    ] = None,
    trace_block_size: Annotated[
        int | None,
        typer.Option(help="Tokens per hash id in the trace.", rich_help_panel=WORKLOAD),
    ] = None,
    speedup: Annotated[
        float | None,
        typer.Option(help="Divides all arrival times, > 0.", rich_help_panel=WORKLOAD),
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
        typer.Option(help="Scheduler of every worker, such as vllm.", rich_help_panel=FLEET),
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
            help="Planner that scales the fleet: static, hpa, …; default: nobody does.",
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
        float, typer.Option(help="Seconds between its decisions.", rich_help_panel=PLANNER)
    ] = 30.0,
    max_workers: Annotated[
        int | None, typer.Option(help="Most workers of a pool.", rich_help_panel=PLANNER)
    ] = None,
    max_gpus: Annotated[
        int | None, typer.Option(help="Most GPUs of the fleet.", rich_help_panel=PLANNER)
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
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the report, records per request and a picture.", rich_help_panel=RUN
        ),
    ] = None,
) -> None:
    """Replay a workload through a fleet and print what came of it.

    An interrupted run prints and writes what it has so far, marked as partial.

    Example: [cyan]aisim-gym replay --trace trace.jsonl.gz --prefill 2 --decode 4 --startup-s 30
    --policy hpa --tick-s 15 --ttft-slo-ms 2000 --itl-slo-ms 100 --out runs/mine[/cyan]
    """
    from rich.console import Console

    from aisim_gym.cli.planned_run import PlannedRun
    from aisim_gym.cli.progress import Narrator
    from aisim_gym.cli.run_folder import PICTURES_NEED, can_plot, write_run
    from aisim_gym.cli.spec_options import SpecOptions, build_spec, parse_assignments
    from aisim_gym.replay import ScalingLimits

    options = SpecOptions(
        trace=trace,
        trace_format=trace_format,
        trace_block_size=trace_block_size,
        speedup=speedup,
        workers=workers,
        prefill=prefill,
        decode=decode,
        backend=backend,
        startup_s=startup_s,
        ttft_slo_ms=ttft_slo_ms,
        itl_slo_ms=itl_slo_ms,
        max_sim_time_ms=max_sim_time_ms,
        settings=settings or (),
    )
    full_spec = build_spec(spec, options)
    given = dict(parse_assignments("--param", parameters or ()))
    planner = _make_planner(policy, given)
    limits = ScalingLimits(tick_s=tick_s, max_workers=max_workers, max_gpus=max_gpus)
    was_interrupted = False
    with Narrator() as narrator:
        planned = PlannedRun(full_spec, planner, limits=limits)
        narrator.note_compilation()
        try:
            planned.finish(narrator.follow("Replaying"))
        except KeyboardInterrupt:
            was_interrupted = True
            narrator.note("Interrupted: what follows is the run so far")
        finished = planned.replay
        files = []
        if out is not None:
            narrator.note(f"Writing to {out}")
            files = write_run(finished, out, policy or "none", given, limits)
            if not can_plot():
                narrator.note(PICTURES_NEED)
    Console(highlight=False).print(_results(finished))
    if files:
        typer.echo(f"{out}: " + ", ".join(file.name for file in files))
    if was_interrupted:
        raise KeyboardInterrupt


def _make_planner(name: str | None, parameters: dict[str, object]) -> "ScalingPolicy | None":
    from aisim_gym.policies import make_policy

    if name is None:
        if parameters:
            raise ValueError("--param: there is no planner, name one with --policy")
        return None
    try:
        return make_policy(name, **parameters)
    except TypeError as error:
        raise ValueError(f"--policy {name}: {error}") from error


def _results(replay: "Replay") -> "Table":
    """Return the headline numbers of a run, a line each."""
    from rich.table import Table

    from aisim_gym.report import headline, summarize

    report = summarize(replay)
    numbers, summary = headline(report), report.summary
    state = "finished" if replay.is_done and not replay.hit_time_limit else "partial"
    if replay.hit_time_limit:
        state = "stopped at max_sim_time_ms"
    rows = [
        ("state", state),
        ("simulated time", f"{replay.now_ms / 1000.0:,.1f} s"),
        ("replayed in", f"{replay.wall_s:.2f} s"),
        ("requests completed", f"{numbers.completed:,} of {numbers.arrived:,} arrived"),
        ("GPU-hours", f"{numbers.gpu_hours:.3f}"),
        ("output tokens/s", f"{summary['output_throughput_tok_s']:,.1f}"),
    ]
    if "goodput_request_throughput_rps" in summary:
        goodput_rps = summary["goodput_request_throughput_rps"]
        rows += [
            ("SLO met by", f"{100.0 * numbers.slo_attainment_frac:.2f} % of requests"),
            ("goodput", f"{goodput_rps:.3f} requests/s"),
        ]
    rows += [
        ("TTFT p50 / p99", f"{numbers.ttft_p50_ms:,.1f} / {numbers.ttft_p99_ms:,.1f} ms"),
        ("ITL p50 / p99", f"{numbers.itl_p50_ms:,.2f} / {numbers.itl_p99_ms:,.2f} ms"),
        ("scale events", "{} started, {} cancelled, {} drained".format(*report.scale_events)),
    ]
    table = Table("measure", "value", title="Replay")
    for row in rows:
        table.add_row(*row)
    return table

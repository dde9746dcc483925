"""``aisim-gym size``: find the smallest fixed fleet that meets a service level for a trace."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from aisim_gym.cli.spec_options import SpecOptions
    from aisim_gym.spec import ReplaySpec

WORKLOAD, FLEET, LEVEL, RESULT = "Workload", "Fleet", "Service level", "Result"


def size(
    trace: Annotated[
        Path | None,
        typer.Argument(
            help="Trace file, plain or .gz: Mooncake, Azure, BurstGPT, our CSV; optional if "
            "--spec has a workload.",
            show_default=False,
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
    engine: Annotated[
        str | None,
        typer.Option(help="Engine profile of every pool, by name or path.", rich_help_panel=FLEET),
    ] = None,
    disagg: Annotated[
        bool | None,
        typer.Option(
            "--disagg/--agg",
            help="Prefill and decode workers, or workers that do both; default: as in --spec, "
            "else --agg.",
            show_default=False,
            rich_help_panel=FLEET,
        ),
    ] = None,
    spec: Annotated[
        Path | None,
        typer.Option(
            help="Spec file, .toml or .json, with workload, fleet or limits; flags override it.",
            rich_help_panel=FLEET,
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Any field of the spec, repeatable: --set fleet.engine.engine.max_num_seqs=128",
            rich_help_panel=FLEET,
        ),
    ] = None,
    max_workers: Annotated[
        int, typer.Option(help="Maximum workers of a pool.", rich_help_panel=FLEET)
    ] = 64,
    max_gpus: Annotated[
        int | None, typer.Option(help="Maximum GPUs of the fleet.", rich_help_panel=FLEET)
    ] = None,
    ttft_slo_ms: Annotated[
        float | None,
        typer.Option(help="Bound on the time to first token.", rich_help_panel=LEVEL),
    ] = None,
    itl_slo_ms: Annotated[
        float | None,
        typer.Option(help="Bound on a request's mean gap between tokens.", rich_help_panel=LEVEL),
    ] = None,
    share: Annotated[
        float,
        typer.Option(
            help="Required share of requests within the bounds, in (0, 1].", rich_help_panel=LEVEL
        ),
    ] = 0.95,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON instead of the table.", rich_help_panel=RESULT),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the same JSON, size.json.", rich_help_panel=RESULT),
    ] = None,
) -> None:
    """Find the smallest fixed fleet that serves a share of the requests within latency bounds.

    Each candidate is one replay of the whole trace. Smallest means the fewest GPUs, then the fewest
    prefill workers. An interrupted search prints and writes the fleets measured so far.

    Example: [cyan]aisim-gym size trace.jsonl.gz --engine h100-llama31-8b --ttft-slo-ms 500
    --itl-slo-ms 30 --share 0.95 --disagg[/cyan]
    """
    import json
    from collections.abc import Callable

    from rich.console import Console

    from aisim_gym.cli.progress import Narrator
    from aisim_gym.cli.run_folder import prepare_folder
    from aisim_gym.cli.size_table import partial_dict, partial_table, size_table
    from aisim_gym.cli.spec_options import SpecOptions
    from aisim_gym.replay import Progress
    from aisim_gym.report.atomic_file import replace_file
    from aisim_gym.sizing import FleetSize, MeasuredFleet, NoFleetError, size_fleet

    options = SpecOptions(
        trace=trace,
        trace_format=trace_format,
        trace_block_size=trace_block_size,
        speedup=speedup,
        ttft_slo_ms=ttft_slo_ms,
        itl_slo_ms=itl_slo_ms,
        settings=settings or (),
    )
    full_spec = _build_spec(spec, options, engine, disagg)
    folder = None if out is None else prepare_folder(out)
    measured: list[MeasuredFleet] = []
    sized, error = None, None
    with Narrator() as narrator:
        shown: dict[FleetSize, Callable[[Progress], None]] = {}

        def show(tried: FleetSize, progress: Progress) -> None:
            if tried not in shown:
                shown[tried] = narrator.follow(f"Trying {tried}")
            shown[tried](progress)

        try:
            sized = size_fleet(
                spec=full_spec,
                share=share,
                max_workers=max_workers,
                max_gpus=max_gpus,
                on_progress=show,
                on_measured=measured.append,
            )
        except (NoFleetError, KeyboardInterrupt) as stopped:
            error = stopped
            if isinstance(stopped, KeyboardInterrupt):
                narrator.note("Interrupted: the fleets measured so far follow")
    result = partial_dict(measured, share, full_spec) if sized is None else sized.to_dict()
    text = json.dumps(result, indent=2) + "\n"
    if as_json:
        typer.echo(text, nl=False)
    else:
        if sized is None:
            was_interrupted = isinstance(error, KeyboardInterrupt)
            table = partial_table(measured, share, full_spec, was_interrupted)
        else:
            table = size_table(sized)
        Console(highlight=False).print(table)
    if folder is not None:
        with replace_file(folder / "size.json") as temporary:
            temporary.write_text(text, encoding="utf-8")
        typer.echo(f"{out}: size.json", err=as_json)
    if error is not None:
        raise error


def _build_spec(
    file: Path | None, options: "SpecOptions", engine: str | None, disagg: bool | None
) -> "ReplaySpec":
    """Return the spec of the runs, with an arbitrary number of workers."""
    import json
    from dataclasses import replace

    from aisim_gym.cli.spec_options import build_spec
    from aisim_gym.sizing import engine_fleet
    from aisim_gym.spec.loading import read_spec_data

    data = {} if file is None else read_spec_data(file.expanduser())
    fleet = data.get("fleet") if isinstance(data, dict) else None
    given = fleet.get("kind") if isinstance(fleet, dict) else None
    if disagg is not None and given not in (None, "disagg" if disagg else "agg"):
        flag = "--disagg" if disagg else "--agg"
        raise ValueError(f"{flag}: fleet.kind in the spec file is {given!r}")
    is_set = any(setting.startswith("fleet.") for setting in options.settings)
    if engine is None and fleet is None and not is_set:
        raise ValueError("no engine: give --engine NAME, or a fleet with --spec FILE")
    is_disagg = given == "disagg" if disagg is None else disagg
    if given is None or disagg is not None:
        if is_disagg:
            options = replace(options, prefill=1, decode=1)
        else:
            options = replace(options, workers=1)
    if engine is not None:
        name = str(Path(engine).expanduser().absolute()) if engine.endswith(".json") else engine
        chosen = engine_fleet("disagg" if is_disagg else "agg", name)
        settings = [
            f"fleet.{pool}={json.dumps(launch)}"
            for pool, launch in chosen.items()
            if pool != "kind"
        ]
        options = replace(options, settings=[*settings, *options.settings])
    return build_spec(file, options)

"""``aisim-gym trace``: inspect, convert and generate traces."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from aisim_gym.spec import WorkloadSpec

HELP = "Inspect, convert and generate traces."
INPUT, CHANGES = "Input", "Changes, in this order"

TraceFile = Annotated[
    Path, typer.Argument(help="Trace file, plain or .gz.", show_default=False, metavar="FILE")
]
TraceFormat = Annotated[
    str | None,
    typer.Option(
        help="mooncake, mooncake-delta, azure, burstgpt or csv; default: detected from content.",
        rich_help_panel=INPUT,
    ),
]
TraceBlockSize = Annotated[
    int | None,
    typer.Option(help="Tokens per hash id; default: 512.", rich_help_panel=INPUT),
]
TimeUnit = Annotated[
    str | None,
    typer.Option(
        help="Unit of the times, s or ms; default: ms for mooncake, s for burstgpt; the other "
        "formats specify it.",
        rich_help_panel=INPUT,
    ),
]
SpreadMs = Annotated[
    float | None,
    typer.Option(
        help="Spread arrivals with equal stamps over this many ms: 3000 for Mooncake's "
        "conversation trace.",
        rich_help_panel=CHANGES,
    ),
]
OutFormat = Annotated[
    str | None, typer.Option("--format", help="mooncake or csv; default: by file name.")
]


def info(
    files: Annotated[
        list[Path],
        typer.Argument(help="Trace files, plain or .gz.", show_default=False, metavar="FILE…"),
    ],
    trace_format: TraceFormat = None,
    trace_block_size: TraceBlockSize = None,
    time_unit: TimeUnit = None,
    spread_ms: SpreadMs = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, a list with an object per file.")
    ] = False,
) -> None:
    """Print trace statistics: rates, burstiness, lengths, shared prefixes.

    CV is the standard deviation of the gaps between arrivals over their mean; IDC of T is the
    variance of the arrivals in windows of T over their mean. Both are 1 for random (Poisson)
    arrivals.

    Example: [cyan]aisim-gym trace info azure_llm_2023_conv.csv.gz mooncake.jsonl[/cyan]
    """
    import json
    from dataclasses import asdict

    from rich.console import Console

    from aisim_gym.cli.progress import Narrator
    from aisim_gym.cli.trace_options import trace_workload
    from aisim_gym.cli.trace_table import statistics_tables
    from aisim_gym.workload import load_workload, trace_statistics

    traces = []
    with Narrator() as narrator:
        for file in files:
            narrator.wait(f"Reading {file}")
            workload = trace_workload(
                file,
                trace_format,
                trace_block_size=trace_block_size,
                time_unit=time_unit,
                spread_ms=spread_ms,
            )
            traces.append((file, workload, trace_statistics(load_workload(workload))))
    if as_json:
        objects = [
            {"file": str(spec.trace_files[0]), "format": spec.trace_format, **asdict(found)}
            for _, spec, found in traces
        ]
        typer.echo(json.dumps(objects, indent=2, ensure_ascii=False))
        return
    names = [file.name for file in files]
    is_ambiguous = len(set(names)) < len(names)
    labels = [str(file) if is_ambiguous else file.name for file in files]
    columns = {label: found for label, (_, _, found) in zip(labels, traces, strict=True)}
    console = Console(highlight=False)
    for table in statistics_tables(columns, console.width):
        console.print(table)


def plot(
    file: TraceFile,
    out: Annotated[Path, typer.Option(help="Plot to write: .png, .svg or .pdf.")] = Path(
        "trace.png"
    ),
    trace_format: TraceFormat = None,
    trace_block_size: TraceBlockSize = None,
    time_unit: TimeUnit = None,
    spread_ms: SpreadMs = None,
) -> None:
    """Draw a trace: rate over time, lengths, gaps between arrivals, shared prefixes.

    Example: [cyan]aisim-gym trace plot azure_llm_2023_code.csv.gz --out code.png[/cyan]
    """
    from aisim_gym.cli.progress import Narrator
    from aisim_gym.cli.trace_options import check_target, trace_workload
    from aisim_gym.report.trace_plots import plot_trace
    from aisim_gym.workload import load_workload

    target = check_target(out)
    workload = trace_workload(
        file,
        trace_format,
        trace_block_size=trace_block_size,
        time_unit=time_unit,
        spread_ms=spread_ms,
    )
    with Narrator() as narrator:
        narrator.wait(f"Reading {file}")
        requests = load_workload(workload)
        narrator.wait(f"Drawing {out}")
        plot_trace(requests, target, title=file.name)
    typer.echo(f"Picture: {out}")


def convert(
    source: Annotated[
        Path, typer.Argument(help="Trace file, plain or .gz.", show_default=False, metavar="IN")
    ],
    target: Annotated[
        Path,
        typer.Argument(
            help="File to write: .csv or .jsonl (Mooncake), also with .gz.",
            show_default=False,
            metavar="OUT",
        ),
    ],
    out_format: OutFormat = None,
    trace_format: TraceFormat = None,
    trace_block_size: TraceBlockSize = None,
    time_unit: TimeUnit = None,
    spread_ms: SpreadMs = None,
    start_s: Annotated[
        float | None,
        typer.Option(help="Remove earlier arrivals.", rich_help_panel=CHANGES),
    ] = None,
    duration_s: Annotated[
        float | None,
        typer.Option(help="Remove arrivals this much later.", rich_help_panel=CHANGES),
    ] = None,
    rate_scale: Annotated[
        float | None,
        typer.Option(
            help="Multiply the rate over the same time by removing or copying requests at "
            "random: bursts stay where they are.",
            rich_help_panel=CHANGES,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of --rate-scale; default: 0.", rich_help_panel=CHANGES),
    ] = None,
    max_input_tokens: Annotated[
        int | None,
        typer.Option(help="Remove requests with longer prompts.", rich_help_panel=CHANGES),
    ] = None,
    max_total_tokens: Annotated[
        int | None,
        typer.Option(
            help="Remove requests with longer prompt and output together.", rich_help_panel=CHANGES
        ),
    ] = None,
    clip: Annotated[
        bool,
        typer.Option("--clip", help="Cut overlong requests instead.", rich_help_panel=CHANGES),
    ] = False,
    time_scale: Annotated[
        float,
        typer.Option(
            help="Multiply all times: 0.5 plays the trace twice as fast.", rich_help_panel=CHANGES
        ),
    ] = 1.0,
) -> None:
    """Convert a trace to another format, time range or rate.

    Times of the result are ms since the first arrival. An existing file is replaced once the new
    one is complete.

    Example: [cyan]aisim-gym trace convert conversation.jsonl.gz tenth.csv --spread-ms 3000
    --start-s 600 --duration-s 900 --rate-scale 0.1[/cyan]
    """
    import math

    from aisim_gym.cli.trace_options import trace_workload

    if not (math.isfinite(time_scale) and time_scale > 0.0):
        raise ValueError(f"--time-scale: got {time_scale:g}, allowed: finite and > 0")
    _check_needs(seed=(seed, rate_scale), clip=(clip or None, max_input_tokens or max_total_tokens))
    workload = trace_workload(
        source,
        trace_format,
        trace_block_size=trace_block_size,
        time_unit=time_unit,
        spread_ms=spread_ms,
        start_s=start_s,
        duration_s=duration_s,
        rate_scale=rate_scale,
        rate_seed=seed,
        max_input_tokens=max_input_tokens,
        max_total_tokens=max_total_tokens,
        overlong="clip" if clip else None,
        arrival_speedup_ratio=1.0 / time_scale,
    )
    _write(workload, target, out_format, f"Reading {source}")


def generate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Replay spec of the workload (optional), and the file to write: "
            ".csv or .jsonl (Mooncake), also with .gz.",
            show_default=False,
            metavar="[SPEC] OUT",
        ),
    ],
    preset: Annotated[
        str | None, typer.Option(help="A named preset of the generator [cyan]traffic[/cyan].")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="A field of the generator, repeatable: --set kind=chat-wave --set duration_s=600",
        ),
    ] = None,
    out_format: OutFormat = None,
) -> None:
    """Write the requests of a generator as a trace file.

    Flags override the spec file.

    Example: [cyan]aisim-gym trace generate chat.csv --set kind=chat-wave --set
    duration_s=600[/cyan]
    """
    from aisim_gym.cli.trace_options import generator_spec

    if len(paths) > 2:
        raise ValueError(f"got {len(paths)} files, allowed: a spec (or none) and the file to write")
    *specs, target = paths
    spec = generator_spec(specs[0] if specs else None, preset, settings or [])
    _write(spec.workload, target, out_format, "Generating", spec.engine_block_size)


COMMANDS: dict[str, Callable[..., None]] = {
    "info": info,
    "plot": plot,
    "convert": convert,
    "generate": generate,
}


def _write(
    workload: "WorkloadSpec",
    target: Path,
    out_format: str | None,
    what: str,
    engine_block_size: int | None = None,
) -> None:
    """Load a workload, write it and print a summary."""
    from aisim_gym.cli.progress import Narrator
    from aisim_gym.cli.trace_options import check_target, describe, write_whole
    from aisim_gym.workload import load_workload
    from aisim_gym.workload.trace_writer import written_format

    chosen = written_format(target, out_format)
    where = check_target(target)
    with Narrator() as narrator:
        narrator.wait(what)
        requests = load_workload(workload, engine_block_size)
        narrator.wait(f"Writing {target}")
        write_whole(requests, where, chosen)
    typer.echo(f"{target}: {describe(requests, chosen)}")


def _check_needs(**flags: tuple[Any, Any]) -> None:
    """Raise if a flag has no effect without another one."""
    needed = {"seed": "--rate-scale", "clip": "--max-input-tokens or --max-total-tokens"}
    for name, (value, other) in flags.items():
        if value is not None and other is None:
            raise ValueError(f"--{name} changes nothing without {needed[name]}")

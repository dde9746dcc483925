"""``aisim-gym bench``: measure speed against the reference and against itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from aisim_gym.bench.reference_process import ReferenceProcess
    from aisim_gym.cli.progress import Narrator

EXIT_WORSE = 1
UNFOLDED = 240
TRACE = Path("shared", "data", "traces", "mooncake_conversation.jsonl.gz")


def bench(
    sections: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SECTION]...",
            help="scenarios, mooncake, env, batch, start, memory, fleet, requests; default: all.",
            show_default=False,
        ),
    ] = None,
    repeats: Annotated[
        int | None,
        typer.Option(
            help="Values per median; default: 5, or 3 with --short.", min=1, show_default=False
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="PYTHON",
            help="Interpreter with ai-dynamo-runtime; default: this one, if it has it.",
        ),
    ] = None,
    mooncake: Annotated[
        Path | None,
        typer.Option(
            help=f"The Mooncake conversation trace; default: {TRACE} here or in a parent folder."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON file for all values, updated during the run.")
    ] = None,
    short: Annotated[
        bool, typer.Option("--short", help="Fewer repeats, smaller fleets and runs.")
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(help="File of recorded ratios; fail if one is now twice as bad."),
    ] = None,
    record: Annotated[
        Path | None, typer.Option(help="Write the ratios to this file, for --check.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables as Markdown.")
    ] = False,
) -> None:
    """Measure speed, start-up, memory and growth, and print a table per section.

    Compared runs alternate, and every timed run of a recorded scenario must give the recorded
    result. Exit status: 1 if --check fails. A full run takes ten minutes or more, much of it for
    compiling; an interrupted run keeps its results.

    Example: [cyan]aisim-gym bench scenarios fleet --short --out bench.json[/cyan]
    """
    from rich.console import Console

    from aisim_gym.bench.bench_options import BenchOptions
    from aisim_gym.bench.bench_run import BenchRun
    from aisim_gym.bench.recorded_ratios import compare_ratios, read_ratios, write_ratios
    from aisim_gym.bench.sections import choose_sections
    from aisim_gym.cli.bench_tables import check_table, section_tables
    from aisim_gym.cli.progress import Narrator

    chosen = choose_sections(sections or [])
    recorded = [] if check is None else read_ratios(check.expanduser())
    console = Console(highlight=False)
    if markdown or not console.is_terminal:  # do not wrap lines in Markdown or logs
        console.width = UNFOLDED
    with Narrator() as narrator, _reference(reference, narrator) as process:
        options = BenchOptions(
            repeats=repeats or (3 if short else 5),
            is_short=short,
            reference=process,
            mooncake=_find_trace(mooncake),
            tell=lambda what: narrator.wait(f"Measuring {what}"),
        )
        run = BenchRun(options, None if out is None else out.expanduser())
        for name, section in chosen.items():
            try:
                run.measure(name, section)
            finally:  # show partial results of an interrupted section
                narrator.clear()
                for part in section_tables(name, run.sections[name], markdown):
                    console.print(part)
    if record is not None:
        write_ratios(run.sections, record.expanduser())
    if check is not None:
        comparisons = compare_ratios(recorded, run.sections, process is not None)
        console.print(check_table(comparisons, markdown))
        if not any(comparison.ratio is not None for comparison in comparisons):
            raise ValueError(f"--check: none of the ratios in {check} was measured")
        if any(comparison.is_failure for comparison in comparisons):
            raise typer.Exit(EXIT_WORSE)


@contextmanager
def _reference(
    interpreter: str | None, narrator: "Narrator"
) -> "Iterator[ReferenceProcess | None]":
    """Yield the reference, or None if none is given and this interpreter has none."""
    from aisim_gym.bench.reference_process import ReferenceProcess, default_interpreter

    interpreter = interpreter or default_interpreter()
    if interpreter is None:
        narrator.note("No reference in this interpreter: measuring without it")
        yield None
        return
    with ReferenceProcess(interpreter) as process:
        narrator.note(f"Reference: {process.version}")
        yield process


def _find_trace(given: Path | None) -> Path | None:
    """Return the given Mooncake trace, or the one beside this checkout, or None."""
    if given is not None:
        return given.expanduser()
    here = Path.cwd()
    paths = (folder / TRACE for folder in (here, *here.parents))
    return next((path for path in paths if path.is_file()), None)

"""``aisim-gym conformance``: check that this installation reproduces the recorded runs."""

import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

    from aisim_gym.conformance import Outcome

EXIT_DIFFERENT, EXIT_BAD_INPUT = 1, 2


def conformance(
    paths: Annotated[
        list[Path], typer.Argument(help="Golden files, or folders of them (*.json.gz).")
    ],
    match: Annotated[
        str, typer.Option(help="Only files whose name without .json.gz matches this pattern.")
    ] = "*",
) -> None:
    """Run recorded scenarios and compare every tick, request, summary and lifecycle operation.

    Prints one line per file: PASS, FAIL with the first difference, or SKIP for a scenario that this
    version does not replay. Exit status: 0 if all compared values are equal; 1 if any differs, or
    if all files were skipped; 2 if a path or file is not usable.

    Example: [cyan]aisim-gym conformance tests/conformance/data/goldens --match '*-vllm-*'[/cyan]
    """
    from aisim_gym.conformance import GoldenError, Status, find_goldens

    counts: Counter[Status] = Counter()
    try:
        files = find_goldens(paths, match)
        with _progress(files) as outcomes:
            for outcome in outcomes:
                counts[outcome.status] += 1
                print(outcome)  # typer.echo would bypass the progress bar
                if outcome.status is Status.FAILED:
                    print(f"     replay: aisim-gym conformance {shlex.quote(str(outcome.path))}")
    except GoldenError as error:
        typer.echo(f"aisim-gym conformance: {error}", err=True)
        raise typer.Exit(EXIT_BAD_INPUT) from None
    print(
        f"{len(files)} files: {counts[Status.PASSED]} passed, {counts[Status.FAILED]} failed, "
        f"{counts[Status.SKIPPED]} skipped"
    )
    if counts[Status.FAILED] or not counts[Status.PASSED]:
        raise typer.Exit(EXIT_DIFFERENT)


@contextmanager
def _progress(files: Sequence[Path]) -> Iterator[Iterator["Outcome"]]:
    """Yield the outcomes of ``files``, with a progress bar if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("comparing {task.fields[name]}"),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        # Output must still reach stdout if it is redirected.
        redirect_stdout=sys.stdout.isatty(),
    )
    with bar:
        yield _outcomes(files, bar)


def _outcomes(files: Sequence[Path], bar: "Progress") -> Iterator["Outcome"]:
    from aisim_gym.conformance import check_golden

    task = bar.add_task("", total=len(files), name=files[0].name)
    for path in files:
        bar.update(task, name=path.name)
        yield check_golden(path)
        bar.advance(task)

"""``aisim-gym warmup``: compile in advance, so that later runs start at once."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from aisim_gym.cli.warm_runs import Warmed, WarmRun

EXIT_NOT_KEPT = 1


def warmup(
    backend: Annotated[
        list[str] | None,
        typer.Option(
            help="Code for replays with this scheduler, with and without speculative decoding: "
            "vllm, sglang or trtllm; repeatable."
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Code for the environments and all backends.")
    ] = False,
) -> None:
    """Compile the code of the environments and cache it for later runs.

    Otherwise the first run compiles it. Code in the cache is not compiled again. Exit status: 0, or
    1 if compiled code could not be cached.

    Example, in a Dockerfile: [cyan]RUN aisim-gym warmup --all[/cyan]
    """
    import warnings

    from rich.console import Console

    from aisim_gym.cli.progress import Narrator
    from aisim_gym.cli.warm_runs import choose_runs, warm

    runs = choose_runs(backend or [], everything)
    done: dict[WarmRun, Warmed] = {}
    with Narrator() as narrator:
        narrator.note(f"Looking up or compiling for {_listed(runs)}: 10-30 s each on a core")
        narrator.wait("Compiling")
        for run, warmed in warm(runs):
            done[run] = warmed
            missing = [other for other in runs if other not in done]
            if missing:
                narrator.wait(f"Compiling for {_listed(missing)}")
    for text in sorted({text for warmed in done.values() for text in warmed.warnings}):
        warnings.warn(text, RuntimeWarning, stacklevel=1)
    console = Console(highlight=False)
    console.print(_table({run: done[run] for run in runs}))
    files = {code.path for warmed in done.values() for code in warmed.code}
    for folder in sorted({path.parent for path in files if path is not None}):
        num_bytes = sum(path.stat().st_size for path in files if path and path.parent == folder)
        typer.echo(f"Kept: {num_bytes / 1e6:.1f} MB in {folder}")
    if None in files:
        raise typer.Exit(EXIT_NOT_KEPT)


def _listed(runs: "list[WarmRun]") -> str:
    return ", ".join(run.name for run in runs)


def _table(done: "dict[WarmRun, Warmed]") -> "Table":
    from rich.table import Table

    table = Table("for", "compiled", "already compiled", "seconds", "MB", title="Compiled code")
    for run, warmed in done.items():
        new = [code.function for code in warmed.code if code.is_new]
        old = [code.function for code in warmed.code if not code.is_new]
        paths = {code.path for code in warmed.code if code.path is not None}
        num_bytes = sum(path.stat().st_size for path in paths)
        table.add_row(
            run.name,
            ", ".join(new) or "nothing",
            ", ".join(old) or "nothing",
            f"{warmed.seconds:.1f}",
            f"{num_bytes / 1e6:.1f}",
        )
    return table

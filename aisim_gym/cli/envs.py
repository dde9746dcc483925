"""``aisim-gym envs``: list the registered environments and show their manuals."""

from pathlib import Path
from typing import Annotated

import typer


def envs(
    name: Annotated[
        str | None, typer.Argument(help="Show the page of this environment, e.g. ChatDiurnal-v0.")
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option("--write", help="Write the pages of all environments to this folder."),
    ] = None,
) -> None:
    """List the registered environments, or show the manual of one.

    The namespace may be omitted: aisim-gym envs FlashCrowd-v0
    """
    from aisim_gym.envs.env_page import PAGE_NAMES, env_page
    from aisim_gym.report.atomic_file import replace_file

    if write is not None:
        write.mkdir(parents=True, exist_ok=True)
        for page_name in PAGE_NAMES:
            with replace_file(write / f"{page_name}.md") as path:
                path.write_text(env_page(page_name), "utf-8")
        typer.echo(f"{len(PAGE_NAMES)} pages written to {write}")
    elif name is None:
        _print_list()
    else:
        _print_page(env_page(name))


def _print_list() -> None:
    from rich.console import Console
    from rich.table import Table

    from aisim_gym.envs import ENTRY_POINTS, SCENARIOS

    table = Table("id", "pools", "what is scaled", box=None, header_style="bold")
    for env_id in ENTRY_POINTS:
        pools = "one" if "Aggregated" in env_id else "two"
        table.add_row(env_id, pools, "your fleet and traffic, by keyword")
    for scenario in SCENARIOS:
        table.add_row(scenario.id, "one" if scenario.kind == "agg" else "two", scenario.summary)
    Console().print(table)


def _print_page(page: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(page))

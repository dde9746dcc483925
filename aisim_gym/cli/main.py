"""``aisim-gym``: the commands and their error handling.

Commands import their dependencies inside the function, so that the help appears at once.
"""

import inspect
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from aisim_gym import __version__
from aisim_gym.cli.bench import bench
from aisim_gym.cli.conformance import conformance
from aisim_gym.cli.demo import demo
from aisim_gym.cli.envs import envs
from aisim_gym.cli.replay import replay
from aisim_gym.cli.size import size
from aisim_gym.cli.trace import COMMANDS as TRACE_COMMANDS
from aisim_gym.cli.trace import HELP as TRACE_HELP
from aisim_gym.cli.warmup import warmup
from aisim_gym.errors import AisimError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


class Commands(TyperGroup):
    """The commands; errors that a user can fix appear as one paragraph, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the selected command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("Interrupted; files written so far are kept.", err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:  # the reader of the output has exited
            raise
        except (AisimError, ValueError, ImportError, OSError) as error:
            if ctx.params["debug"]:
                traceback.print_exc()
            else:
                typer.echo(_paragraph(error), err=True)
            raise typer.Exit(EXIT_BAD_INPUT) from None


def _help_text(command: Callable[..., None]) -> str:
    """Return the docstring of a command with unwrapped paragraphs, as typer keeps line breaks."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


app = typer.Typer(
    name="aisim-gym",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(help=_help_text(demo))(demo)
app.command(help=_help_text(replay), no_args_is_help=True)(replay)
app.command(help=_help_text(size), no_args_is_help=True)(size)
app.command(help=_help_text(conformance))(conformance)
app.command(help=_help_text(envs))(envs)
app.command(help=_help_text(warmup))(warmup)
app.command(help=_help_text(bench))(bench)
trace = typer.Typer(help=TRACE_HELP, no_args_is_help=True)
for name, command in TRACE_COMMANDS.items():
    trace.command(name, help=_help_text(command), no_args_is_help=True)(command)
app.add_typer(trace, name="trace")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"aisim-gym {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            is_eager=True,
            callback=_print_version,
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Replay LLM inference fleets, exactly and fast, and compare the planners that scale them.

    [bold]aisim-gym demo[/bold] shows all of it in a minute or two.
    """


def run() -> None:
    """Run the command line; entry point of the script ``aisim-gym``."""
    warnings.formatwarning = _format_warning
    app(prog_name="aisim-gym")


def _paragraph(error: BaseException) -> str:
    """Return an error as a paragraph with the program name, without the type."""
    text = str(error) or type(error).__name__
    width = 100 if sys.stderr.isatty() else 10_000  # do not wrap lines of logs
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    lines = f"aisim-gym: {text}".splitlines()
    return "\n".join(wrapper.fill(line) for line in lines)


def _format_warning(message: Warning | str, *_: object, **__: object) -> str:
    return f"aisim-gym: warning: {message}\n"

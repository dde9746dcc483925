"""The command line in this process."""

from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from aisim_gym.cli.main import app


@dataclass(frozen=True)
class CliResult:
    """What a command left behind: exit status, and text on stdout and stderr."""

    status: int
    out: str
    err: str


def run_cli(*arguments: str | Path) -> CliResult:
    """Run ``aisim-gym`` with the given arguments; errors that it does not handle are raised."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return CliResult(result.exit_code, result.stdout, result.stderr)

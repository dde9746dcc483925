"""Whether a command on a page exists: its program, its subcommand, its options."""

import re
import tomllib
from typing import Any

from support.source_tree import ROOT
from typer.main import get_command

from aisim_gym.cli.main import app

OTHER_PROGRAMS = {"tensorboard"}
"""Those of other packages that pages mention."""


def complaint(words: list[str]) -> str | None:
    """Return what is wrong with a command; None if nothing is."""
    program, *arguments = words
    if program == "aisim-gym":
        return _complaint_of_cli(arguments)
    if program == "make":
        return _complaint_of_make(arguments)
    if program == "pip":
        return _complaint_of_pip(arguments)
    if program == "python":
        return _complaint_of_script(arguments)
    return None if program in OTHER_PROGRAMS else f"unknown program {program!r}"


def _complaint_of_cli(arguments: list[str]) -> str | None:
    command: Any = get_command(app)
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        if name not in command.commands:
            return f"no command {name!r}"
        command = command.commands[name]
    known = {"--help", "-h"}
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    return _unknown_option(arguments, known)


def _complaint_of_make(arguments: list[str]) -> str | None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    for argument in arguments:
        if "=" not in argument and argument not in targets:
            return f"no target {argument!r}"
    return None


def _complaint_of_pip(arguments: list[str]) -> str | None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for extras in re.findall(r"(?:^|\s)(?:aisim-gym|\.)\[([\w,-]+)\]", " ".join(arguments)):
        for extra in extras.split(","):
            if extra not in project["optional-dependencies"]:
                return f"no extra {extra!r}"
    return None


def _complaint_of_script(arguments: list[str]) -> str | None:
    script, *options = arguments
    if not (ROOT / script).is_file():
        return f"no file {script!r}"
    text = (ROOT / script).read_text("utf-8")
    # typer and argparse make options of names: policy -> --policy, num_envs -> --num-envs.
    names = set(re.findall(r"\b([a-z][a-z_]*)\b", text))
    return _unknown_option(options, {"--" + name.replace("_", "-") for name in names})


def _unknown_option(arguments: list[str], known: set[str]) -> str | None:
    for argument in arguments:
        if argument.startswith("-") and argument.split("=")[0] not in known:
            return f"no option {argument!r}"
    return None

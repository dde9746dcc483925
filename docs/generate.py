"""Write the pages that are made from the code: fields of a spec, commands, the API.

Run ``python docs/generate.py``, or ``make pages``; a test fails if a committed page is out of date.
"""

import ast
import inspect
import itertools
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from aisim_gym.cli.main import app
from aisim_gym.spec import ReplaySpec

DOCS = Path(__file__).parent

MADE = "<!-- Written by `make pages`: change the code instead. -->"

PACKAGES = (
    "aisim_gym",
    "aisim_gym.spec",
    "aisim_gym.workload",
    "aisim_gym.replay",
    "aisim_gym.report",
    "aisim_gym.sizing",
    "aisim_gym.profiles",
    "aisim_gym.envs",
    "aisim_gym.policies",
    "aisim_gym.policies.rl",
)
"""Packages whose ``__all__`` is the public API."""

BOUNDS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤", "min_length": "length ≥"}


def pages() -> dict[Path, str]:
    """Return the text of every page that is made from the code, by its path."""
    made = {
        DOCS / "reference" / "spec-fields.md": spec_page(),
        DOCS / "reference" / "commands.md": command_page(),
        DOCS / "reference" / "api" / "index.md": api_index(),
    }
    for package in PACKAGES:
        made[DOCS / "reference" / "api" / f"{package}.md"] = api_page(package)
    return made


def spec_page() -> str:
    """Return the page of all fields of a spec, model by model."""
    models = models_of(ReplaySpec)
    lines = [
        "# Fields of a spec",
        "",
        MADE,
        "",
        "Every field of a spec file (`.toml` or `.json`), of the Python models and of the mappings",
        "that stand for them. The first table is the file itself; types with a link have tables of",
        "their own. Fields without a default are required. Files and generated traffic are",
        "explained in [traces](../traces.md) and [workloads](../workloads.md).",
    ]
    for model in models:
        lines += ["", f"## {model.__name__}", "", *_paragraph(model.__doc__)]
        lines += ["", "| field | type | bounds | default | what it is |", "|---|---|---|---|---|"]
        lines += [_field_row(name, field) for name, field in model.model_fields.items()]
    return "\n".join(lines) + "\n"


def models_of(root: type[BaseModel]) -> list[type[BaseModel]]:
    """Return a model and those that its fields may hold, in the order in which they are met."""
    found: list[type[BaseModel]] = [root]
    for model in found:  # grows while it is read
        for field in model.model_fields.values():
            found += [inner for inner in _models_in(field.annotation) if inner not in found]
    return found


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        if annotation.model_fields:
            yield annotation
    else:
        for inner in get_args(annotation):
            yield from _models_in(inner)


def _field_row(name: str, field: FieldInfo) -> str:
    if field.is_required():
        default = ""
    elif field.default is PydanticUndefined:
        assert field.default_factory is not None
        default = _value(field.default_factory())  # type: ignore[call-arg]
    else:
        default = _value(field.default)
    kind = " or ".join(dict.fromkeys(_types(field.annotation)))
    bounds = ", ".join(_bounds(field.annotation, field.metadata))
    return _row(f"`{name}`", kind, bounds, default, field.description or "")


def _types(annotation: Any) -> Iterator[str]:
    """Yield the ways to give a value of a type, in words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation is None or annotation is types.NoneType:
        yield "null"
    elif origin is Annotated:
        yield from _types(inner[0])
    elif origin in (Union, types.UnionType):
        for choice in inner:
            yield from _types(choice)
    elif origin is Literal:
        yield from (f"`{choice}`" for choice in inner)
    elif origin in (tuple, list):
        items = [part for part in inner if part is not Ellipsis]
        if Ellipsis in inner or origin is list or len(set(items)) == 1:
            count = "" if Ellipsis in inner or origin is list else f"{len(items)} "
            yield f"list of {count}{' or '.join(dict.fromkeys(_types(items[0])))}"
        else:
            yield f"list ({', '.join(' or '.join(_types(item)) for item in items)})"
    elif inner:
        yield "table"
    elif inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        name = annotation.__name__
        yield f"[{name}](#{name.lower()})" if annotation.model_fields else name
    else:
        names = {int: "integer", float: "number", str: "text", bool: "boolean", Path: "path"}
        yield names.get(annotation, "any")


def _bounds(annotation: Any, metadata: list[Any]) -> Iterator[str]:
    if get_origin(annotation) in (Union, types.UnionType):
        for choice in get_args(annotation):
            yield from _bounds(choice, [])
    elif get_origin(annotation) is Annotated:
        yield from _bounds(get_args(annotation)[0], list(get_args(annotation)[1:]))
    given = [mark for mark in metadata if type(mark).__module__ == "annotated_types"]
    for mark in given:
        for name, sign in BOUNDS.items():
            if getattr(mark, name, None) is not None:
                yield f"{sign} {_number(getattr(mark, name))}"
    if not given and any(getattr(mark, "low", None) == 0 for mark in metadata):
        yield "≥ 0"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _value(value: Any) -> str:
    """Return a default as it would be written in a file."""
    if isinstance(value, BaseModel):
        if value == type(value)():
            return "all defaults"
        given = [f"{name} = {_plain(getattr(value, name))}" for name in value.model_fields_set]
        return f"`{{{', '.join(sorted(given))}}}`" if given else "all defaults"
    return f"`{_plain(value)}`"


def _plain(value: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    if value is None or isinstance(value, bool):
        return words[value]
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_plain, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def command_page() -> str:
    """Return the page of all commands with their arguments and options."""
    lines = [
        "# Commands",
        "",
        MADE,
        "",
        "`aisim-gym COMMAND --help` shows the same. Options of `aisim-gym` itself stand in front",
        "of the command.",
    ]
    general = app.registered_callback
    assert general is not None
    assert general.callback is not None
    lines += _command_lines("aisim-gym", general.callback.__doc__ or "", general.callback)
    for name, help_text, callback in commands(app):
        lines += _command_lines(name, help_text, callback)
    return "\n".join(lines) + "\n"


def commands(of: typer.Typer, prefix: str = "aisim-gym") -> Iterator[tuple[str, str, Any]]:
    """Yield full name, help and function of every command, groups written out."""
    for command in of.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        yield f"{prefix} {name}", command.help or command.callback.__doc__ or "", command.callback
    for group in of.registered_groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, f"{prefix} {group.name}")


def _command_lines(name: str, help_text: str, callback: Callable[..., Any]) -> list[str]:
    arguments, options = [], []
    for parameter in inspect.signature(callback, eval_str=True).parameters.values():
        if parameter.annotation is typer.Context:
            continue
        kind, mark = _typer_parts(parameter)
        needed = parameter.default is inspect.Parameter.empty
        default = "" if needed else _shown(parameter.default)
        words = " or ".join(choice for choice in dict.fromkeys(_types(kind)) if choice != "null")
        text = (mark.help or "").replace("\n", " ")
        if isinstance(mark, typer.models.ArgumentInfo):
            given = f"`{mark.metavar or parameter.name.upper()}`"
            arguments.append(_row(given, words, "yes" if needed else "no", text))
        else:
            options.append(_row(_flags(parameter.name, kind, mark), words, default, text))
    lines = ["", f"## {name}", ""]
    for paragraph in help_text.split("\n\n"):
        example = re.fullmatch(r"Examples?: \[cyan\](.*)\[/cyan\]", " ".join(paragraph.split()))
        plain = re.sub(r"\[/?[a-z]+\]", "", " ".join(paragraph.split()))
        lines += ["```text", example[1], "```", ""] if example else [plain, ""]
    if arguments:
        lines += ["| argument | type | required | what it is |", "|---|---|---|---|"]
        lines += [*arguments, ""]
    if options:
        lines += ["| option | type | default | what it does |", "|---|---|---|---|"]
        lines += [*options, ""]
    return lines[:-1]


def _typer_parts(parameter: inspect.Parameter) -> tuple[Any, Any]:
    """Return the type of a parameter of a command, and what it says to Typer."""
    if get_origin(parameter.annotation) is Annotated:
        kind, *marks = get_args(parameter.annotation)
        for mark in marks:
            if isinstance(mark, typer.models.ParameterInfo):
                return kind, mark
    raise TypeError(f"{parameter.name} says nothing about itself")


def _flags(name: str, kind: Any, mark: Any) -> str:
    # The first name stands where older versions of Typer have the default.
    given = (mark.default, *(mark.param_decls or ()))
    names = [flag for flag in given if isinstance(flag, str) and flag.startswith("-")]
    if not names:
        plain = name.replace("_", "-")
        names = [f"--{plain}/--no-{plain}" if kind is bool else f"--{plain}"]
    return ", ".join(f"`{flag}`" for flag in names)


def _shown(default: Any) -> str:
    if default is None or default == ():
        return ""
    return "off" if default is False else "on" if default is True else f"`{_listed(default)}`"


def _listed(default: Any) -> str:
    return " ".join(map(str, default)) if isinstance(default, (list, tuple)) else str(default)


def api_index() -> str:
    """Return the page that lists the public packages."""
    lines = [
        "# API",
        "",
        MADE,
        "",
        "Public names, package by package, from the docstrings. Everything else may change from",
        "one version to the next.",
        "",
        "| package | what it is for |",
        "|---|---|",
    ]
    for package in PACKAGES:
        about = _paragraph(import_module(package).__doc__)[0]
        lines.append(_row(f"[{package}]({package}.md)", about))
    return "\n".join([*lines, "", "```{toctree}", ":hidden:", "", *PACKAGES, "```"]) + "\n"


def api_page(package: str) -> str:
    """Return the page of a package: a list of its public names, and their docstrings."""
    module = import_module(package)
    names = [name for name in module.__all__ if not name.startswith("__")]
    lines = [f"# {package}", "", MADE, "", "```{eval-rst}", f".. automodule:: {package}"]
    lines += ["   :no-members:", "", f".. currentmodule:: {package}", "", ".. autosummary::", ""]
    homes = {name: _home(module, name) for name in names}
    for name, home in homes.items():
        if _kind(module, name) != "data":
            inner = home.removeprefix(f"{package}.")
            lines.append(f"   {name if home == package else f'~{inner}.{name}'}")
    for name in (name for name in names if homes[name] == package):
        kind = _kind(module, name)
        lines += ["", f".. py:data:: {name}" if kind == "data" else f".. auto{kind}:: {name}"]
        if kind == "data":
            lines += ["", *textwrap.indent(_text_of_data(package, name), "   ").splitlines()]
    return "\n".join([*lines, "```"]) + "\n"


def _home(module: types.ModuleType, name: str) -> str:
    """Return the package whose page describes a name: the narrowest that has it."""
    value = getattr(module, name)
    homes = [
        package
        for package in PACKAGES
        if getattr(import_module(package), name, None) is value
        and name in import_module(package).__all__
    ]
    return max(homes, key=len)


def _kind(module: types.ModuleType, name: str) -> str:
    value = getattr(module, name)
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    is_function = callable(value) and hasattr(value, "__name__") and get_origin(value) is None
    return "function" if is_function else "data"


def _text_of_data(package: str, name: str) -> str:
    """Return the text below the assignment of a public constant, wherever in its package it is."""
    for module_name, module in sorted(sys.modules.items()):
        if f"{module_name}.".startswith(f"{package}.") and hasattr(module, name):
            body = ast.parse(inspect.getsource(module)).body
            for node, below in itertools.pairwise(body):
                targets = node.targets if isinstance(node, ast.Assign) else [node]
                names = [ast.unparse(getattr(target, "target", target)) for target in targets]
                if name in names and isinstance(below, ast.Expr):
                    return inspect.cleandoc(str(ast.literal_eval(below.value)))
    raise LookupError(f"{package}.{name} has no text below it")


def _paragraph(text: str | None) -> list[str]:
    """Return the first paragraph of a docstring as one line, in Markdown."""
    first = " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split())
    return [re.sub(r":\w+:`~?([^`]+)`", r"`\1`", first).replace("``", "`")]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        print(f"Written: {path.relative_to(DOCS.parent)}")

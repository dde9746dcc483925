"""Parts of an environment chosen by keyword: a name, a name with parameters, or an object."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from aisim_gym.spec.wording import closest

PartT = TypeVar("PartT")


def make_part(
    kind: str,
    choice: str | Mapping[str, Any] | PartT,
    registry: Mapping[str, Callable[..., PartT]],
    *arguments: object,
    methods: Sequence[str],
) -> PartT:
    """Return the part that ``choice`` stands for.

    Args:
        kind: Keyword of the part, for messages.
        choice: A key of the registry; a mapping with ``name`` and parameters; or the part itself,
            returned as it is.
        registry: Builder of each named part.
        *arguments: What every named part is built with, before its parameters.
        methods: What an object must have to be such a part.

    Raises:
        ValueError: If the name is unknown or missing, or a parameter is out of range.
        TypeError: If a parameter is unknown or of a wrong type, or an object is no such part.
    """
    if not isinstance(choice, str | Mapping):
        if isinstance(choice, type) or not all(hasattr(choice, method) for method in methods):
            raise TypeError(
                f"{kind}: got {choice!r}, expected a name, a mapping with `name` and parameters, "
                f"or an object with {' and '.join(methods)}"
            )
        return choice
    parameters = {"name": choice} if isinstance(choice, str) else dict(choice)
    known = f"known: {', '.join(registry)}"
    if "name" not in parameters:
        raise ValueError(f"{kind}: got no `name` beside the parameters ({known})")
    name = parameters.pop("name")
    if not isinstance(name, str) or name not in registry:
        raise ValueError(f"unknown {kind} {name!r}{closest(str(name), registry)} ({known})")
    build = registry[name]
    _check_names(f"{kind} {name!r}", parameters, build, len(arguments))
    try:
        return build(*arguments, **parameters)
    except TypeError as error:
        raise TypeError(f"{kind} {name!r}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{kind} {name!r}: {error}") from error


def _check_names(
    part: str, given: Collection[str], build: Callable[..., object], num_first: int
) -> None:
    """Refuse parameters that the part does not have.

    Args:
        part: Kind and name, for the message.
        given: Names of the parameters.
        build: What builds the part.
        num_first: Arguments in front of the parameters, which the environment fills.
    """
    known = list(inspect.signature(build).parameters)[num_first:]
    for name in given:
        if name not in known:
            raise TypeError(
                f"{part}: unknown parameter {name!r}{closest(str(name), known)} "
                f"(known: {', '.join(known) or 'none'})"
            )


def has_direct_form(part: object, general: str, direct: str) -> bool:
    """Return whether a part's method ``direct`` is a quicker form of its method ``general``.

    Not if there is none, nor if a subclass or the object itself defines only ``general`` anew: what
    ``direct`` does is then no longer the same.
    """
    if general in getattr(part, "__dict__", {}):
        return False
    for cls in type(part).__mro__:
        if direct in vars(cls):
            return True
        if general in vars(cls):
            return False
    return False

"""Parts of an environment chosen by keyword: a name, a name with parameters, or an object."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from aisim_gym.spec.wording import closest

PartT = TypeVar("PartT")


def make_part(
    kind: str,
    choice: str | Mapping[str, Any] | PartT,
    registry: Mapping[str, Callable[..., PartT]],
    *arguments: object,
) -> PartT:
    """Return the part that ``choice`` stands for.

    Args:
        kind: Keyword of the part, for messages.
        choice: A key of the registry; a mapping with ``name`` and parameters; or the part itself,
            returned as it is.
        registry: Class of each named part.
        *arguments: What every named part is built with, before its parameters.

    Raises:
        ValueError: If the name is unknown.
        TypeError: If a parameter is unknown.
    """
    if not isinstance(choice, str | Mapping):
        return choice
    parameters = {"name": choice} if isinstance(choice, str) else dict(choice)
    name = cast(str, parameters.pop("name", None))
    if name not in registry:
        raise ValueError(
            f"unknown {kind} {name!r}{closest(str(name), registry)} (known: {', '.join(registry)})"
        )
    try:
        return registry[name](*arguments, **parameters)
    except TypeError as error:
        raise TypeError(f"{kind} {name!r}: {error}") from error


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

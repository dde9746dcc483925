"""Build observation, action and reward objects from a name, parameters or a custom object."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from aisim_gym.spec.wording import closest

ComponentT = TypeVar("ComponentT")


def make_component(
    kind: str,
    choice: str | Mapping[str, Any] | ComponentT,
    registry: Mapping[str, Callable[..., ComponentT]],
    *arguments: object,
    methods: Sequence[str],
) -> ComponentT:
    """Return the component described by ``choice``.

    Args:
        kind: Keyword of the component, for messages.
        choice: A key of the registry; a mapping with ``name`` and parameters; or the component
            itself, returned unchanged.
        registry: Builder of each named component.
        *arguments: Positional arguments of every named component, before its parameters.
        methods: Methods that an object must have.

    Raises:
        ValueError: If the name is unknown or missing, or a parameter is out of range.
        TypeError: If a parameter is unknown or has the wrong type, or an object is not such a
            component.
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
    component: str, given: Collection[str], build: Callable[..., object], num_first: int
) -> None:
    """Raise for unknown parameters of a component.

    Args:
        component: Kind and name, for the message.
        given: Names of the parameters.
        build: Class or function that builds the component.
        num_first: Number of leading arguments filled by the environment.
    """
    known = list(inspect.signature(build).parameters)[num_first:]
    for name in given:
        if name not in known:
            raise TypeError(
                f"{component}: unknown parameter {name!r}{closest(str(name), known)} "
                f"(known: {', '.join(known) or 'none'})"
            )

"""Observation, action and reward: a name, a name with parameters, or an object of one's own."""

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
    """Return the component that ``choice`` stands for.

    Args:
        kind: Keyword of the component, for messages.
        choice: A key of the registry; a mapping with ``name`` and parameters; or the component
            itself, returned as it is.
        registry: Builder of each named component.
        *arguments: What every named component is built with, before its parameters.
        methods: What an object must have to be such a component.

    Raises:
        ValueError: If the name is unknown or missing, or a parameter is out of range.
        TypeError: If a parameter is unknown or of a wrong type, or an object is no such
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
    """Refuse parameters that the component does not have.

    Args:
        component: Kind and name, for the message.
        given: Names of the parameters.
        build: What builds the component.
        num_first: Arguments in front of the parameters, which the environment fills.
    """
    known = list(inspect.signature(build).parameters)[num_first:]
    for name in given:
        if name not in known:
            raise TypeError(
                f"{component}: unknown parameter {name!r}{closest(str(name), known)} "
                f"(known: {', '.join(known) or 'none'})"
            )

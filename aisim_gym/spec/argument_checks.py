"""Checks of single arguments that belong to no model: what was given, what is allowed."""

from numbers import Integral, Real


def check_number(name: str, value: object, allowed: str) -> float:
    """Return ``value`` as float; its range is left to the caller.

    Args:
        name: Of the argument, for messages.
        value: What was given; a truth value is no number.
        allowed: What follows "expected a number", e.g. ``> 0 and finite``.

    Raises:
        TypeError: If it is no real number.
        ValueError: If it is too large for a float.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: got {value!r}, expected a number {allowed}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: got {value}, expected {allowed}") from None


def check_integer(name: str, value: object, allowed: str) -> int:
    """Return ``value`` as int; its range is left to the caller.

    Args:
        name: Of the argument, for messages.
        value: What was given; neither a truth value nor ``2.0`` is an integer.
        allowed: What follows "expected an integer", e.g. ``>= 1``; may be empty.

    Raises:
        TypeError: If it is no integer.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}: got {value!r}, expected an integer {allowed}".rstrip())
    return int(value)

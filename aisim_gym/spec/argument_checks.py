"""Checks of single arguments outside models; errors say what was given and what is allowed."""

from numbers import Integral, Real


def check_number(name: str, value: object, allowed: str) -> float:
    """Return ``value`` as float; the caller checks its range.

    Args:
        name: Name of the argument, for messages.
        value: The argument; booleans are rejected.
        allowed: Text after "expected a number", e.g. ``> 0 and finite``.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is too large for a float.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: got {value!r}, expected a number {allowed}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: got {value}, expected {allowed}") from None


def check_integer(name: str, value: object, allowed: str) -> int:
    """Return ``value`` as int; the caller checks its range.

    Args:
        name: Name of the argument, for messages.
        value: The argument; booleans and floats such as ``2.0`` are rejected.
        allowed: Text after "expected an integer", e.g. ``>= 1``; may be empty.

    Raises:
        TypeError: If it is not an integer.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}: got {value!r}, expected an integer {allowed}".rstrip())
    return int(value)

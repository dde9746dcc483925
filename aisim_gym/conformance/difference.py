"""Find the first difference between two values, with the tolerances of golden files.

Counts, ids, strings and orders must be equal, floats within 1e-9 relative.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

RELATIVE = 1e-9

ABSOLUTE_DEVIATION = 1e-9
"""Absolute tolerance for variances and standard deviations. If all values are equal, the exact
result is 0, but rounding leaves errors (1e-14 observed) that no relative tolerance covers."""


class Difference(NamedTuple):
    """The first place where a run differs from the recorded one.

    Attributes:
        place: Object compared: ``tick 12``, ``request row 3``, ``summary``, ``operation 4``,
            ``run``.
        field: Path of the field in it.
        got: Value of our run.
        expected: Value in the golden file.
    """

    place: str
    field: str
    got: Any
    expected: Any

    def __str__(self) -> str:
        """Return the difference in one line."""
        subject = f"{self.place} {self.field}" if self.field else self.place
        return f"{subject}: got {_shown(self.got)}, expected {_shown(self.expected)}"


class _Absent:
    """Marks a missing key or element."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()


def first_difference(place: str, got: Any, expected: Any, field: str = "") -> Difference | None:
    """Return the first difference between two values as read from JSON, depth first, or None.

    Types matter: 1 and 1.0 differ, as do a missing key and a null.

    Args:
        place: Object compared, for the result.
        got: Our value.
        expected: The recorded value.
        field: Path of both in ``place``; its last name selects the tolerance of floats.
    """
    return next(_differences(place, got, expected, field), None)


def _differences(place: str, got: Any, expected: Any, field: str) -> Iterator[Difference]:
    if isinstance(got, dict) and isinstance(expected, dict):
        for name, value in expected.items():
            path = f"{field}.{name}" if field else name
            yield from _differences(place, got.get(name, ABSENT), value, path)
        for name in got:
            if name not in expected:
                yield Difference(place, f"{field}.{name}" if field else name, got[name], ABSENT)
    elif isinstance(got, list) and isinstance(expected, list):
        for index, value in enumerate(expected):
            ours = got[index] if index < len(got) else ABSENT
            yield from _differences(place, ours, value, f"{field}[{index}]")
        if len(got) > len(expected):
            index = len(expected)
            yield Difference(place, f"{field}[{index}]", got[index], ABSENT)
    elif not _agree(field.rpartition(".")[2], got, expected):
        yield Difference(place, field, got, expected)


def _agree(name: str, got: Any, expected: Any) -> bool:
    if type(got) is not type(expected):
        return False
    if isinstance(expected, float):
        absolute = ABSOLUTE_DEVIATION if name.startswith(("var_", "std_")) else 0.0
        return math.isclose(got, expected, rel_tol=RELATIVE, abs_tol=absolute)
    return bool(got == expected)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:197]}..."

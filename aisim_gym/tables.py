"""Tables: NumPy record arrays whose row type is written once, for Numba and for type checkers.

A row type is a ``Protocol`` whose annotations carry the stored type, for example
``free_blocks: I8``. Checkers read ``int``; :func:`row_dtype` reads ``numpy.int64``. Tables are
``recarray`` views, so that ``table[i].field`` works both compiled and as plain Python.
"""

from typing import Annotated, Any, Protocol, TypeVar, cast, get_type_hints, overload

import numpy as np
from numpy.typing import NDArray

I1 = Annotated[int, np.int8]
I4 = Annotated[int, np.int32]
I8 = Annotated[int, np.int64]
F8 = Annotated[float, np.float64]

Row = TypeVar("Row")
Row_co = TypeVar("Row_co", covariant=True)


class Table(Protocol[Row_co]):
    """A record array: an integer index gives a row, a field name gives a column."""

    @overload
    def __getitem__(self, key: int) -> Row_co: ...
    @overload
    def __getitem__(self, key: str) -> NDArray[Any]: ...
    def __len__(self) -> int: ...  # noqa: D105


def row_dtype(row_type: type) -> np.dtype[np.void]:
    """Return the aligned structured dtype that the annotations of ``row_type`` describe.

    Raises:
        TypeError: If a field has no stored type.
    """
    if row_type not in _dtypes:
        _dtypes[row_type] = _make_dtype(row_type)
    return _dtypes[row_type]


_dtypes: dict[type, np.dtype[np.void]] = {}


def _make_dtype(row_type: type) -> np.dtype[np.void]:
    fields: list[tuple[str, Any]] = []
    for name, hint in get_type_hints(row_type, include_extras=True).items():
        stored = getattr(hint, "__metadata__", ())
        if not stored:
            raise TypeError(f"{row_type.__name__}.{name}: no stored type, use I1, I4, I8 or F8")
        fields.append((name, stored[0]))
    # A recarray makes records of other rows, at every view.
    return np.dtype((np.record, np.dtype(fields, align=True)))


def make_table(row_type: type[Row], count: int) -> Table[Row]:
    """Return a table of ``count`` zeroed rows."""
    return cast(Table[Row], np.zeros(count, row_dtype(row_type)).view(np.recarray))


def copy_table(table: Table[Row]) -> Table[Row]:
    """Return a copy of ``table``."""
    return grow_table(table, len(table))


def grow_table(table: Table[Row], count: int) -> Table[Row]:
    """Return a copy of ``table`` with ``count`` rows, the new ones zeroed.

    Raises:
        ValueError: If ``count`` is smaller than the table.
    """
    old = cast(NDArray[np.void], table)
    if count < len(old):
        raise ValueError(f"count: got {count}, expected at least {len(old)}")
    grown = np.zeros(count, old.dtype)
    grown[: len(old)] = old
    return cast(Table[Row], grown.view(np.recarray))

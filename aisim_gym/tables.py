"""Tables: NumPy record arrays with a row type declared once, for Numba and type checkers.

A row type is a ``Protocol`` whose annotations carry the stored type, for example
``free_blocks: I8``. Checkers read ``int``; :func:`row_dtype` reads ``numpy.int64``. Tables are
``recarray`` views, so that ``table[i].field`` works both compiled and as plain Python.

In the checked build (``NUMBA_BOUNDSCHECK=1``) a guard area with a known pattern follows every
table. It reveals writes past the end of a table that escape the index checks.
"""

import math
from typing import Annotated, Any, Protocol, TypeVar, cast, get_type_hints, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from aisim_gym.numba_adapter import SETTINGS

B1 = Annotated[bool, np.bool_]
I1 = Annotated[int, np.int8]
I4 = Annotated[int, np.int32]
I8 = Annotated[int, np.int64]
F8 = Annotated[float, np.float64]

Row = TypeVar("Row")
Row_co = TypeVar("Row_co", covariant=True)

IS_CHECKED = bool(SETTINGS.BOUNDSCHECK) and not SETTINGS.DISABLE_JIT
"""Whether this is the checked build; not needed in plain Python, where NumPy checks indexes."""

_GUARD_BYTES = 4096
_GUARD_PATTERN = 0xA5


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
            raise TypeError(f"{row_type.__name__}.{name}: no stored type, use B1, I1, I4, I8 or F8")
        fields.append((name, stored[0]))
    # A recarray converts other row types to records at every view.
    return np.dtype((np.record, np.dtype(fields, align=True)))


def make_table(row_type: type[Row], count: int) -> Table[Row]:
    """Return a table of ``count`` zeroed rows."""
    return cast(Table[Row], make_array(row_dtype(row_type), count))


def make_array(dtype: DTypeLike, *shape: int) -> NDArray[Any]:
    """Return a zeroed array, a record array for a structured type."""
    stored = dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)
    if IS_CHECKED:
        num_bytes = math.prod(shape) * stored.itemsize
        memory = np.zeros(num_bytes + _GUARD_BYTES, np.uint8)
        memory[num_bytes:] = _GUARD_PATTERN
        array: NDArray[Any] = memory[:num_bytes].view(stored).reshape(shape)
    else:
        array = np.zeros(shape, stored)
    return array.view(np.recarray) if stored.names else array


def copy_table(table: Table[Row]) -> Table[Row]:
    """Return a copy of ``table``."""
    return cast(Table[Row], copy_array(cast(NDArray[Any], table)))


def copy_array(array: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of an array or a table."""
    if IS_CHECKED:
        return grow_array(array, len(array))
    return array.copy()


def grow_table(table: Table[Row], count: int) -> Table[Row]:
    """Return a copy of ``table`` with ``count`` rows, the new ones zeroed.

    Raises:
        ValueError: If ``count`` is smaller than the table.
    """
    return cast(Table[Row], grow_array(cast(NDArray[Any], table), count))


def grow_array(array: NDArray[Any], count: int, axis: int = 0) -> NDArray[Any]:
    """Return a copy with ``count`` elements along an axis, the new ones zeroed.

    Raises:
        ValueError: If ``count`` is smaller than the array.
    """
    if count < array.shape[axis]:
        raise ValueError(f"count: got {count}, expected at least {array.shape[axis]}")
    shape = list(array.shape)
    shape[axis] = count
    grown = make_array(array.dtype, *shape)
    np.asarray(grown)[tuple(map(slice, array.shape))] = array
    return grown


def is_damaged(array: NDArray[Any]) -> bool:
    """Return whether the guard area of a table is overwritten; False outside a checked build."""
    if not IS_CHECKED:
        return False
    memory = array
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    guard = memory[array.nbytes :]
    return len(guard) != _GUARD_BYTES or bool((guard != _GUARD_PATTERN).any())

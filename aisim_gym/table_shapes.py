"""What a table of a run has rows for, and how it grows: declared beside its type.

``World`` (:mod:`aisim_gym.fleet.world`) annotates every table with its shape; making, growing,
copying and saving the tables of a run derive from these declarations.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self, get_args, get_origin, get_type_hints

import numpy as np

from aisim_gym.tables import Table, row_dtype


@dataclass(frozen=True)
class Per:
    """So many rows for each thing of a kind, and some more; all tables of a kind grow together.

    Attributes:
        kind: What there are rows for: a worker, a rank, a request, …
        times: Rows for each.
        plus: Rows besides.
        is_optional: Whether the table may be left out: then it has no rows, and never will.
    """

    kind: str
    times: int = 1
    plus: int = 0
    is_optional: bool = False

    def __mul__(self, times: int) -> Self:
        """Return the same with more rows for each."""
        return replace(self, times=self.times * times)

    def __add__(self, plus: int) -> Self:
        """Return the same with more rows besides."""
        return replace(self, plus=self.plus + plus)

    def length(self, count: int) -> int:
        """Return the rows for ``count`` things."""
        return self.times * count + self.plus

    def count(self, length: int) -> int:
        """Return for how many things a table of so many rows has room."""
        return (length - self.plus) // self.times


@dataclass(frozen=True)
class Growing:
    """As many rows as a run turns out to need.

    Attributes:
        first: Rows at the start.
        link: ``(old, grown, arena)``: puts the new rows of a table that was ``old`` (without rows
            at the start) into its free list.
        is_hashed: Whether the number of rows must be a power of two.
    """

    first: int
    link: Callable[[Any, Any, Any], None] | None = None
    is_hashed: bool = False

    def grown(self, length: int, amount: int) -> int:
        """Return how many rows a table of ``length`` gets that needs at least ``amount`` more."""
        wanted = 2 * length + amount
        return 1 << (wanted - 1).bit_length() if self.is_hashed else wanted


@dataclass(frozen=True)
class Given:
    """What a run is started with; it never grows.

    Attributes:
        is_shared: Whether nobody writes to it, so that copies of a run share it.
    """

    is_shared: bool = False


@dataclass(frozen=True)
class Derived:
    """What follows from other tables: neither copied nor saved."""


Axis = int | Per | Growing | Given | Derived


@dataclass(frozen=True)
class Declaration:
    """One table.

    Attributes:
        name: Of the field.
        number: Its place among the tables.
        dtype: Of its elements or rows.
        axes: Its shape.
        is_row: Whether the field is the row of a table with a single one.
    """

    name: str
    number: int
    dtype: np.dtype[Any]
    axes: tuple[Axis, ...]
    is_row: bool

    def axis_per(self, kind: str) -> int | None:
        """Return the axis that has elements per thing of a kind, None without one."""
        for axis, length in enumerate(self.axes):
            if isinstance(length, Per) and length.kind == kind:
                return axis
        return None

    @property
    def is_kept(self) -> bool:
        """Whether it is part of the state of a run."""
        return not isinstance(self.axes[0], Derived)


def declarations(cls: type) -> dict[str, Declaration]:
    """Return what the annotations of a dataclass of tables say, by name, in order.

    Raises:
        TypeError: If a field has no shape.
    """
    hints = get_type_hints(cls, include_extras=True)
    declared = {}
    for number, field in enumerate(fields(cls)):
        hint = hints[field.name]
        if not getattr(hint, "__metadata__", ()):
            raise TypeError(f"{cls.__name__}.{field.name}: no shape, use Annotated[…, shape]")
        kind, shape = hint.__origin__, hint.__metadata__[0]
        axes = shape if isinstance(shape, tuple) else (shape,)
        is_row = get_origin(kind) is None
        declared[field.name] = Declaration(field.name, number, _stored(kind), axes, is_row)
    return declared


def _stored(kind: Any) -> np.dtype[Any]:
    """Return the dtype of ``Table[Row]``, of tables of tables, ``NDArray[…]``, or of a row."""
    while get_origin(kind) is Table:
        (kind,) = get_args(kind)
    if get_origin(kind) is None:
        return row_dtype(kind)
    (dtype,) = get_args(get_args(kind)[1])
    stored: np.dtype[Any] = np.dtype(dtype)
    return stored

"""Shapes and growth of the tables of a run, declared beside their types.

``World`` (:mod:`aisim_gym.fleet.world`) annotates every table with its shape. Creating, growing,
copying and saving the tables of a run derive from these declarations.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self, get_args, get_origin, get_type_hints

import numpy as np

from aisim_gym.tables import Table, row_dtype


@dataclass(frozen=True)
class Per:
    """Rows per entity of a kind, plus a constant; all tables of a kind grow together.

    Attributes:
        kind: Kind of entity: a worker, a rank, a request, …
        times: Rows per entity.
        plus: Additional rows.
        is_optional: Whether the table may be left out; it then has no rows throughout the run.
    """

    kind: str
    times: int = 1
    plus: int = 0
    is_optional: bool = False

    def __mul__(self, times: int) -> Self:
        """Return a shape with ``times`` as many rows per entity."""
        return replace(self, times=self.times * times)

    def __add__(self, plus: int) -> Self:
        """Return a shape with ``plus`` additional rows."""
        return replace(self, plus=self.plus + plus)

    def length(self, count: int) -> int:
        """Return the number of rows for ``count`` entities."""
        return self.times * count + self.plus

    def count(self, length: int) -> int:
        """Return the number of entities that fit into ``length`` rows."""
        return (length - self.plus) // self.times


@dataclass(frozen=True)
class Growing:
    """Rows that grow on demand during a run.

    Attributes:
        first: Initial number of rows.
        link: ``(old, grown, arena)``: adds the new rows of a table grown from ``old`` (empty at the
            start) to its free list.
        is_hashed: Whether the number of rows must be a power of two.
    """

    first: int
    link: Callable[[Any, Any, Any], None] | None = None
    is_hashed: bool = False

    def grown(self, length: int, amount: int) -> int:
        """Return the new length of a table that needs at least ``amount`` more rows."""
        if self.is_hashed:
            return 1 << (max(2 * length, length + amount) - 1).bit_length()
        return 2 * length + amount


@dataclass(frozen=True)
class Given:
    """A table given at the start of a run; it never grows.

    Attributes:
        is_shared: Whether it is read-only, so that copies of a run share it.
    """

    is_shared: bool = False


@dataclass(frozen=True)
class Derived:
    """A table derived from other tables, neither copied nor saved."""


Axis = int | Per | Growing | Given | Derived


@dataclass(frozen=True)
class Declaration:
    """Declaration of one table.

    Attributes:
        name: Field name.
        number: Index among the tables.
        dtype: Dtype of its elements or rows.
        axes: Shape.
        is_row: Whether the field is the only row of a one-row table.
    """

    name: str
    number: int
    dtype: np.dtype[Any]
    axes: tuple[Axis, ...]
    is_row: bool

    def axis_per(self, kind: str) -> int | None:
        """Return the axis with elements per entity of a kind, None if there is none."""
        for axis, length in enumerate(self.axes):
            if isinstance(length, Per) and length.kind == kind:
                return axis
        return None

    @property
    def is_kept(self) -> bool:
        """Whether it is part of the state of a run."""
        return not isinstance(self.axes[0], Derived)


def declarations(cls: type) -> dict[str, Declaration]:
    """Return the declarations in the annotations of a dataclass of tables, by name, in order.

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
    """Return the dtype of ``Table[Row]``, of nested tables, of ``NDArray[…]`` or of a row."""
    while get_origin(kind) is Table:
        (kind,) = get_args(kind)
    if get_origin(kind) is None:
        return row_dtype(kind)
    (dtype,) = get_args(get_args(kind)[1])
    stored: np.dtype[Any] = np.dtype(dtype)
    return stored

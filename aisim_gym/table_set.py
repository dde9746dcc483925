"""Table sets: many tables handed to compiled code as one pointer.

In Numba an array is seven machine words, and a tuple of arrays is copied at every call. A table
set is the address of a list of (address, rows, columns), one per table. Compiled code reads a table
from the list where it uses it. Kernels access the tables as attributes, as plain Python does.
"""

import dataclasses
import hashlib
from typing import Any

import numba
import numba.extending
import numpy as np

from aisim_gym.numba_adapter import WORD, WORDS, MembersType, offer_members

_extending: Any = numba.extending


class TableSet:
    """Base of frozen dataclasses whose fields are tables, arrays, and rows of one-row tables.

    Fields never change. Arrays are C-contiguous, and compiled code may write to them. All instances
    of one class have equal table types.
    """

    def __post_init__(self) -> None:
        """Store the addresses of the tables."""
        numbers: list[int] = []
        for name in _field_names(type(self)):
            array = np.asarray(getattr(self, name))
            assert array.flags.c_contiguous, name
            numbers += (array.ctypes.data, *array.shape, 0, 0)[:WORDS]
        words = np.array(numbers, np.int64)
        object.__setattr__(self, "_words", words)
        object.__setattr__(self, "address", words.ctypes.data)


_names: dict[type, tuple[str, ...]] = {}


def _field_names(cls: type) -> tuple[str, ...]:
    if cls not in _names:
        _names[cls] = tuple(field.name for field in dataclasses.fields(cls))
    return _names[cls]


class TableSetType(MembersType):
    """Numba's type of a table set: its class, and the types of its tables in order."""

    def __init__(self, instance_class: type[TableSet], example: TableSet) -> None:
        """Name the type by a short digest, because the name is part of every kernel's name."""
        tables = {
            field.name: getattr(example, field.name)
            for field in dataclasses.fields(example)  # type: ignore[arg-type]
        }
        self.instance_class = instance_class
        self.members = tuple((name, numba.typeof(table)) for name, table in tables.items())
        self.dtypes = tuple(np.asarray(table).dtype for table in tables.values())
        digest = hashlib.sha256(repr(self.members).encode()).hexdigest()[:16]
        super().__init__(name=f"{instance_class.__module__}.{instance_class.__name__}({digest})")


_TYPES: dict[type[TableSet], TableSetType] = {}


@_extending.typeof_impl.register(TableSet)
def _type_of(tables: TableSet, context: Any) -> TableSetType:
    cls = type(tables)
    if cls not in _TYPES:
        _TYPES[cls] = TableSetType(cls, tables)
        offer_members(_TYPES[cls])
    return _TYPES[cls]


@_extending.register_model(TableSetType)
class _Model(_extending.models.PrimitiveModel):
    def __init__(self, manager: Any, tables_type: TableSetType) -> None:
        super().__init__(manager, tables_type, WORD.as_pointer())


@_extending.unbox(TableSetType)
def _unbox(tables_type: TableSetType, tables: Any, c: Any) -> Any:
    attribute = c.pyapi.object_getattr_string(tables, "address")
    address = c.pyapi.long_as_longlong(attribute)
    c.pyapi.decref(attribute)
    return _extending.NativeValue(c.builder.inttoptr(address, WORD.as_pointer()))

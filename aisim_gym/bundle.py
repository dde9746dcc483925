"""Bundles: many tables handed to compiled code as one pointer.

To Numba an array is seven machine words, and a tuple of arrays is copied whole at every call. A
bundle is the address of a list of (address, rows, columns), one per table; compiled code reads a
table from there where it uses it. Kernels see the tables as attributes, as plain Python does.
"""

import dataclasses
from typing import Any

import numba
import numba.extending
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing import templates
from numba.np import arrayobj

_extending: Any = numba.extending
_arrays: Any = arrayobj
_AttributeTemplate: Any = templates.AttributeTemplate

_WORDS = 3
"""Per table: address, rows, columns."""

_WORD = ir.IntType(64)


class Bundle:
    """Base of frozen dataclasses whose fields are tables, arrays, and rows of one-row tables.

    Fields never change; arrays are C-contiguous, and compiled code may write to them. All objects
    of one class have the same types of tables.
    """

    def __post_init__(self) -> None:
        """Note where the tables are."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        words = np.zeros(_WORDS * len(fields), np.int64)
        for i, field in enumerate(fields):
            array = np.asarray(getattr(self, field.name))
            assert array.flags.c_contiguous, field.name
            words[_WORDS * i] = array.ctypes.data
            words[_WORDS * i + 1 : _WORDS * i + 1 + array.ndim] = array.shape
        object.__setattr__(self, "_words", words)
        object.__setattr__(self, "address", words.ctypes.data)


class BundleType(types.Type):
    """Numba's type of a bundle: its class, and the types of its tables in order."""

    def __init__(self, instance_class: type[Bundle], members: tuple[tuple[str, Any], ...]) -> None:
        """Name the type by all it depends on."""
        self.instance_class = instance_class
        self.members = members
        text = ", ".join(f"{name}: {member}" for name, member in members)
        super().__init__(name=f"{instance_class.__module__}.{instance_class.__name__}({text})")

    def position(self, name: str) -> int:
        """Return the position of a table."""
        return [member for member, _ in self.members].index(name)


_TYPES: dict[type[Bundle], BundleType] = {}


@_extending.typeof_impl.register(Bundle)
def _type_of_bundle(bundle: Bundle, context: Any) -> BundleType:
    cls = type(bundle)
    if cls not in _TYPES:
        fields = dataclasses.fields(bundle)  # type: ignore[arg-type]
        members = tuple((f.name, numba.typeof(getattr(bundle, f.name))) for f in fields)
        _TYPES[cls] = BundleType(cls, members)
    return _TYPES[cls]


@_extending.register_model(BundleType)
class _BundleModel(_extending.models.PrimitiveModel):
    def __init__(self, manager: Any, bundle_type: BundleType) -> None:
        super().__init__(manager, bundle_type, _WORD.as_pointer())


@_extending.unbox(BundleType)
def _unbox_bundle(bundle_type: BundleType, bundle: Any, c: Any) -> Any:
    attribute = c.pyapi.object_getattr_string(bundle, "address")
    address = c.pyapi.long_as_longlong(attribute)
    c.pyapi.decref(attribute)
    return _extending.NativeValue(c.builder.inttoptr(address, _WORD.as_pointer()))


@_extending.infer_getattr
class _BundleAttribute(_AttributeTemplate):
    key = BundleType

    def generic_resolve(self, bundle_type: BundleType, name: str) -> Any:
        return dict(bundle_type.members).get(name)


@_extending.lower_getattr_generic(BundleType)
def _get_table(context: Any, builder: Any, bundle_type: BundleType, bundle: Any, name: str) -> Any:
    position = bundle_type.position(name)
    table_type = bundle_type.members[position][1]

    def word(k: int) -> Any:
        place = builder.gep(bundle, [ir.Constant(ir.IntType(32), _WORDS * position + k)])
        loaded = builder.load(place)
        # Nothing that compiled code does changes it: the optimizer may read it once.
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    if isinstance(table_type, types.Record):
        return builder.inttoptr(word(0), context.get_value_type(table_type))
    array = _arrays.make_array(table_type)(context, builder)
    shape = [word(1 + axis) for axis in range(table_type.ndim)]
    itemsize = ir.Constant(_WORD, context.get_abi_sizeof(context.get_data_type(table_type.dtype)))
    strides = [itemsize]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    data = builder.inttoptr(word(0), array.data.type)
    _arrays.populate_array(array, data, shape, strides, itemsize, None)
    return array._getvalue()

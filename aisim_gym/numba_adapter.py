"""All uses of Numba beyond its documented interface; no other file depends on Numba internals.

The private symbols are listed in ``PRIVATE`` and looked up when this module is imported. If a
version of Numba lacks one, ``IS_COMPLETE`` is false, one warning names it, and kernels are compiled
by plain ``numba.njit(nogil=True)``: with equal results, but slower, and again in every process.

Purposes of the private symbols:

* **Only entry points become machine code.** Numba optimizes and translates every function together
  with all its callees. Kernels are called only by other kernels, so here this is done once, for the
  whole entry point. Compilation takes two thirds of the time, and a replay is 7 % faster.
* **Nearly every call is inlined.** Kernels are small and call each other some hundred times per
  request. Inlining makes replays 20 to 25 % faster and compilation a quarter longer. The threshold
  is an LLVM option of the whole process. It is set while an entry point is optimized, under the
  compiler's lock. (``alwaysinline`` on kernels needs no option; docs/compiled-code.md describes its
  cost.)
* **Negative indexes do not wrap around.** A negative index is an error in a kernel, as is one that
  is too large (``NUMBA_BOUNDSCHECK=1`` finds both). Numba tests at every access whether to add the
  length. Kernels are lowered by a separate target context that treats indexes as unsigned, for
  which Numba omits the test; other compiled code in the process is unaffected.
* **Reference counting is off**, which makes replays 3.5 times faster.
* **Compiled code is cached** by ``kernel_cache``, compiled by one process for all.
* **Tables are read in place** by their addresses; see ``table_set``.
"""

import copy
import operator
import pickle
import types as python_types
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, cast

import numba
import numba.extending
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import config

PRIVATE = (
    "llvmlite.binding:set_option",
    "numba.core.base:BaseContext.__init__.cached_internal_func",
    "numba.core.caching:_Cache",
    "numba.core.caching:_Cache.load_overload",
    "numba.core.caching:_Cache.save_overload",
    "numba.core.codegen:CodeLibrary._finalized",
    "numba.core.codegen:CPUCodeLibrary.__init__._final_module",
    "numba.core.codegen:JITCodeLibrary",
    "numba.core.codegen:JITCodeLibrary._finalize_dynamic_globals",
    "numba.core.codegen:JITCodeLibrary._finalize_final_module",
    "numba.core.codegen:JITCodeLibrary._optimize_final_module",
    "numba.core.codegen:JITCodeLibrary._verify_declare_only_symbols",
    "numba.core.codegen:JITCodeLibrary.codegen",
    "numba.core.codegen:JITCodeLibrary.enable_object_caching",
    "numba.core.codegen:JITCodeLibrary.get_pointer_to_function",
    "numba.core.codegen:JITCodeLibrary.has_dynamic_globals",
    "numba.core.codegen:JITCPUCodegen.magic_tuple",
    "numba.core.codegen:JITCPUCodegen.set_env",
    "numba.core.compiler:Compiler",
    "numba.core.compiler:Compiler.compile_extra",
    "numba.core.compiler:CompilerBase.__init__.library",
    "numba.core.compiler:CompilerBase.__init__.targetctx",
    "numba.core.compiler:CompileResult._rebuild",
    "numba.core.compiler:CompileResult._reduce",
    "numba.core.compiler:CompileResult.fndesc",
    "numba.core.compiler:CompileResult.library",
    "numba.core.compiler:CompileResult.lifted",
    "numba.core.compiler_lock:global_compiler_lock",
    "numba.core.cpu:CPUContext",
    "numba.core.cpu:CPUContext.codegen",
    "numba.core.cpu:CPUContext.get_function",
    "numba.core.cpu:CPUContext.refresh",
    "numba.core.dispatcher:Dispatcher.__init__._cache",
    "numba.core.environment:lookup_environment",
    "numba.core.funcdesc:FunctionDescriptor.llvm_cfunc_wrapper_name",
    "numba.core.options:DefaultOptions._nrt",
    "numba.core.options:DefaultOptions.no_cfunc_wrapper",
    "numba.core.options:DefaultOptions.no_cpython_wrapper",
    "numba.core.registry:CPUDispatcher",
    "numba.core.serialize:dumps",
    "numba.core.typing.templates:AttributeTemplate",
    "numba.np.arrayobj:make_array",
    "numba.np.arrayobj:populate_array",
)
"""Private symbols as ``module:name``. A name after a function must occur in its code; it names
an attribute that exists only on instances."""


def _look_up(path: str) -> Any:
    """Return a private symbol; for a name in a function's code, that name.

    Raises:
        AttributeError: If it is missing. A missing module raises an ``ImportError``.
    """
    module, names = path.split(":")
    found = import_module(module)
    for name in names.split("."):
        if isinstance(found, python_types.FunctionType):
            if name not in found.__code__.co_names:
                raise AttributeError(name)
            return name
        found = getattr(found, name)
    return found


def _look_up_all() -> tuple[dict[str, Any], str | None]:
    """Return the symbols of ``PRIVATE`` found, and the first missing one."""
    found, missing = {}, None
    for path in PRIVATE:
        try:
            found[path] = _look_up(path)
        except (AttributeError, ImportError):
            missing = missing or path
    return found, missing


_found, MISSING = _look_up_all()

IS_COMPLETE = MISSING is None
"""Whether this version of Numba has all private symbols."""

if not IS_COMPLETE:
    warnings.warn(
        f"Numba {numba.__version__} lacks {MISSING}: kernels are compiled without it, which takes "
        "longer and is repeated in every process, and replays are slower; results are the same",
        RuntimeWarning,
        stacklevel=2,
    )

SETTINGS: Any = config
"""Numba's settings from ``NUMBA_...`` variables."""

_numba: Any = numba
_extending: Any = numba.extending


def _base(path: str) -> Any:
    """Return a private base class; if it is missing, the derived class is never instantiated."""
    return _found[path] if IS_COMPLETE else object


INLINING_THRESHOLD, LLVM_THRESHOLD = 5000, 250
"""Inlining thresholds in LLVM's cost units: for entry points, and the default at the optimization
level that Numba uses."""

_ENVIRONMENT = "_ZN08NumbaEnv"
"""Prefix of the variables through which compiled code finds its Python constants."""


# ------------------------------------------------------------------------------------- indexes


class _KernelContext(_base("numba.core.cpu:CPUContext")):  # type: ignore[misc]
    """Generates code for kernels as Numba does, but without wraparound of negative indexes."""

    def get_function(self, fn: Any, sig: Any, _firstcall: bool = True) -> Any:
        """Return the code generator of a call."""
        key = fn.get_impl_key(sig) if isinstance(fn, types.Callable) else fn
        if key is operator.getitem or key is operator.setitem:
            array, index, *values = sig.args
            unsigned = _unsigned(index) if isinstance(array, types.Array) else index
            if unsigned != index:
                taken = sig.replace(args=(array, unsigned, *values))
                return _IndexCast(self, super().get_function(key, taken, _firstcall), sig, taken)
        return super().get_function(fn, sig, _firstcall)


def _unsigned(index: Any) -> Any:
    """Return the unsigned type of an index, which Numba uses without a wraparound test."""
    is_integer, is_tuple = (isinstance(index, kind) for kind in (types.Integer, types.BaseTuple))
    if is_tuple:
        return types.Tuple([_unsigned(part) for part in index])
    return types.uintp if is_integer and index.signed else index


class _IndexCast:
    """Generates an array access by an index cast to unsigned."""

    def __init__(self, context: Any, generate: Any, given: Any, taken: Any) -> None:
        self._context = context
        self._generate = generate
        self._given = given
        self._taken = taken

    def __call__(self, builder: Any, args: Any, loc: Any = None) -> Any:
        array, index, *values = args
        cast_index = self._context.cast(builder, index, self._given.args[1], self._taken.args[1])
        return self._generate(builder, (array, cast_index, *values), loc)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generate, name)


_internal_functions: dict[Any, Any] = {}
"""Numba's internal functions compiled for kernels, separate from those of other code."""


def _kernel_context(usual: Any) -> Any:
    context = copy.copy(usual)
    context.__class__ = _KernelContext
    context.cached_internal_func = _internal_functions
    return context


# --------------------------------------------------------------------- kernels in an entry point


class _KernelCompiler(_base("numba.core.compiler:Compiler")):  # type: ignore[misc]
    """Compiles a kernel called only by other kernels."""

    def compile_extra(self, func: Callable[..., object]) -> Any:
        """Run the usual pipeline with a library that stops before machine code."""
        self.state.targetctx = _kernel_context(self.state.targetctx)
        self.state.library = _KernelLibrary(self.state.targetctx.codegen(), func.__qualname__)
        return super().compile_extra(func)


class _EntryCompiler(_base("numba.core.compiler:Compiler")):  # type: ignore[misc]
    """Compiles an entry point."""

    def compile_extra(self, func: Callable[..., object]) -> Any:
        """Run the usual pipeline with a library that inlines more calls."""
        self.state.targetctx = _kernel_context(self.state.targetctx)
        self.state.library = _EntryLibrary(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


class _EntryLibrary(_base("numba.core.codegen:JITCodeLibrary")):  # type: ignore[misc]
    """The code of an entry point and all its kernels."""

    def _optimize_final_module(self) -> None:
        _set_inlining_threshold(INLINING_THRESHOLD)
        try:
            super()._optimize_final_module()
        finally:
            _set_inlining_threshold(LLVM_THRESHOLD)


def _set_inlining_threshold(threshold: int) -> None:
    """Set LLVM's inlining threshold for the whole process; the caller holds the compiler's lock.

    The per-module setting is unusable because llvmlite truncates it to 8 bits. LLVM's attribute
    ``function-inline-threshold`` inlines less.
    """
    _found["llvmlite.binding:set_option"]("aisim-gym", f"-inline-threshold={threshold}")


class _KernelLibrary(_base("numba.core.codegen:JITCodeLibrary")):  # type: ignore[misc]
    """The code of one kernel as LLVM IR, without machine code."""

    @property
    def codegen(self) -> Any:
        """Return a substitute for Numba's code generator; a kernel has no address for constants."""
        return _Unset

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, since there is no machine code."""
        return 0

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class _Unset:
    @staticmethod
    def set_env(name: str, values: Any) -> None:
        """Do nothing; ``_set_constants`` sets them."""


def _set_constants(compiled: Any) -> None:
    """Set the Python constants of all kernels in the code of an entry point.

    Args:
        compiled: Numba's newly compiled ``CompileResult``. For a loaded one this does nothing,
            because Numba sets the constants itself.
    """
    library = compiled.library
    for variable in library._final_module.global_variables:
        values = None
        if variable.name.startswith(_ENVIRONMENT):
            values = _found["numba.core.environment:lookup_environment"](variable.name)
        if values is not None:
            library.codegen.set_env(variable.name, values)


_OPTIONS: dict[str, Any] = {"nogil": True}
_KERNEL_OPTIONS: dict[str, Any] = _OPTIONS
if IS_COMPLETE:
    _OPTIONS = {**_OPTIONS, "_nrt": False}
    _KERNEL_OPTIONS = {
        **_OPTIONS,
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
        "pipeline_class": _KernelCompiler,
    }


def offer_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make ``function`` callable from compiled code; Python calls it unchanged."""
    register: Any = _extending.register_jitable
    return cast(Callable[..., Any], register(**_KERNEL_OPTIONS)(function))


def offer_choice(call: Callable[..., Any], choose: Callable[..., Any]) -> None:
    """Make ``call`` stand for the kernel returned by ``choose`` in compiled code."""
    overload: Any = _extending.overload
    overload(call, strict=False, jit_options=_KERNEL_OPTIONS)(choose)


# --------------------------------------------------------------------------- cached entry points


class CodeStore(Protocol):
    """Storage of the compiled code of one function."""

    is_enabled: bool

    def load(
        self, key: tuple[str, ...], argument_types: Any, rebuild: Callable[[bytes], Any]
    ) -> Any:
        """Return the stored code after ``rebuild``, or None if it must be compiled."""

    def save(self, key: tuple[str, ...], code: bytes | None) -> None:
        """Save newly compiled code; ``code`` is None if it cannot be saved."""

    def end_turn(self) -> None:
        """Release the lock, so that processes waiting for the same code continue."""


class StoredDispatcher(_base("numba.core.registry:CPUDispatcher")):  # type: ignore[misc]
    """A function that Numba compiles on first use, with its code in a ``CodeStore``.

    Derived classes define the store in ``make_store``.
    """

    def __init__(self, py_func: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        """Prepare for compilation; see ``numba.njit`` for the options."""
        super().__init__(py_func, *args, **kwargs)
        self._store = self.make_store(py_func)
        self._cache = _StoreCache(self._store)

    def make_store(self, function: Callable[..., object]) -> CodeStore:
        """Return the store for the code of ``function``."""
        raise NotImplementedError

    def compile(self, sig: Any) -> Any:
        """Load the code for these argument types from the store, or compile it."""
        with _found["numba.core.compiler_lock:global_compiler_lock"]:
            try:
                address = super().compile(sig)
            finally:
                self._store.end_turn()
            for compiled in self.overloads.values():
                _set_constants(compiled)
            return address


class _StoreCache(_base("numba.core.caching:_Cache")):  # type: ignore[misc]
    """The cache that Numba queries before it compiles a function and updates afterwards."""

    def __init__(self, store: CodeStore) -> None:
        self._store = store

    @property
    def cache_path(self) -> str:
        return ""

    def enable(self) -> None:
        self._store.is_enabled = True

    def disable(self) -> None:
        self._store.is_enabled = False

    def flush(self) -> None:
        pass  # stored code never becomes stale

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for these argument types; None if this process must compile it."""
        target_context.refresh()
        rebuild = _found["numba.core.compiler:CompileResult._rebuild"]
        return self._store.load(
            _key(sig, target_context.codegen()),
            sig,
            lambda code: rebuild(target_context, *pickle.loads(code)),
        )

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save the code for these argument types."""
        code = None
        if not data.lifted and not data.library.has_dynamic_globals:
            code = _found["numba.core.serialize:dumps"](data._reduce())
        self._store.save(_key(sig, data.codegen), code)


def _key(sig: Any, codegen: Any) -> tuple[str, ...]:
    """Return the dependencies of code besides its source and Numba's settings."""
    return (str(sig), *map(str, codegen.magic_tuple()))


def make_entry_point(
    function: Callable[..., Any], dispatcher: type[StoredDispatcher]
) -> Callable[..., Any]:
    """Return ``function`` as an entry point, compiled on first use together with its kernels."""
    if not IS_COMPLETE:
        return cast(Callable[..., Any], _numba.njit(**_OPTIONS)(function))
    options = {"nopython": True, "boundscheck": None, **_OPTIONS}
    entry = dispatcher(function, targetoptions=options, pipeline_class=_EntryCompiler)
    return cast(Callable[..., Any], entry)


def native_address(entry: Any, argument: object) -> int:
    """Return the address of the machine code of an entry point with one argument.

    The code takes the argument in its compiled representation and returns an int64. Requires
    ``IS_COMPLETE``.
    """
    argument_types = (_numba.typeof(argument),)
    entry.compile(argument_types)
    compiled = entry.overloads[argument_types]
    assert compiled.signature.return_type == types.int64, compiled.signature
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name))


# ---------------------------------------------------------------------------- tables by address

WORDS = 3
"""Words per table in a list of tables: address, rows, columns."""

WORD = ir.IntType(64)


class MembersType(types.Type):
    """Numba's type of a list of tables, represented by the address of its words.

    Attributes:
        members: Name and type of each table, in order.
        dtypes: NumPy dtype of each table's elements.
    """

    members: tuple[tuple[str, Any], ...]
    dtypes: tuple[np.dtype[Any], ...]


class _MemberTemplate(_base("numba.core.typing.templates:AttributeTemplate")):  # type: ignore[misc]
    key = MembersType

    def generic_resolve(self, members_type: MembersType, name: str) -> Any:
        return dict(members_type.members).get(name)


def _generate_member(
    context: Any, builder: Any, members_type: MembersType, words: Any, name: str
) -> Any:
    position = [member for member, _ in members_type.members].index(name)
    table_type = members_type.members[position][1]

    def word(k: int) -> Any:
        place = builder.gep(words, [ir.Constant(ir.IntType(32), WORDS * position + k)])
        loaded = builder.load(place)
        # Compiled code never changes it, so the optimizer may read it once.
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    if isinstance(table_type, types.Record):
        return builder.inttoptr(word(0), context.get_value_type(table_type))
    array = _found["numba.np.arrayobj:make_array"](table_type)(context, builder)
    shape = [word(1 + axis) for axis in range(table_type.ndim)]
    itemsize = ir.Constant(WORD, context.get_abi_sizeof(context.get_data_type(table_type.dtype)))
    strides = [itemsize]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    data = builder.inttoptr(word(0), array.data.type)
    populate = _found["numba.np.arrayobj:populate_array"]
    populate(array, data, shape, strides, itemsize, None)
    return array._getvalue()


if IS_COMPLETE:
    _extending.infer_getattr(_MemberTemplate)
    _extending.lower_getattr_generic(MembersType)(_generate_member)


def offer_members(members_type: MembersType) -> None:
    """Make the tables of a type readable by name in compiled code."""
    if IS_COMPLETE:
        return  # the template above handles all types
    for name, _ in members_type.members:
        if name not in _offered:
            _offered.add(name)
            _extending.overload_attribute(MembersType, name)(_chooser(name))


_offered: set[str] = set()


def _chooser(name: str) -> Callable[[Any], Any]:
    return lambda words: _member_reader(words, name)


def _member_reader(members_type: MembersType, name: str) -> Any:
    """Return a reader of a table by Numba's documented means; None if the type lacks the table."""
    names = [member for member, _ in members_type.members]
    if name not in names:
        return None
    position = names.index(name)
    table_type, dtype = members_type.members[position][1], members_type.dtypes[position]
    start = WORDS * position
    carray = _numba.carray
    if isinstance(table_type, types.Record):
        return lambda words: carray(_table_at(words, start), 1, dtype)[0]
    if table_type.ndim == 1:
        return lambda words: carray(_table_at(words, start), _word_at(words, start + 1), dtype)
    return lambda words: carray(
        _table_at(words, start), (_word_at(words, start + 1), _word_at(words, start + 2)), dtype
    )


def intrinsic(generator: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a code generator into an intrinsic, called without its first parameter."""
    return cast(Callable[..., Any], _extending.intrinsic(generator))


@intrinsic
def _word_at(typing_context: Any, words: Any, position: Any) -> Any:
    """Return a word of a list of tables."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.gep(args[0], [args[1]]))

    return types.int64(words, types.int64), generate


@intrinsic
def _table_at(typing_context: Any, words: Any, position: Any) -> Any:
    """Return a word of a list of tables as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = builder.load(builder.gep(args[0], [args[1]]))
        return builder.inttoptr(word, context.get_value_type(types.voidptr))

    return types.voidptr(words, types.int64), generate


@intrinsic
def take_next(typing_context: Any, counter: Any) -> Any:
    """Return ``counter[0]`` and atomically add 1 to it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        make_array = _found["numba.np.arrayobj:make_array"]
        array = make_array(signature.args[0])(context, builder, args[0])
        return builder.atomic_rmw("add", array.data, ir.Constant(WORD, 1), "monotonic")

    return types.int64(counter), generate

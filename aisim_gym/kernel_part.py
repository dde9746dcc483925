"""How parts of compiled code, and entry points with all their parts inside, are compiled.

Parts are compiled only as far as it takes to become part of an entry point.

Numba optimizes every function together with all it calls, and makes machine code of it, although
nobody calls a part from outside: for a call tree as deep as a replay's that was a third of the
compilation (23.5 instead of 14.6 s for vLLM). Here only the whole is optimized, which also made it
7 % faster.

In an entry point nearly everything is inlined: kernels are small and call each other some hundred
times per request. That made replays 20 to 25 % faster, for a quarter more time to compile.

Indexes are never counted from the end: a negative one is a mistake here, like one that is too large
(``NUMBA_BOUNDSCHECK=1`` finds both). Numba asks at every access whether it has to add the length.
Kernels call no NumPy function that Numba has an own version of: its parts would be compiled under
the same rule, also for others in this process.

A compiler class of one's own is an extension point of Numba; the libraries below override private
methods.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding
from numba import types
from numba.core import codegen, compiler, environment
from numba.np import arrayobj

_LLVM: Any = binding
_Library: Any = codegen.JITCodeLibrary
_Compiler: Any = compiler.Compiler
_lookup_environment: Any = environment.lookup_environment
_arrays: Any = arrayobj

_ENVIRONMENT = "_ZN08NumbaEnv"
"""How the names of the variables begin through which code finds its Python constants."""


class PartCompiler(_Compiler):  # type: ignore[misc]
    """Compiles a kernel that only other kernels call."""

    def compile_extra(self, func: Callable[..., object]) -> Any:
        """Take the usual steps, with a library that stops early."""
        self.state.library = _PartLibrary(self.state.targetctx.codegen(), func.__qualname__)
        with _indexes_as_they_are():
            return super().compile_extra(func)


INLINING_THRESHOLD, LLVM_THRESHOLD = 5000, 250
"""What a call may cost, in LLVM's units, to be inlined: here, and otherwise at the level of
optimization that Numba uses."""


class EntryCompiler(_Compiler):  # type: ignore[misc]
    """Compiles an entry point."""

    def compile_extra(self, func: Callable[..., object]) -> Any:
        """Take the usual steps, with a library that inlines more."""
        self.state.library = _EntryLibrary(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        with _indexes_as_they_are():
            return super().compile_extra(func)


@contextmanager
def _indexes_as_they_are() -> Iterator[None]:
    """Let code that is made meanwhile take integer indexes as they are; we hold the lock."""
    usual = _arrays.fix_integer_index
    _arrays.fix_integer_index = _index_as_it_is
    try:
        yield
    finally:
        _arrays.fix_integer_index = usual


def _index_as_it_is(context: Any, builder: Any, index_type: Any, index: Any, size: Any) -> Any:
    wanted = types.intp if index_type.signed else types.uintp
    return context.cast(builder, index, index_type, wanted)


class _EntryLibrary(_Library):  # type: ignore[misc]
    """The code of an entry point and all its parts."""

    def _optimize_final_module(self) -> None:
        _set_inlining_threshold(INLINING_THRESHOLD)
        try:
            super()._optimize_final_module()
        finally:
            _set_inlining_threshold(LLVM_THRESHOLD)


def _set_inlining_threshold(threshold: int) -> None:
    """Set it for all that LLVM does in this process, while we hold the compiler's lock.

    The setting of a single module cannot be used: llvmlite cuts it off at 8 bits.
    """
    _LLVM.set_option("aisim-gym", f"-inline-threshold={threshold}")


class _PartLibrary(_Library):  # type: ignore[misc]
    """The code of one part: LLVM's, not the processor's."""

    @property
    def codegen(self) -> Any:
        """Return what Numba sets constants in; a part has no address where they could be set."""
        return _Unset

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0: there is no machine code."""
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
        """Leave it to ``set_constants``."""


def set_constants(compiled: Any) -> None:
    """Let an entry point's code find the Python constants of all its parts.

    Args:
        compiled: Numba's ``CompileResult``, just compiled; nothing is done for a loaded one, where
            Numba does the same.
    """
    library = compiled.library
    for variable in library._final_module.global_variables:
        values = None
        if variable.name.startswith(_ENVIRONMENT):
            values = _lookup_environment(variable.name)
        if values is not None:
            library.codegen.set_env(variable.name, values)

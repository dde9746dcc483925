"""Decorators for compiled code: ``kernel`` for its parts, ``entry_point`` for what Python calls.

Only entry points are compiled on their own and cached, with everything they call inside; a kernel
called from Python simply runs as Python. (Compiling every part for calls from Python as well took
twice as long.) Reference counting is off, which made replays 3.5 times faster: kernels only work on
tables that Python holds and must not make arrays; Numba refuses code that does.

Where compiled code is kept: ``kernel_cache`` and ``kernel_folder``.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba.core import config as _config
from numba.extending import overload, register_jitable

from aisim_gym.kernel_cache import EntryPoint
from aisim_gym.kernel_part import EntryCompiler, PartCompiler

Function = TypeVar("Function", bound=Callable[..., object])

_SETTINGS: Any = _config
_OFFER: Any = register_jitable
_CHOOSE: Any = overload
_OPTIONS = {"nogil": True, "_nrt": False}
_PART_OPTIONS = {
    **_OPTIONS,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": PartCompiler,
}


def kernel(function: Function) -> Function:
    """Let ``function`` be compiled as a part of the entry points that call it.

    Typed as identity, so that checkers and editors see the plain function.
    """
    if _SETTINGS.DISABLE_JIT:
        return function
    return cast(Function, _OFFER(**_PART_OPTIONS)(function))


def entry_point(function: Function) -> Function:
    """Compile ``function`` on first use, without the GIL and kept on disk.

    ``NUMBA_DISABLE_JIT=1`` runs it, and all kernels, as plain Python.
    """
    if _SETTINGS.DISABLE_JIT:
        return function
    options = {"nopython": True, "boundscheck": None, **_OPTIONS}
    entry = EntryPoint(function, targetoptions=options, pipeline_class=EntryCompiler)
    return cast(Function, entry)


def dispatched(name: str) -> Callable[..., Any]:
    """Return a kernel that calls the kernel ``name`` of its first argument's ``backend``.

    The first argument is a bundle whose class has an attribute ``backend``; compiled code is
    specialised by that class, so the choice costs nothing and other backends are not compiled.
    """

    def call(tables: Any, *args: Any) -> Any:
        return getattr(type(tables).backend, name)(tables, *args)

    def choose(tables: Any, *args: Any) -> Any:
        return getattr(tables.instance_class.backend, name)

    call.__name__ = name
    if not _SETTINGS.DISABLE_JIT:
        _CHOOSE(call, strict=False, jit_options=_PART_OPTIONS)(choose)
    return call

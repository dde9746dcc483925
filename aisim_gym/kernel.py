"""Decorators for compiled code: ``kernel``, and ``entry_point`` for functions called by Python.

Only entry points are compiled separately and cached, including every kernel they call. A kernel
called from Python runs as plain Python. (Compiling every kernel for calls from Python as well took
twice as long.) Reference counting is off: kernels only operate on tables held by Python and must
not create arrays; Numba rejects code that does.

``numba_adapter`` controls how Numba compiles; ``kernel_cache`` and ``kernel_folder`` store compiled
code.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from aisim_gym.kernel_cache import EntryPoint
from aisim_gym.numba_adapter import SETTINGS, make_entry_point, offer_choice, offer_kernel

Function = TypeVar("Function", bound=Callable[..., object])


def kernel(function: Function) -> Function:
    """Mark ``function`` for compilation inside the entry points that call it.

    Typed as identity, so that checkers and editors see the plain function.
    """
    if SETTINGS.DISABLE_JIT:
        return function
    return cast(Function, offer_kernel(function))


def entry_point(function: Function) -> Function:
    """Compile ``function`` on first use, without the GIL and cached on disk.

    ``NUMBA_DISABLE_JIT=1`` runs it, and all kernels, as plain Python.
    """
    if SETTINGS.DISABLE_JIT:
        return function
    return cast(Function, make_entry_point(function, EntryPoint))


def dispatched(name: str) -> Callable[..., Any]:
    """Return a kernel that calls the kernel ``name`` of its first argument's ``backend``.

    The first argument is a table set whose class has an attribute ``backend``. Compiled code is
    specialised by that class, so the dispatch costs nothing and other backends are not compiled.
    """

    def call(tables: Any, *args: Any) -> Any:
        return getattr(type(tables).backend, name)(tables, *args)

    def choose(tables: Any, *args: Any) -> Any:
        return getattr(tables.instance_class.backend, name)

    call.__name__ = name
    if not SETTINGS.DISABLE_JIT:
        offer_choice(call, choose)
    return call

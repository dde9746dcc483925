"""Decorators for compiled code: ``kernel`` for its parts, ``entry_point`` for what Python calls.

Only entry points are compiled on their own and cached, with everything they call inside; a kernel
called from Python simply runs as Python. (Compiling every part for calls from Python as well took
twice as long.) Reference counting is off, which made replays 3.5 times faster: kernels only work on
tables that Python holds and must not make arrays; Numba refuses code that does.

The cache lies in the user's cache folder, in a sub-folder named after the content of all kernel
sources and the versions that compile them: Numba by itself does not notice a change in a called
function of another file. Nothing is written next to the sources.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config as _config
from numba.extending import register_jitable

Function = TypeVar("Function", bound=Callable[..., object])

_SETTINGS: Any = _config
_COMPILE: Any = numba.njit
_OFFER: Any = register_jitable
_OPTIONS = {"nogil": True, "_nrt": False}


@cache
def cache_folder() -> Path:
    """Return the folder of compiled code for exactly these sources and compiler versions."""
    digest = hashlib.sha256()
    for part in (numba.__version__, sys.version, *_kernel_sources()):
        digest.update(part if isinstance(part, bytes) else part.encode())
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "aisim-gym" / f"kernel-{digest.hexdigest()[:16]}"


def is_compiled(name: str) -> bool:
    """Return whether an entry point needs no compilation: on disk already, or not compiled."""
    return bool(_SETTINGS.DISABLE_JIT) or any(cache_folder().glob(f"**/*.{name}-*.nbi"))


def kernel(function: Function) -> Function:
    """Let ``function`` be compiled as a part of the entry points that call it.

    Typed as identity, so that checkers and editors see the plain function.
    """
    if _SETTINGS.DISABLE_JIT:
        return function
    options = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(Function, _OFFER(**options)(function))


def entry_point(function: Function) -> Function:
    """Compile ``function`` on first use, without the GIL and cached on disk.

    ``NUMBA_DISABLE_JIT=1`` runs it, and all kernels, as plain Python.
    """
    if _SETTINGS.DISABLE_JIT:
        return function
    outer = _SETTINGS.CACHE_DIR
    _SETTINGS.CACHE_DIR = str(cache_folder())
    try:
        compiled = _COMPILE(cache=True, **_OPTIONS)(function)
    finally:
        _SETTINGS.CACHE_DIR = outer
    return cast(Function, compiled)


def _kernel_sources() -> list[bytes]:
    package = Path(__file__).parent
    folders = ("engine", "metrics", "fleet", "replay")
    files = [package / "kernel.py", package / "tables.py"]
    files += [path for folder in folders for path in sorted((package / folder).glob("*.py"))]
    return [path.read_bytes() for path in files]

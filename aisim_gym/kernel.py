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
import importlib.util
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config as _config
from numba.extending import overload, register_jitable

Function = TypeVar("Function", bound=Callable[..., object])

_SETTINGS: Any = _config
_COMPILE: Any = numba.njit
_OFFER: Any = register_jitable
_CHOOSE: Any = overload
_OPTIONS = {"nogil": True, "_nrt": False}


ENVIRONMENT_KERNELS = ("fleet_now.py", "metrics_entries.py", "outcomes.py")
"""Files of ``aisim_gym.envs`` with compiled code."""


@cache
def cache_folder() -> Path | None:
    """Return the folder of compiled code for exactly these sources and compiler versions.

    None, with one warning, where no such folder can be made: every process then compiles anew.
    """
    digest = hashlib.sha256()
    for part in (numba.__version__, sys.version, *_kernel_sources()):
        digest.update(part if isinstance(part, bytes) else part.encode())
    root = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(root) if os.path.isabs(root) else Path.home() / ".cache"
        folder = base / "aisim-gym" / f"kernel-{digest.hexdigest()[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, RuntimeError) as error:
        warnings.warn(
            f"compiled code cannot be kept and is made anew in every process: {error} "
            "(set XDG_CACHE_HOME to a folder that can be written)",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return folder


def is_compiled(name: str, bundle: str) -> bool:
    """Return whether an entry point needs no compilation for a bundle of this class.

    It is on disk already, or nothing is compiled at all. The index that Numba keeps per entry point
    names the classes of its arguments.
    """
    if _SETTINGS.DISABLE_JIT:
        return True
    folder = cache_folder()
    if folder is None:
        return False
    return any(bundle.encode() in index.read_bytes() for index in folder.glob(f"**/*.{name}-*.nbi"))


@cache
def announce_compilation(name: str, bundle: str) -> None:
    """Say so on stderr, once, if an entry point must be compiled first."""
    if not is_compiled(name, bundle):
        kept = "" if cache_folder() is None else f", and is kept in {cache_folder()}"
        print(
            f"aisim-gym: compiling the replay kernel; this takes about half a minute{kept}",
            file=sys.stderr,
            flush=True,
        )


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
    folder = cache_folder()
    outer = _SETTINGS.CACHE_DIR
    _SETTINGS.CACHE_DIR = str(folder)
    try:
        compiled = _COMPILE(cache=folder is not None, **_OPTIONS)(function)
    finally:
        _SETTINGS.CACHE_DIR = outer
    return cast(Function, compiled)


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
        options = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        _CHOOSE(call, strict=False, jit_options=options)(choose)
    return call


def _kernel_sources() -> list[bytes]:
    package = Path(__file__).parent
    folders = ("engine", "metrics", "fleet", "replay")
    files = [package / name for name in ("bundle.py", "kernel.py", "tables.py")]
    files += [path for folder in folders for path in sorted((package / folder).glob("*.py"))]
    envs = importlib.util.find_spec(f"{__package__}.envs")  # elsewhere in the source tree
    if envs is not None and envs.origin is not None:
        files += [Path(envs.origin).with_name(name) for name in ENVIRONMENT_KERNELS]
    return [path.read_bytes() for path in files]

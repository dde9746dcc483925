"""The one decorator for compiled code.

Compiled code is cached in the user's cache folder, in a sub-folder named after the content of all
kernel sources and the versions that compile them: Numba by itself does not notice a change in a
called function of another file. Nothing is written next to the sources.
"""

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

import numba
from numba.core import config

Function = TypeVar("Function", bound=Callable[..., object])


@cache
def cache_folder() -> Path:
    """Return the folder of compiled code for exactly these sources and compiler versions."""
    digest = hashlib.sha256()
    for part in (numba.__version__, sys.version, *_kernel_sources()):
        digest.update(part if isinstance(part, bytes) else part.encode())
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "aisim-gym" / f"kernel-{digest.hexdigest()[:16]}"


def is_compiled() -> bool:
    """Return whether compiled code for these sources is already on disk (or not needed)."""
    return bool(config.DISABLE_JIT) or any(cache_folder().glob("**/*.nbi"))


def kernel(function: Function) -> Function:
    """Compile ``function`` on first use, without the GIL and cached on disk.

    Typed as identity, so that checkers and editors see the plain function;
    ``NUMBA_DISABLE_JIT=1`` runs exactly that.
    """
    if config.DISABLE_JIT:
        return function
    outer = config.CACHE_DIR
    config.CACHE_DIR = str(cache_folder())
    try:
        compiled = numba.njit(cache=True, nogil=True)(function)
    finally:
        config.CACHE_DIR = outer
    return cast(Function, compiled)


def _kernel_sources() -> list[bytes]:
    package = Path(__file__).parent
    folders = ("engine", "metrics", "fleet", "replay")
    files = [package / "kernel.py", package / "tables.py"]
    files += [path for folder in folders for path in sorted((package / folder).glob("*.py"))]
    return [path.read_bytes() for path in files]

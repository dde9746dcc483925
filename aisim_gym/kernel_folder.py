"""The folder of compiled code: named by a hash of the sources, in the user's cache folder.

Numba does not detect changes of called functions in other files, so every version of the sources
has its own folder, ``<cache>/aisim-gym/kernel-<hash>``. Nothing is written next to the sources, and
no folder is created before code is compiled.
"""

import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import llvmlite
import numba
import numpy as np

from aisim_gym.numba_adapter import SETTINGS

SOURCES = (
    "errors.py",
    "file_lock.py",
    "kernel*.py",
    "numba_adapter.py",
    "table_set.py",
    "table_shapes.py",
    "tables.py",
    "engine/*.py",
    "fleet/*.py",
    "metrics/*.py",
    "replay/*.py",
)
"""Sources of compiled code: file patterns in this package. A kernel in another file needs a line
here (a test checks it)."""

NUM_KEPT = 5
"""Number of most recently used folders of other source versions that are always kept."""

UNUSED_S = 24 * 3600.0
"""Other folders are removed when unused for this time."""


def kernel_sources() -> list[Path]:
    """Return the source files of compiled code."""
    folder = Path(__file__).parent
    return [path for pattern in SOURCES for path in sorted(folder.glob(pattern))]


@cache
def user_folder() -> Path:
    """Return the folder for compiled code, whether or not it exists.

    Its base is NUMBA_CACHE_DIR if set, else XDG_CACHE_HOME if that is an absolute path, else the
    home folder's ``.cache``.

    Raises:
        RuntimeError: If there is no home folder.
    """
    given = SETTINGS.CACHE_DIR or os.environ.get("XDG_CACHE_HOME", "")
    if not SETTINGS.CACHE_DIR and not os.path.isabs(given):
        given = ""
    base = Path(given).absolute() if given else Path.home() / ".cache"
    return base / "aisim-gym" / _name()


def folders() -> Iterator[Path]:
    """Yield folders that may hold compiled code, best first, excluding those of other users."""
    with suppress(RuntimeError):
        yield user_folder()
    with suppress(OSError):
        yield _temporary_folder(make=False)


@cache
def writable_folder() -> Path | None:
    """Return the folder for new compiled code, creating it if needed.

    If the user's cache folder is not writable, this is a private temporary folder; if that is not
    writable either, it is None. Both cases emit one warning.
    """
    try:
        folder = user_folder()
        _make_writable(folder)
    except (OSError, RuntimeError) as error:
        reason = f"compiled code cannot be kept: {str(error).rstrip('.')}"
    else:
        return folder
    advice = "set XDG_CACHE_HOME to a writable folder"
    try:
        folder = _temporary_folder(make=True)
        _make_writable(folder)
    except OSError as error:
        _warn(
            f"{reason}; nor can it be kept temporarily: {error}. Every process compiles: {advice}"
        )
        return None
    _warn(f"{reason}. It is kept in {folder.parent} until that is cleared: {advice}")
    return folder


def mark_used(folder: Path) -> None:
    """Update the last-used time of a folder."""
    with suppress(OSError):  # a read-only folder prepared by others
        os.utime(folder)


def remove_old(folder: Path) -> None:
    """Remove long unused folders of other source versions beside ``folder``.

    A process that still needs one compiles again; loaded code stays in memory.
    """
    used_s = {}
    for other in folder.parent.glob("kernel-*"):
        with suppress(OSError):
            used_s[other] = other.stat().st_mtime
    now_s = used_s.pop(folder, 0.0)  # by the clock of the file system, which may differ
    for other in sorted(used_s, key=lambda other: used_s[other], reverse=True)[NUM_KEPT:]:
        if now_s - used_s[other] > UNUSED_S:
            shutil.rmtree(other, ignore_errors=True)


@cache
def _name() -> str:
    digest = hashlib.sha256()
    versions = (numba.__version__, llvmlite.__version__, np.__version__, sys.version)
    for text in (*versions, platform.machine()):
        digest.update(text.encode())
    for path in kernel_sources():
        digest.update(path.read_bytes())
    return f"kernel-{digest.hexdigest()[:16]}"


def _make_writable(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _temporary_folder(*, make: bool) -> Path:
    """Return a folder for temporary files that only this user can write.

    Raises:
        OSError: If there is none, since code that others could have written must not run.
    """
    owner = os.getuid() if sys.platform != "win32" else 0
    base = Path(tempfile.gettempdir()) / f"aisim-gym-{owner}"
    if make:
        base.mkdir(mode=0o700, exist_ok=True)
    found = base.lstat()
    is_private = sys.platform == "win32" or (found.st_uid == owner and not found.st_mode & 0o077)
    if not stat.S_ISDIR(found.st_mode) or not is_private:
        raise PermissionError(f"{base} is not private to this user")
    return base / _name()


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)

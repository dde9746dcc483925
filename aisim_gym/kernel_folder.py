"""The folder of compiled code: named after the sources, in the user's cache folder.

Numba by itself does not notice a change in a called function of another file, so every version of
the sources has a folder of its own, ``<cache>/aisim-gym/kernel-<hash>``. Nothing is written next to
the sources, and nothing at all until something has been compiled.
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
"""What compiled code is made from: patterns of files in this package. A kernel elsewhere is one
more line here (a test complains)."""

NUM_KEPT = 5
"""Folders of other versions of the sources that are kept in any case, last used first."""

UNUSED_S = 24 * 3600.0
"""Others are removed once nobody has used them for so long."""


def kernel_sources() -> list[Path]:
    """Return the files that compiled code is made from."""
    folder = Path(__file__).parent
    return [path for pattern in SOURCES for path in sorted(folder.glob(pattern))]


@cache
def user_folder() -> Path:
    """Return where compiled code belongs, whether or not that exists.

    In NUMBA_CACHE_DIR if that is set, else in XDG_CACHE_HOME if that is an absolute path, else in
    the home folder's ``.cache``.

    Raises:
        RuntimeError: If there is no home folder.
    """
    given = SETTINGS.CACHE_DIR or os.environ.get("XDG_CACHE_HOME", "")
    if not SETTINGS.CACHE_DIR and not os.path.isabs(given):
        given = ""
    base = Path(given).absolute() if given else Path.home() / ".cache"
    return base / "aisim-gym" / _name()


def folders() -> Iterator[Path]:
    """Yield where compiled code may be found, best first; others' folders are left out."""
    with suppress(RuntimeError):
        yield user_folder()
    with suppress(OSError):
        yield _temporary_folder(make=False)


@cache
def writable_folder() -> Path | None:
    """Return the folder for new compiled code, made if need be.

    Where the user's cache folder cannot be written it is a private one for temporary files, and
    None where that cannot be either; one warning says so.
    """
    try:
        folder = user_folder()
        _make_writable(folder)
    except (OSError, RuntimeError) as error:
        reason = f"compiled code cannot be kept: {str(error).rstrip('.')}"
    else:
        return folder
    advice = "set XDG_CACHE_HOME to a folder that can be written"
    try:
        folder = _temporary_folder(make=True)
        _make_writable(folder)
    except OSError as error:
        _warn(
            f"{reason}; nor can it be kept for a while: {error}. Every process compiles: {advice}"
        )
        return None
    _warn(f"{reason}. It is kept in {folder.parent} until that is cleared: {advice}")
    return folder


def mark_used(folder: Path) -> None:
    """Note that a folder is in use."""
    with suppress(OSError):  # a folder that others prepared for reading
        os.utime(folder)


def remove_old(folder: Path) -> None:
    """Remove folders of other versions beside ``folder`` that nobody has used for long.

    Those who still need one compile again; what a process has loaded stays in its memory.
    """
    used_s = {}
    for other in folder.parent.glob("kernel-*"):
        with suppress(OSError):
            used_s[other] = other.stat().st_mtime
    now_s = used_s.pop(folder, 0.0)  # by the clock of the file system, which may be another one
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
    """Return a folder below the one for temporary files that only this user can write.

    Raises:
        OSError: If there is none. Code that others could have written is not run.
    """
    owner = os.getuid() if sys.platform != "win32" else 0
    base = Path(tempfile.gettempdir()) / f"aisim-gym-{owner}"
    if make:
        base.mkdir(mode=0o700, exist_ok=True)
    found = base.lstat()
    is_private = sys.platform == "win32" or (found.st_uid == owner and not found.st_mode & 0o077)
    if not stat.S_ISDIR(found.st_mode) or not is_private:
        raise PermissionError(f"{base} is not a folder of this user alone")
    return base / _name()


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)

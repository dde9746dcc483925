"""Cache of compiled code on disk: one process compiles, others that need the same code wait.

Numba's own cache has one index per function. Processes that write concurrently replace each other's
index and may then load code for other argument types. Here, each combination of function and
argument types has its own file, written atomically and compressed. An unreadable file (truncated,
damaged) is treated as missing and replaced.

The file name covers all dependencies of the code besides the kernel sources: the types, the
processor and its features (several machines may share a home folder), and the compiler settings.
"""

import hashlib
import os
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from aisim_gym.file_lock import lock_file
from aisim_gym.kernel_folder import folders, mark_used, remove_old, writable_folder
from aisim_gym.numba_adapter import SETTINGS, StoredDispatcher


@dataclass(frozen=True)
class Prepared:
    """Compiled code in use by this process."""

    function: str
    is_new: bool
    """Whether this process compiled it."""
    seconds: float
    """Time to compile or load it, including time waiting for other processes."""
    path: Path | None
    """Its file, None if it could not be saved."""


_prepared: list[Prepared] = []


def prepared_code() -> list[Prepared]:
    """Return the code compiled or loaded by this process so far, in order."""
    return list(_prepared)


class EntryPoint(StoredDispatcher):
    """A function that Numba compiles on first use, cached on disk."""

    def make_store(self, function: Callable[..., object]) -> "_CodeFiles":
        """Return the store of its compiled code."""
        return _CodeFiles(function)


class _CodeFiles:
    """The compiled code of one function: one file per list of argument types."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.is_enabled = True
        self._function = function
        self._turn: IO[str] | None = None
        self._started_s = 0.0

    def load(
        self, key: tuple[str, ...], argument_types: Any, rebuild: Callable[[bytes], Any]
    ) -> Any:
        """Return the stored code after ``rebuild``; None if this process must compile it."""
        self._started_s = time.perf_counter()
        if not self.is_enabled:
            return None
        name = self._file_name(key)
        code = self._read(name, rebuild)
        if code is None:
            run = _kind_of_run(argument_types)
            folder = writable_folder()
            if folder is not None:
                self._take_turn(folder / f"{name}.lock", run)
                code = self._read(name, rebuild)
            if code is None:
                _say_compiling(run, folder)
        return code

    def save(self, key: tuple[str, ...], code: bytes | None) -> None:
        """Save newly compiled code; ``code`` is None if it cannot be saved."""
        folder = writable_folder() if self.is_enabled else None
        path = None
        if folder is not None and code is not None:
            path = folder / self._file_name(key)
            try:
                _write_at_once(path, zlib.compress(code, 1))
            except OSError as error:
                _say(f"compiled code cannot be kept: {error}")
                path = None
            else:
                remove_old(folder)
        self._note(path, is_new=True)

    def end_turn(self) -> None:
        """Release the lock, so that processes waiting for the same code continue."""
        if self._turn is not None:
            self._turn.close()
            self._turn = None

    def _take_turn(self, path: Path, run: str) -> None:
        def on_wait(note: str) -> None:
            holder, _, its_stderr = note.partition(" ")
            # Otherwise its own notice is visible here.
            if not its_stderr or its_stderr != _stderr_identity():
                _say(f"waiting for process {holder}, which is compiling the replay kernel{run}")

        self._turn = lock_file(path, f"{os.getpid()} {_stderr_identity()}", on_wait)

    def _read(self, name: str, rebuild: Callable[[bytes], Any]) -> Any:
        for folder in folders():
            path = folder / name
            # Whatever is wrong with the file, the code is compiled again.
            with suppress(Exception):
                code = rebuild(zlib.decompress(path.read_bytes()))
                mark_used(folder)
                self._note(path, is_new=False)
                return code
        return None

    def _note(self, path: Path | None, *, is_new: bool) -> None:
        seconds = time.perf_counter() - self._started_s
        _prepared.append(Prepared(self._function.__name__, is_new, seconds, path))

    def _file_name(self, key: tuple[str, ...]) -> str:
        function = self._function
        settings = (SETTINGS.OPT, SETTINGS.BOUNDSCHECK, SETTINGS.DEBUGINFO_DEFAULT)
        parts = (
            function.__module__,
            function.__qualname__,
            _file_digest(function.__code__.co_filename),
            *key,
            *map(str, settings),
        )
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return f"{function.__name__}-{digest[:20]}.code"


@cache
def _file_digest(file: str) -> str:
    """Return a digest of a source file, not necessarily one of the kernel sources."""
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return ""


def _write_at_once(path: Path, data: bytes) -> None:
    part = path.with_name(f"{path.name}.{uuid4().hex[:16]}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _kind_of_run(argument_types: Any) -> str:
    """Return the world type of a compilation for messages; empty if there is no world."""
    world = getattr(argument_types[0], "instance_class", None) if argument_types else None
    return "" if world is None else f" ({world.__name__})"


def _stderr_identity() -> str:
    """Return a text that is equal in processes with the same terminal, file or pipe."""
    try:
        found = os.fstat(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # in a notebook, for example
        return ""
    return f"{found.st_dev}:{found.st_ino}"


@cache
def _say_compiling(run: str, folder: Path | None) -> None:
    """Print a notice once per world type; other code compiles in under a second."""
    if run:
        kept = "" if folder is None else f", once: it is kept in {folder.parent}"
        _say(f"compiling the replay kernel{run}, which takes 10-30 s{kept}")


def _say(text: str) -> None:
    print(f"aisim-gym: {text}", file=sys.stderr, flush=True)

"""Compiled code on disk: the first process compiles, those that need the same meanwhile wait.

Numba's own cache has one index per function; processes that write at the same time replace each
other's index and may then find the code of other argument types under theirs. Here every function
and argument types have a file of their own, which appears all at once, compressed. A file that
cannot be read (cut short, damaged) counts as none and is replaced.

The name of a file covers all that its code depends on besides the kernel sources: the types, the
processor and its features (a home folder may serve different machines), and the
compiler's settings.
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
    """Code that this process has compiled or loaded."""

    function: str
    is_new: bool
    """Whether it was compiled here."""
    seconds: float
    """What that took; of waiting for others, too."""
    path: Path | None
    """Where it is kept, if it could be."""


_prepared: list[Prepared] = []


def prepared_code() -> list[Prepared]:
    """Return what this process has compiled or loaded so far, in this order."""
    return list(_prepared)


class EntryPoint(StoredDispatcher):
    """A function that Numba compiles on first use, kept on disk."""

    def make_store(self, function: Callable[..., object]) -> "_CodeFiles":
        """Return the files of its code."""
        return _CodeFiles(function)


class _CodeFiles:
    """The compiled code of one function: a file for each list of argument types."""

    def __init__(self, function: Callable[..., object]) -> None:
        self.is_enabled = True
        self._function = function
        self._turn: IO[str] | None = None
        self._started_s = 0.0

    def load(
        self, key: tuple[str, ...], argument_types: Any, rebuild: Callable[[bytes], Any]
    ) -> Any:
        """Return what ``rebuild`` makes of the code; None, when it is our turn to compile it."""
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
        """Keep code that was just compiled; None if it cannot be kept."""
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
        """Let others who wait for the same code go on."""
        if self._turn is not None:
            self._turn.close()
            self._turn = None

    def _take_turn(self, path: Path, run: str) -> None:
        def on_wait(note: str) -> None:
            holder, _, its_stderr = note.partition(" ")
            # Otherwise its own notice can be seen here.
            if not its_stderr or its_stderr != _stderr_identity():
                _say(f"waiting for process {holder}, which is compiling the replay kernel{run}")

        self._turn = lock_file(path, f"{os.getpid()} {_stderr_identity()}", on_wait)

    def _read(self, name: str, rebuild: Callable[[bytes], Any]) -> Any:
        for folder in folders():
            path = folder / name
            # Whatever is wrong with a file: then it is compiled anew.
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
    """Return a digest of a source file, which need not be among the kernel sources."""
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
    """Return what a compilation is for, if its first argument is a world, else nothing."""
    world = getattr(argument_types[0], "instance_class", None) if argument_types else None
    return "" if world is None else f" ({world.__name__})"


def _stderr_identity() -> str:
    """Return the same text in processes that write to the same terminal, file or pipe."""
    try:
        found = os.fstat(sys.stderr.fileno())
    except (AttributeError, OSError, ValueError):  # a notebook's, for example
        return ""
    return f"{found.st_dev}:{found.st_ino}"


@cache
def _say_compiling(run: str, folder: Path | None) -> None:
    """Say so once per kind of run; other code takes no second."""
    if run:
        kept = "" if folder is None else f", once: it is kept in {folder.parent}"
        _say(f"compiling the replay kernel{run}, which takes 10-30 s{kept}")


def _say(text: str) -> None:
    print(f"aisim-gym: {text}", file=sys.stderr, flush=True)

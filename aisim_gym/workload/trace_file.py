"""Read and write trace files as text: plain or gzip, optional byte order mark, LF or CRLF."""

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from aisim_gym.errors import WorkloadError

TracePath = str | os.PathLike[str]

_GZIP_MAGIC = b"\x1f\x8b"


def absolute_path(path: TracePath) -> Path:
    """Return ``path`` with ``~`` expanded, absolute, as shown in all messages."""
    return Path(os.path.expanduser(path)).absolute()


def read_trace_lines(path: TracePath) -> Iterator[tuple[int, str]]:
    r"""Yield (line number, text) of the lines of a trace file that are not blank.

    Numbers are 1-based and count blank lines too. Only ``\n`` ends a line. A gzip file is detected
    from its first bytes, not its name.

    Raises:
        WorkloadError: If the file cannot be opened or read, or a line is not UTF-8.
    """
    where = absolute_path(path)
    try:
        stream = _open_bytes(where)
    except OSError as error:
        raise WorkloadError(
            f"failed to open trace file {where}: {error.strerror or error}"
        ) from error
    number = 0
    with stream:
        try:
            for number, raw in enumerate(stream, 1):
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                if text.strip():
                    yield number, text
        except UnicodeDecodeError as error:
            raise WorkloadError(
                f"failed to read line {number} from {where}: not UTF-8 text ({error.reason})"
            ) from error
        except (OSError, EOFError, zlib.error) as error:
            raise WorkloadError(
                f"failed to read line {number + 1} from {where}: {error}"
            ) from error


@contextmanager
def open_trace_text(path: TracePath, compress: bool | None = None) -> Iterator[TextIO]:
    """Open a trace file for writing: UTF-8, LF.

    A gzip file contains neither name nor time, so the same text gives the same bytes.

    Args:
        path: The file; ``~`` is expanded. An existing one is replaced.
        compress: Whether to write gzip; None = if the name ends in ``.gz``.
    """
    where = absolute_path(path)
    if compress is None:
        compress = where.suffix == ".gz"
    with where.open("wb") as plain:
        stream = gzip.GzipFile("", "wb", fileobj=plain, mtime=0) if compress else plain
        with io.TextIOWrapper(stream, "utf-8", newline="\n") as text:
            yield text


def empty_trace_error(source: str) -> WorkloadError:
    """Return the reference's error for a trace without rows (workloads.md §14)."""
    return WorkloadError(f"trace file {source} did not contain any requests")


def _open_bytes(path: Path) -> io.BufferedIOBase:
    plain = path.open("rb")
    try:
        if plain.peek(len(_GZIP_MAGIC))[: len(_GZIP_MAGIC)] != _GZIP_MAGIC:
            return plain
        plain.close()
        return gzip.open(path, "rb")
    except BaseException:
        plain.close()
        raise

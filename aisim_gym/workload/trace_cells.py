"""Read rows and cells of a CSV trace and report invalid ones.

Cells are separated by commas and never quoted; blanks around a cell do not count.
"""

import math
import re
from collections.abc import Iterator
from decimal import Decimal

from aisim_gym.errors import WorkloadError
from aisim_gym.spec.workload import TimeUnit
from aisim_gym.workload.request_table import MAX_TOKENS
from aisim_gym.workload.trace_file import (
    TracePath,
    absolute_path,
    empty_trace_error,
    read_trace_lines,
)

_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d{1,4})?", re.ASCII)


def read_csv_rows(path: TracePath) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells), the header first; every row has as many cells as the header.

    Raises:
        WorkloadError: If the file cannot be read or is empty, a column name is duplicated, or a row
            has a different number of cells.
    """
    source = absolute_path(path)
    names: list[str] = []
    for line, text in read_trace_lines(path):
        cells = [cell.strip() for cell in text.split(",")]
        if not names:
            names = cells
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise WorkloadError(
                    f"{source} line {line}: header: got {twice!r} twice, allowed: once"
                )
        if len(cells) != len(names):
            raise WorkloadError(
                f"{source} line {line}: got {len(cells)} fields, allowed: {len(names)} "
                f"({','.join(names)})"
            )
        yield line, cells
    if not names:
        raise empty_trace_error(str(source))


def ms_per_unit(time_unit: TimeUnit) -> float:
    """Return the milliseconds in a unit of time; raise WorkloadError if it is unknown."""
    if time_unit not in ("s", "ms"):
        raise WorkloadError(f"time_unit: got {time_unit!r}, allowed: 's' or 'ms'")
    return 1000.0 if time_unit == "s" else 1.0


def parse_tokens(field: str, text: str, minimum: int) -> int:
    """Return a number of tokens, ``minimum`` .. ``MAX_TOKENS``."""
    # 13 digits hold MAX_TOKENS; more are not worth converting.
    if text.isascii() and text.isdigit() and len(text) <= 13:
        tokens = int(text)
        if minimum <= tokens <= MAX_TOKENS:
            return tokens
    raise cell_error(field, text, f"an integer from {minimum} to {MAX_TOKENS}")


def parse_time_ms(field: str, text: str, unit: TimeUnit) -> float:
    """Return a time >= 0 as the double nearest to its decimal number of ms."""
    if _NUMBER.fullmatch(text) is not None:
        # Scaled as a decimal: 1.005 s is 1005.0 ms, but 1.005 * 1000.0 is not.
        time_ms = float(Decimal(text).scaleb(3 if unit == "s" else 0))
        if math.isfinite(time_ms):
            return time_ms
    raise cell_error(field, text, f"a finite number >= 0 ({unit})")


def cell_error(field: str, text: str, allowed: str) -> ValueError:
    """Return the error for an invalid cell; the caller adds file and line."""
    return ValueError(f"{field}: got {text[:80]!r}, allowed: {allowed}")

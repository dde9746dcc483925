"""Azure LLM inference traces: CSV with ``TIMESTAMP,ContextTokens,GeneratedTokens`` (rulings.md 7).

A stamp looks like ``2023-11-16 18:17:03.9799600``: UTC, up to seven decimals (100 ns). A trailing
``Z`` or ``+00:00`` (the 2024 files) is accepted.
"""

import re
from array import array
from datetime import date

import numpy as np

from aisim_gym.errors import WorkloadError
from aisim_gym.workload.request_table import RequestTable
from aisim_gym.workload.speedup import check_speedup_ratio, speed_up_arrivals
from aisim_gym.workload.table_order import table_in_arrival_order
from aisim_gym.workload.trace_cells import cell_error, parse_tokens
from aisim_gym.workload.trace_file import (
    TracePath,
    absolute_path,
    empty_trace_error,
    read_trace_lines,
)

AZURE_HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,7}))?(?:Z|\+00:00)?",
    re.ASCII,
)
_TICKS_PER_S = 10_000_000  # 100 ns
_TICKS_PER_MS = 10_000.0


def read_azure_csv(path: TracePath, arrival_speedup_ratio: float = 1.0) -> RequestTable:
    """Read an Azure LLM inference CSV file, plain or gzip; arrivals become ms.

    The first row arrives at 0 ms: its stamp is subtracted as an integer of 100 ns before any
    rounding, then times are divided by ``arrival_speedup_ratio``. If rows are out of order, the
    earliest row arrives at 0 ms, as in a Mooncake trace (workloads.md §4.3). Prompts share no
    blocks; a row with zero generated tokens becomes a request without output.

    Raises:
        WorkloadError: Names the file, the line, the field and what is allowed.
    """
    check_speedup_ratio(arrival_speedup_ratio)
    source = str(absolute_path(path))
    lines = read_trace_lines(path)
    header_line, header = next(lines, (0, ""))
    if header_line == 0:
        raise empty_trace_error(source)
    if tuple(name.strip() for name in header.split(",")) != AZURE_HEADER:
        raise WorkloadError(
            f"{source} line {header_line}: header: got {header.strip()[:80]!r}, "
            f"allowed: {','.join(AZURE_HEADER)}"
        )
    ticks, inputs, outputs = array("q"), array("q"), array("q")
    midnights: dict[str, int] = {}
    for line, text in lines:
        cells = text.split(",")
        if len(cells) != len(AZURE_HEADER):
            raise WorkloadError(
                f"{source} line {line}: got {len(cells)} fields, allowed: {len(AZURE_HEADER)} "
                f"({','.join(AZURE_HEADER)})"
            )
        try:
            ticks.append(_stamp_ticks(cells[0].strip(), midnights))
            inputs.append(parse_tokens(AZURE_HEADER[1], cells[1].strip(), minimum=1))
            outputs.append(parse_tokens(AZURE_HEADER[2], cells[2].strip(), minimum=0))
        except ValueError as error:
            raise WorkloadError(f"{source} line {line}: {error}") from error
    if not ticks:
        raise empty_trace_error(source)
    stamps = np.array(ticks)
    arrival_ms = speed_up_arrivals((stamps - stamps.min()) / _TICKS_PER_MS, arrival_speedup_ratio)
    return table_in_arrival_order(arrival_ms, np.array(inputs), np.array(outputs))


def _stamp_ticks(text: str, midnights: dict[str, int]) -> int:
    """Return a stamp in units of 100 ns since the year 1; ``midnights`` caches the days seen."""
    match = _STAMP.fullmatch(text)
    if match is None:
        raise cell_error(AZURE_HEADER[0], text, "like 2023-11-16 18:17:03.9799600 (UTC)")
    day, hour, minute, second, decimals = match.groups(default="")
    midnight = midnights.get(day)
    if midnight is None:
        try:
            midnight = date.fromisoformat(day).toordinal() * 86_400
        except ValueError:
            raise cell_error(AZURE_HEADER[0], text, "a date of the calendar") from None
        midnights[day] = midnight
    seconds = midnight + int(hour) * 3600 + int(minute) * 60 + int(second)
    return seconds * _TICKS_PER_S + int(decimals.ljust(7, "0"))

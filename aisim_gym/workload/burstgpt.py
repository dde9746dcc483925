"""BurstGPT traces: CSV with ``Timestamp,Model,Request tokens,Response tokens,…`` (field-cases F44).

Stamps are seconds since the first day. The other columns (``Model``, ``Total tokens``, ``Log
Type``, in newer files ``Session ID`` and ``Elapsed time``) are not used: every row arrives at its
stamp, regardless of its session. A failed request has no response tokens and becomes a request
without output; the publisher's files ``…_without_fails…`` omit failures.
"""

from array import array

import numpy as np

from aisim_gym.errors import WorkloadError
from aisim_gym.spec.workload import TimeUnit
from aisim_gym.workload.request_table import RequestTable
from aisim_gym.workload.speedup import check_speedup_ratio, speed_up_arrivals
from aisim_gym.workload.table_order import table_in_arrival_order
from aisim_gym.workload.trace_cells import ms_per_unit, parse_time_ms, parse_tokens, read_csv_rows
from aisim_gym.workload.trace_file import TracePath, absolute_path, empty_trace_error

BURSTGPT_COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def read_burstgpt(
    path: TracePath, arrival_speedup_ratio: float = 1.0, time_unit: TimeUnit = "s"
) -> RequestTable:
    """Read a BurstGPT CSV file, plain or gzip.

    The earliest row arrives at 0 ms, then times are divided by ``arrival_speedup_ratio``; rows may
    be in any order, equal stamps keep that of the file. Prompts share no blocks.

    Args:
        path: The file; ``~`` is expanded.
        arrival_speedup_ratio: Finite and > 0.
        time_unit: Unit of the stamps.

    Raises:
        WorkloadError: Names the file, the line, the field and what is allowed. Requests without
            prompt tokens are rejected.
    """
    check_speedup_ratio(arrival_speedup_ratio)
    ms_per_unit(time_unit)
    source = absolute_path(path)
    rows = read_csv_rows(path)
    header_line, names = next(rows)
    missing = [name for name in BURSTGPT_COLUMNS if name not in names]
    if missing:
        raise WorkloadError(
            f"{source} line {header_line}: header: got no column {missing[0]!r} in "
            f"{','.join(names)[:80]!r}, needed: {','.join(BURSTGPT_COLUMNS)}"
        )
    at, prompt, response = (names.index(name) for name in BURSTGPT_COLUMNS)
    stamps_ms, inputs, outputs = array("d"), array("q"), array("q")
    for line, cells in rows:
        try:
            stamps_ms.append(parse_time_ms(BURSTGPT_COLUMNS[0], cells[at], time_unit))
            inputs.append(parse_tokens(BURSTGPT_COLUMNS[1], cells[prompt], minimum=1))
            outputs.append(parse_tokens(BURSTGPT_COLUMNS[2], cells[response], minimum=0))
        except ValueError as error:
            raise WorkloadError(f"{source} line {line}: {error}") from error
    if not stamps_ms:
        raise empty_trace_error(str(source))
    stamps = np.array(stamps_ms)
    arrival_ms = speed_up_arrivals(stamps - stamps.min(), arrival_speedup_ratio)
    return table_in_arrival_order(arrival_ms, np.array(inputs), np.array(outputs))

"""Our own CSV: ``arrival_s`` or ``arrival_ms``, ``input_tokens``, ``output_tokens``, ``hash_ids``.

The header gives the unit of the arrivals; columns may be in any order. ``hash_ids`` is optional;
its cells hold ids separated by blanks, one per trace block, or are empty if the prompt shares no
block with another.
"""

import warnings
from array import array
from collections.abc import Iterator
from difflib import get_close_matches

import numpy as np

from aisim_gym.errors import WorkloadError
from aisim_gym.spec.workload import TimeUnit
from aisim_gym.workload.mooncake_writer import covering_hash_ids
from aisim_gym.workload.prompt_ids import MAX_HASH_ID, PromptIds, check_trace_block_size
from aisim_gym.workload.request_table import DEFAULT_TRACE_BLOCK_SIZE, RequestTable
from aisim_gym.workload.speedup import check_speedup_ratio, speed_up_arrivals
from aisim_gym.workload.table_order import table_in_arrival_order
from aisim_gym.workload.trace_cells import (
    cell_error,
    parse_time_ms,
    parse_tokens,
    read_csv_rows,
)
from aisim_gym.workload.trace_file import (
    TracePath,
    absolute_path,
    empty_trace_error,
    open_trace_text,
)

UNIT_OF_ARRIVAL: dict[str, TimeUnit] = {"arrival_s": "s", "arrival_ms": "ms"}
INPUT, OUTPUT, HASH_IDS = "input_tokens", "output_tokens", "hash_ids"

_KNOWN = (*UNIT_OF_ARRIVAL, INPUT, OUTPUT, HASH_IDS)
_HEADER = "arrival_s or arrival_ms, input_tokens, output_tokens and, if wanted, hash_ids"


def read_simple_csv(
    path: TracePath,
    trace_block_size: int = DEFAULT_TRACE_BLOCK_SIZE,
    arrival_speedup_ratio: float = 1.0,
) -> RequestTable:
    """Read a file in our own CSV format, plain or gzip.

    The earliest row arrives at 0 ms, then times are divided by ``arrival_speedup_ratio``; rows may
    be in any order, and equal arrivals keep the order of the file.

    Args:
        path: The file; ``~`` is expanded.
        trace_block_size: Tokens per hash id, >= 1.
        arrival_speedup_ratio: Finite and > 0.

    Raises:
        WorkloadError: Names the file, the line, the field and what is allowed. A prompt with ids
            has exactly ceil(input_tokens / trace_block_size) of them.
    """
    check_trace_block_size(trace_block_size)
    check_speedup_ratio(arrival_speedup_ratio)
    source = absolute_path(path)
    rows = read_csv_rows(path)
    header_line, names = next(rows)
    try:
        arrival = _check_header(names)
    except ValueError as error:
        raise WorkloadError(f"{source} line {header_line}: header: {error}") from error
    unit = UNIT_OF_ARRIVAL[arrival]
    at, prompt, output = (names.index(name) for name in (arrival, INPUT, OUTPUT))
    ids = names.index(HASH_IDS) if HASH_IDS in names else None
    stamps_ms, inputs, outputs, prompts = array("d"), array("q"), array("q"), PromptIds()
    for line, cells in rows:
        try:
            stamps_ms.append(parse_time_ms(arrival, cells[at], unit))
            inputs.append(parse_tokens(INPUT, cells[prompt], minimum=1))
            outputs.append(parse_tokens(OUTPUT, cells[output], minimum=0))
            if ids is not None:
                hash_ids = _parse_hash_ids(cells[ids], inputs[-1], trace_block_size)
                prompts.add(hash_ids, len(hash_ids))
        except ValueError as error:
            raise WorkloadError(f"{source} line {line}: {error}") from error
    if not stamps_ms:
        raise empty_trace_error(str(source))
    stamps = np.array(stamps_ms)
    return table_in_arrival_order(
        speed_up_arrivals(stamps - stamps.min(), arrival_speedup_ratio),
        np.array(inputs),
        np.array(outputs),
        None if ids is None else prompts.build(),
        trace_block_size,
    )


def write_simple_csv(
    requests: RequestTable, path: TracePath, *, compress: bool | None = None
) -> None:
    """Write a list of requests in our own CSV format, arrivals in ms.

    Read back with the table's ``trace_block_size``, the file gives the same arrivals counted from
    the first, the same lengths and the same shared prefixes. The column ``hash_ids`` is omitted if
    no prompt has any. An existing file is replaced.

    Warns (``UserWarning``) if the content of outputs is given, because the format has no column for
    it: later prompts that repeat an output no longer share its blocks.

    Args:
        requests: The table.
        path: Destination; ``~`` is expanded.
        compress: Whether to write gzip; None = if the name ends in ``.gz``.

    Raises:
        WorkloadError: If the table has sessions; nothing is written.
    """
    if requests.has_sessions:
        raise WorkloadError(
            f"{absolute_path(path)}: our CSV holds lists of requests, got {requests.num_sessions} "
            "sessions, whose later turns have no arrival; allowed: a Mooncake JSONL file"
        )
    if requests.output_ids.size:
        warnings.warn(
            f"{absolute_path(path)}: our CSV has no column for the content of outputs, which "
            "is left out: blocks that prompts share with outputs are shared no longer",
            UserWarning,
            stacklevel=2,
        )
    with open_trace_text(path, compress) as stream:
        stream.writelines(f"{','.join(cells)}\n" for cells in _rows(requests))


def _check_header(names: list[str]) -> str:
    """Return the arrival column of a valid header."""
    for name in names:
        if name not in _KNOWN:
            near = get_close_matches(name, _KNOWN, 1)
            guess = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"got column {name[:80]!r}, allowed: {_HEADER}{guess}")
    arrivals = [name for name in names if name in UNIT_OF_ARRIVAL]
    if len(arrivals) != 1 or INPUT not in names or OUTPUT not in names:
        raise ValueError(f"got {','.join(names)}, allowed: {_HEADER}")
    return arrivals[0]


def _parse_hash_ids(text: str, input_tokens: int, trace_block_size: int) -> list[int]:
    ids = []
    for word in text.split():
        # 20 digits hold MAX_HASH_ID; more are not worth converting.
        if not (word.isascii() and word.isdigit() and len(word) <= 20) or int(word) > MAX_HASH_ID:
            raise cell_error(HASH_IDS, word, "integers from 0 to 2**64-1 separated by blanks")
        ids.append(int(word))
    needed = -(-input_tokens // trace_block_size)
    if ids and len(ids) != needed:
        raise ValueError(
            f"{HASH_IDS}: got {len(ids)} for input_tokens {input_tokens}, allowed: {needed} of "
            f"{trace_block_size} tokens each (trace_block_size), or none at all"
        )
    return ids


def _rows(requests: RequestTable) -> Iterator[list[str]]:
    columns: list[Iterator[str]] = [
        map(repr, requests.arrival_ms.tolist()),
        map(str, requests.input_tokens.tolist()),
        map(str, requests.output_tokens.tolist()),
    ]
    names = ["arrival_ms", INPUT, OUTPUT]
    if requests.prompt_ids.size:
        has_ids = np.diff(requests.prompt_starts) > 0
        columns.append(
            " ".join(map(str, ids)) if known else ""
            for ids, known in zip(covering_hash_ids(requests), has_ids.tolist(), strict=True)
        )
        names.append(HASH_IDS)
    yield names
    yield from map(list, zip(*columns, strict=True))

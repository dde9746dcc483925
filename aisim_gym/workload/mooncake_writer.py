"""Write a request table as a Mooncake JSONL file."""

import json
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import numpy as np

from aisim_gym.workload.request_table import RequestTable
from aisim_gym.workload.trace_file import TracePath, open_trace_text


def write_mooncake(
    requests: RequestTable, path: TracePath, *, compress: bool | None = None
) -> None:
    """Write one JSON line per request, in the table's order, arrivals and delays in ms.

    Sessions are written with their names, starts and delays. Delta turns are written as their
    additional input: read the file back as a delta trace.

    Read back with the table's ``trace_block_size``, the file gives the same arrivals counted from
    the first (to the last bit if they have at most 15 digits, see ``json_float``), the same lengths
    and the same shared prefixes. Prompts without hash ids get unique ids. Hash ids are renumbered
    when the file is read, so an output token equal to a hash id of a prompt no longer matches it.
    An existing file is replaced.

    Args:
        requests: The table.
        path: Destination; ``~`` is expanded.
        compress: Whether to write gzip; None = if the name ends in ``.gz``.
    """
    with open_trace_text(path, compress) as stream:
        for row in _rows(requests):
            stream.write(json.dumps(row) + "\n")


def covering_hash_ids(requests: RequestTable) -> Iterator[list[int]]:
    """Yield the hash ids of each request's new input, with unique ids for blocks without one."""
    unused_ids = count(int(requests.prompt_ids.max(initial=-1)) + 1)
    needed = -(-requests.new_input_tokens() // requests.trace_block_size)
    for index, blocks in enumerate(needed.tolist()):
        first, last = requests.prompt_starts[index : index + 2]
        hash_ids: list[int] = requests.prompt_ids[first:last].tolist()
        yield hash_ids + list(islice(unused_ids, blocks - len(hash_ids)))


def _rows(requests: RequestTable) -> Iterator[dict[str, Any]]:
    hash_ids = covering_hash_ids(requests)
    new_input_tokens = requests.new_input_tokens().tolist()
    sessions, turns = requests.session_of().tolist(), requests.turn_of().tolist()
    for index, arrival_ms in enumerate(requests.arrival_ms.tolist()):
        row: dict[str, Any] = {}
        if not np.isnan(arrival_ms):
            row["timestamp"] = arrival_ms
        row["input_length"] = new_input_tokens[index]
        row["output_length"] = int(requests.output_tokens[index])
        row["hash_ids"] = next(hash_ids)
        if requests.has_sessions:
            row["session_id"] = requests.session_ids[sessions[index]]
            if turns[index] > 0:
                row["delay"] = float(requests.delay_ms[index])
        if requests.output_starts.size:
            first, last = requests.output_starts[index : index + 2]
            if last > first:
                row["output_token_ids"] = requests.output_ids[first:last].tolist()
        yield row

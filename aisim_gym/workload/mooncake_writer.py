"""Write a request table as a Mooncake JSONL file."""

import gzip
import json
from itertools import count
from pathlib import Path
from typing import TextIO

from aisim_gym.workload.request_table import RequestTable
from aisim_gym.workload.trace_file import TracePath, absolute_path


def write_mooncake(requests: RequestTable, path: TracePath) -> None:
    """Write one JSON line per request, in order of arrival; gzip if the name ends in ``.gz``.

    Read back with the table's ``trace_block_size``, the file gives the same arrivals counted from
    the first (to the last bit if they have at most 15 digits, see ``json_float``), the same lengths
    and the same shared prefixes. Prompts without hash ids get ids that no other prompt has. An
    existing file is replaced.
    """
    where = absolute_path(path)
    unused_ids = count(int(requests.prompt_ids.max(initial=-1)) + 1)
    starts = requests.prompt_starts.tolist()
    with _open_text(where) as stream:
        for index, (arrival_ms, input_tokens, output_tokens) in enumerate(
            zip(
                requests.arrival_ms.tolist(),
                requests.input_tokens.tolist(),
                requests.output_tokens.tolist(),
                strict=True,
            )
        ):
            hash_ids = requests.prompt_ids[starts[index] : starts[index + 1]].tolist()
            if not hash_ids:
                needed = -(-input_tokens // requests.trace_block_size)
                hash_ids = [next(unused_ids) for _ in range(needed)]
            row = {
                "timestamp": arrival_ms,
                "input_length": input_tokens,
                "output_length": output_tokens,
                "hash_ids": hash_ids,
            }
            stream.write(json.dumps(row) + "\n")


def _open_text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "wt", encoding="utf-8", newline="\n")
    return path.open("w", encoding="utf-8", newline="\n")

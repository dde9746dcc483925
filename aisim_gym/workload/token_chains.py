"""Number engine blocks token by token, for workloads whose outputs have known content.

A row can give its output tokens (workloads.md §9.1), and a delta turn continues the prompts and
outputs before it (§5). A hash id stands for the token of the same number, so prompts and outputs
are compared as sequences of tokens.
"""

from array import array

import numpy as np
from numpy.typing import NDArray

from aisim_gym.workload.ragged import Ragged
from aisim_gym.workload.request_table import RequestTable


def number_known_blocks(requests: RequestTable, block_size: int) -> Ragged:
    """Return a number for each leading complete block that another request could share.

    Equal numbers mean equal tokens up to the end of the block. Blocks from the first private token
    of a request on are omitted. In delta sessions such tokens also belong to the later turns, so no
    block is omitted.
    """
    number_of: dict[tuple[int, bytes], int] = {}
    flat, starts = array("q"), array("q", [0])
    turns = requests.turn_of()
    new_input_tokens = requests.new_input_tokens()
    num_own = 0
    chain: list[int] = []  # numbers of the blocks complete so far
    rest = np.empty(0, np.int64)  # tokens after them
    for request in range(len(requests)):
        tokens = _new_tokens(requests, request, int(new_input_tokens[request]), num_own)
        num_own += tokens.size
        if not requests.is_delta:
            is_own = tokens < 0
            tokens = tokens[: np.argmax(is_own)] if is_own.any() else tokens
        if requests.is_delta and turns[request] > 0:
            tokens = np.concatenate((rest, tokens))
        else:
            chain = []
        blocks, rest = np.split(tokens, [tokens.size // block_size * block_size])
        for block in blocks.reshape(-1, block_size):
            key = (chain[-1] if chain else -1, block.tobytes())
            chain.append(number_of.setdefault(key, len(number_of)))
        flat.extend(chain)
        starts.append(len(flat))
    return Ragged(np.array(flat, np.int64), np.array(starts, np.int64))


def _new_tokens(
    requests: RequestTable, request: int, num_new: int, num_own: int
) -> NDArray[np.int64]:
    """Return the tokens of a request's new input and planned output; negative tokens are private.

    Args:
        requests: The table.
        request: Its row.
        num_new: New input tokens.
        num_own: Tokens -1 .. -num_own belong to earlier requests.
    """
    num_output = int(requests.output_tokens[request])
    tokens = np.arange(-num_own - 1, -num_own - 1 - num_new - num_output, -1)
    first, last = requests.prompt_starts[request : request + 2]
    known = np.repeat(requests.prompt_ids[first:last], requests.trace_block_size)[:num_new]
    tokens[: known.size] = known
    if requests.output_starts.size:
        first, last = requests.output_starts[request : request + 2]
        tokens[num_new : num_new + last - first] = requests.output_ids[first:last]
    return tokens

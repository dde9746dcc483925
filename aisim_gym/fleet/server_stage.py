"""First-come-first-served servers on every worker, for tokenization and detokenization.

Rules: replay-runtime.md §17.2. The requirements leave the service time open; here it is
``request_ms + tokens * token_ms`` on the server that is free first. Tokenization serves prompts.
Detokenization serves outputs: the tokens that one request emits in one pass.

The servers of a worker are identical, so only the time until which each is occupied is stored:
``free_ms[worker]`` holds these times as a binary min-heap.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.kernel import kernel
from aisim_gym.tables import F8, I8


class ServerStageRow(Protocol):
    """The stage of one pool, identical for all its workers."""

    num_servers: I8  # per worker; 0: the pool has no such stage
    request_ms: F8
    token_ms: F8


@kernel
def serve(stage: ServerStageRow, free_ms: NDArray[np.float64], tokens: int, now_ms: float) -> float:
    """Assign an arriving job to the server that is free first; return when it completes.

    Args:
        stage: Service times of the stage.
        free_ms: Times of one worker, shape (num_servers or more,); modified in place.
        tokens: Tokens of the prompt or output.
        now_ms: Arrival time, nondecreasing from call to call.
    """
    start_ms = max(float(free_ms[0]), now_ms)
    end_ms = start_ms + (stage.request_ms + tokens * stage.token_ms)
    occupy_first(free_ms, stage.num_servers, end_ms)
    return end_ms


@kernel
def receive_output(
    stage: ServerStageRow,
    free_ms: NDArray[np.float64],
    tokens: int,
    now_ms: float,
    last_received_ms: float,
) -> float:
    """Serve an output of a request like :func:`serve`; return when the client receives it.

    Outputs of one request are delivered in order, although another server may be faster: an output
    is delivered no earlier than ``last_received_ms``, the time of the previous one (NaN if none).
    """
    end_ms = serve(stage, free_ms, tokens, now_ms)
    return last_received_ms if last_received_ms > end_ms else end_ms


@kernel
def occupy_first(free_ms: NDArray[np.float64], num_servers: int, until_ms: float) -> None:
    """Occupy the server that is free first until a time not before it is free."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= num_servers:
            break
        if child + 1 < num_servers and free_ms[child + 1] < free_ms[child]:
            child += 1
        if free_ms[child] >= until_ms:
            break
        free_ms[at] = free_ms[child]
        at = child
    free_ms[at] = until_ms

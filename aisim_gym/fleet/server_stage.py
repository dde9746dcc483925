"""A stage of first-come-first-served servers on every worker: tokenization, detokenization.

Rules: replay-runtime.md §17.2. The time that a job takes is ours, the requirements leave it open:
``request_ms + tokens * token_ms`` on the server that is free first. Tokenization serves prompts;
detokenization serves outputs, each being what one request emits in one pass.

A worker's servers are equal, so of each only the time counts until which it is taken:
``free_ms[worker]`` holds these times as a binary heap, the first to be free in front.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.kernel import kernel
from aisim_gym.tables import F8, I8


class ServerStageRow(Protocol):
    """The stage of one pool; the same for all its workers."""

    num_servers: I8  # per worker; 0: the pool has no such stage
    request_ms: F8
    token_ms: F8


@kernel
def serve(stage: ServerStageRow, free_ms: NDArray[np.float64], tokens: int, now_ms: float) -> float:
    """Give a job that arrives now to the server that is free first; return when it is done.

    Args:
        stage: How long jobs take.
        free_ms: Of one worker, shape (num_servers or more,); modified in place.
        tokens: Of the prompt or the output.
        now_ms: Arrival; calls must come in this order.
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
    """Return when the client receives an output of a request, and serve it like ``serve``.

    Outputs of one request arrive in order, so one is held back until the client has the one before
    it, received at ``last_received_ms`` (NaN if there is none): another server may be quicker.
    """
    end_ms = serve(stage, free_ms, tokens, now_ms)
    return last_received_ms if last_received_ms > end_ms else end_ms


@kernel
def occupy_first(free_ms: NDArray[np.float64], num_servers: int, until_ms: float) -> None:
    """Let the server that is free first be taken until a time not before that."""
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

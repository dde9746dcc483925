"""What a run records per request: admissions, tokens, handoff times, outcome.

Rules: replay-runtime.md §15.1, §15.6. Times are ms, NaN while unknown.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.slices import NUM_CLASSES, give_back_slice, take_slice
from aisim_gym.engine.tables import NONE
from aisim_gym.kernel import kernel
from aisim_gym.metrics.gap_statistics import StatisticsRow, add_gap
from aisim_gym.tables import F8, I1, I4, I8, Table, make_table

REQUEST_OPEN, REQUEST_COMPLETED, REQUEST_REJECTED, REQUEST_FAILED, REQUEST_CANCELED = 0, 1, 2, 3, 4
POOL_PREFILL, POOL_DECODE, POOL_AGGREGATED = 0, 1, 2
_CHUNK = 64
STATUS_NAMES = ("open", "completed", "rejected", "failed", "canceled")


class RequestRow(Protocol):
    """One request: what is asked for and what happened to it.

    A list is sorted by arrival, sessions are by session and turn.
    """

    arrival_ms: F8
    first_admit_ms: F8
    prefill_admit_ms: F8  # disaggregated only, like the next five
    source_held_ms: F8
    destination_reserved_ms: F8
    destination_activated_ms: F8
    decode_admit_ms: F8
    source_released_ms: F8
    first_token_ms: F8
    second_token_ms: F8
    last_token_ms: F8
    terminal_ms: F8
    row: I8  # index in the source
    content_start: I8  # identities of shared prompt blocks
    private_base: I8
    gap_chunk: I8  # last chunk of its gaps while it decodes, or NONE
    shared_blocks: I4
    input_tokens: I4
    output_tokens: I4  # asked for
    emitted_tokens: I4
    first_reused_tokens: I4  # prefix-cache hit at the first admission
    most_reused_tokens: I4  # over all admissions; disaggregated: at prefill
    decode_reused_tokens: I4  # the same at decode, NONE before; disaggregated only
    prefill_scheduler: I4  # scheduler ids of the first assignment, or NONE
    decode_scheduler: I4
    decode_route: I4  # scheduler chosen for decode, also if it refused
    prefill_admissions: I4
    decode_admissions: I4  # aggregated: all admissions
    session: I4  # row, or NONE
    status: I1  # REQUEST_...
    is_arrived: I1  # 1: admitted by the runtime; before, arrival_ms is what the workload plans


class AdmissionRow(Protocol):
    """One admission, in order of occurrence; kept only when per-request records are captured."""

    request: I8
    pool: I8
    at_ms: F8
    reused_tokens: I8


@kernel
def gaps_fit(gaps: NDArray[np.float64], gap_heads: NDArray[np.int64], tokens: int) -> bool:
    """Return whether ``tokens`` more tokens can surely be recorded without growth."""
    return bool(gap_heads[NUM_CLASSES] + tokens * _CHUNK <= len(gaps))


@kernel
def record_token(
    request: RequestRow, gaps: NDArray[np.float64], gap_heads: NDArray[np.int64], now_ms: float
) -> None:
    """Record a token that reaches the client.

    Gaps to the previous token are kept in chunks until the request ends: only completed requests
    enter the statistics. The first element of a chunk points to the one before it.
    """
    if request.emitted_tokens == 0:
        request.first_token_ms = now_ms
    else:
        if request.emitted_tokens == 1:
            request.second_token_ms = now_ms
        at = (request.emitted_tokens - 1) % (_CHUNK - 1)
        if at == 0:
            chunk = take_slice(gaps, gap_heads, _CHUNK)
            gaps[chunk] = request.gap_chunk
            request.gap_chunk = chunk
        gaps[request.gap_chunk + 1 + at] = now_ms - request.last_token_ms
    request.last_token_ms = now_ms
    request.emitted_tokens += 1


@kernel
def record_terminal(
    request: RequestRow,
    status: int,
    gaps: NDArray[np.float64],
    gap_heads: NDArray[np.int64],
    statistics: Table[StatisticsRow],
    buckets: NDArray[np.int64],
    now_ms: float,
) -> None:
    """Record the outcome of an open request."""
    request.status = status
    request.terminal_ms = now_ms
    filled = (request.emitted_tokens - 2) % (_CHUNK - 1) + 1
    while request.gap_chunk != NONE:
        chunk = request.gap_chunk
        request.gap_chunk = int(gaps[chunk])
        if status == REQUEST_COMPLETED:
            for i in range(filled):
                add_gap(statistics, buckets, gaps[chunk + 1 + i])
        filled = _CHUNK - 1
        give_back_slice(gaps, gap_heads, chunk, _CHUNK)


@kernel
def record_admission(request: RequestRow, pool: int, reused_tokens: int, now_ms: float) -> None:
    """Record that a rank starts to work on a request, the first time or again.

    Args:
        request: Modified in place.
        pool: ``POOL_PREFILL`` or ``POOL_DECODE`` of a disaggregated fleet, ``POOL_AGGREGATED``.
        reused_tokens: Prompt tokens found in the prefix cache.
        now_ms: Start of the pass.
    """
    if math.isnan(request.first_admit_ms):
        request.first_admit_ms = now_ms
        request.first_reused_tokens = reused_tokens
    if pool == POOL_PREFILL:
        if request.prefill_admissions == 0:
            request.prefill_admit_ms = now_ms
        request.prefill_admissions += 1
    else:
        if pool == POOL_DECODE:
            if request.decode_admissions == 0:
                request.decode_admit_ms = now_ms
            request.decode_reused_tokens = max(request.decode_reused_tokens, reused_tokens)
        request.decode_admissions += 1
    if pool != POOL_DECODE and reused_tokens > request.most_reused_tokens:
        request.most_reused_tokens = reused_tokens


def make_requests(count: int) -> Table[RequestRow]:
    """Return ``count`` request rows with nothing recorded yet."""
    table = make_table(RequestRow, count)
    for name, hint in RequestRow.__annotations__.items():
        if hint is F8:
            table[name][:] = math.nan
    for name in ("gap_chunk", "decode_reused_tokens", "prefill_scheduler", "session"):
        table[name][:] = NONE
    for name in ("decode_scheduler", "decode_route"):
        table[name][:] = NONE
    return table

"""Per-request records of a run: admissions, tokens, handoff times, outcome.

Rules: replay-runtime.md §15.1, §15.6. Times are ms, NaN while unknown.
"""

import math
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.slices import elements_for, give_back_slice, slices_fit, take_slice
from aisim_gym.engine.tables import NONE
from aisim_gym.kernel import kernel
from aisim_gym.metrics.gap_statistics import GAP, RATE, StatisticsRow, add_gap
from aisim_gym.metrics.token_log import EntryRow, TokenLogRow, weigh_stream
from aisim_gym.tables import B1, F8, I1, I4, I8, Table, make_table

REQUEST_OPEN, REQUEST_COMPLETED, REQUEST_REJECTED, REQUEST_FAILED, REQUEST_CANCELED = 0, 1, 2, 3, 4
POOL_PREFILL, POOL_DECODE, POOL_AGGREGATED = 0, 1, 2
_CHUNK = 64
_BREAK = 3
"""Elements of a break in a token stream: first and last entry before it, its gap in ms."""
STATUS_NAMES = ("open", "completed", "rejected", "failed", "canceled")


class RequestRow(Protocol):
    """One request: its parameters and its recorded times and counts.

    Lists are sorted by arrival, sessions by session and turn.
    """

    arrival_ms: F8
    first_admit_ms: F8
    prefill_admit_ms: F8  # disaggregated only, as are the next five
    source_held_ms: F8
    destination_reserved_ms: F8
    destination_activated_ms: F8
    decode_admit_ms: F8
    source_released_ms: F8
    first_token_ms: F8
    second_token_ms: F8
    last_token_ms: F8
    terminal_ms: F8
    source_index: I8  # in the trace, or the order in which requests were given
    content_start: I8  # identities of shared prompt blocks
    private_base: I8
    break_chunk: I8  # last chunk of breaks in its token stream, or NONE
    shared_blocks: I4
    input_tokens: I4
    output_tokens: I4  # requested output length
    emitted_tokens: I4
    num_breaks: I4
    zero_gaps: I4  # gaps between tokens of one burst
    first_reused_tokens: I4  # prefix-cache hit at the first admission
    most_reused_tokens: I4  # maximum over all admissions; disaggregated: at prefill
    decode_reused_tokens: I4  # likewise at decode, NONE before; disaggregated only
    prefill_scheduler: I4  # scheduler ids of the first assignment, or NONE
    decode_scheduler: I4
    decode_route: I4  # scheduler chosen for decode, even if it refused
    prefill_admissions: I4
    decode_admissions: I4  # aggregated: all admissions
    session: I4  # row, or NONE
    status: I1  # REQUEST_...
    is_arrived: B1  # admitted by the runtime; until then arrival_ms is the planned time


class AdmissionRow(Protocol):
    """One admission, in order of occurrence; recorded only with per-request capture."""

    request: I8
    pool: I8
    at_ms: F8
    reused_tokens: I8


@kernel
def elements_for_breaks(count: int) -> int:
    """Return the maximum number of elements of ``count`` breaks; each may begin a chunk."""
    return elements_for(_CHUNK, count)


@kernel
def breaks_fit(breaks: NDArray[np.float64], break_heads: NDArray[np.int64], count: int) -> bool:
    """Return whether ``count`` more breaks are certain to fit without growth."""
    return slices_fit(breaks, break_heads, _CHUNK, count)


@kernel
def record_break(
    request: RequestRow,
    breaks: NDArray[np.float64],
    break_heads: NDArray[np.int64],
    first_entry: int,
    last_entry: int,
    gap_ms: float,
) -> None:
    """Record a token whose log entry does not directly follow that of the previous token.

    Breaks are stored in chunks until the request ends, because only completed requests enter the
    statistics. The first element of a chunk points to the previous chunk.

    Args:
        request: Modified in place.
        breaks: All chunks.
        break_heads: Their free lists.
        first_entry: First entry of the unbroken stream before the gap, ``NONE`` if not in the log.
        last_entry: Last entry of that stream.
        gap_ms: Time since the previous token.
    """
    per_chunk = (_CHUNK - 1) // _BREAK
    at = request.num_breaks % per_chunk
    if at == 0:
        chunk = take_slice(breaks, break_heads, _CHUNK)
        breaks[chunk] = request.break_chunk
        request.break_chunk = chunk
    place = request.break_chunk + 1 + _BREAK * at
    breaks[place] = first_entry
    breaks[place + 1] = last_entry
    breaks[place + 2] = gap_ms
    request.num_breaks += 1


@kernel
def weigh_broken_streams(
    request: RequestRow, breaks: NDArray[np.float64], log: TokenLogRow, entries: Table[EntryRow]
) -> None:
    """Count the gaps of a completed request up to its last break."""
    left = request.num_breaks
    chunk = request.break_chunk
    while chunk != NONE:
        filled = (left - 1) % ((_CHUNK - 1) // _BREAK) + 1
        for i in range(filled):
            place = chunk + 1 + _BREAK * i
            if breaks[place] != NONE:
                weigh_stream(log, entries, int(breaks[place]), int(breaks[place + 1]))
        left -= filled
        chunk = int(breaks[chunk])


@kernel
def record_terminal(
    request: RequestRow,
    status: int,
    breaks: NDArray[np.float64],
    break_heads: NDArray[np.int64],
    statistics: Table[StatisticsRow],
    buckets: NDArray[np.int64],
    now_ms: float,
) -> None:
    """Record the outcome of an open request."""
    request.status = status
    request.terminal_ms = now_ms
    if status == REQUEST_COMPLETED and request.zero_gaps > 0:
        add_gap(statistics[GAP], statistics[RATE], buckets, 0.0, request.zero_gaps)
    left = request.num_breaks
    while request.break_chunk != NONE:
        chunk = request.break_chunk
        request.break_chunk = int(breaks[chunk])
        filled = (left - 1) % ((_CHUNK - 1) // _BREAK) + 1
        left -= filled
        if status == REQUEST_COMPLETED:
            for i in range(filled):
                gap_ms = breaks[chunk + 3 + _BREAK * i]
                add_gap(statistics[GAP], statistics[RATE], buckets, gap_ms, 1)
        give_back_slice(breaks, break_heads, chunk, _CHUNK)


@kernel
def record_admission(request: RequestRow, pool: int, reused_tokens: int, now_ms: float) -> None:
    """Record that a rank starts to process a request, for the first time or again.

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
    row = make_table(RequestRow, 1)
    for name, hint in RequestRow.__annotations__.items():
        if hint is F8:
            row[name][0] = math.nan
    for name in ("break_chunk", "decode_reused_tokens", "prefill_scheduler", "session"):
        row[name][0] = NONE
    for name in ("decode_scheduler", "decode_route"):
        row[name][0] = NONE
    return cast(Table[RequestRow], np.repeat(cast(NDArray[np.void], row), count))

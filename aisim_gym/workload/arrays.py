"""Requests held in arrays or lists (workloads.md §13; not shifted in time)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aisim_gym.errors import WorkloadError
from aisim_gym.number_text import number_text
from aisim_gym.workload.prompt_ids import MAX_HASH_ID, PromptIds, check_trace_block_size
from aisim_gym.workload.request_table import DEFAULT_TRACE_BLOCK_SIZE, MAX_TOKENS, RequestTable
from aisim_gym.workload.speedup import check_speedup_ratio, speed_up_arrivals
from aisim_gym.workload.table_order import table_in_arrival_order

HashIds = Sequence[int] | NDArray[np.integer]
"""Hash ids of one prompt."""


def requests_from_arrays(
    arrival_ms: ArrayLike,
    input_tokens: ArrayLike,
    output_tokens: ArrayLike,
    hash_ids: Sequence[HashIds | None] | None = None,
    trace_block_size: int = DEFAULT_TRACE_BLOCK_SIZE,
    arrival_speedup_ratio: float = 1.0,
) -> RequestTable:
    """Return a request table built from arrays, in order of arrival.

    Arrivals count from the start of the replay: they are divided by ``arrival_speedup_ratio`` but,
    unlike the arrivals of a trace file, not shifted to begin at 0 (workloads.md §13).

    Args:
        arrival_ms: Shape (requests,), finite numbers >= 0, in any order.
        input_tokens: Shape (requests,), integers >= 1.
        output_tokens: Shape (requests,), integers >= 0.
        hash_ids: One sequence of integers 0 .. 2**64-1 per request, at least ceil(input /
            trace_block_size) of them (the rest is ignored); None or empty if the prompt shares no
            block with another.
        trace_block_size: Tokens per hash id, >= 1.
        arrival_speedup_ratio: Finite and > 0.

    Raises:
        WorkloadError: Names the request (its index) and the field.
    """
    check_trace_block_size(trace_block_size)
    check_speedup_ratio(arrival_speedup_ratio)
    arrivals = _arrival_column(arrival_ms)
    inputs = _token_column("input_tokens", input_tokens, arrivals.size, minimum=1)
    outputs = _token_column("output_tokens", output_tokens, arrivals.size, minimum=0)
    prompts = None
    if hash_ids is not None:
        if len(hash_ids) != arrivals.size:
            raise WorkloadError(
                f"hash_ids: got {len(hash_ids)} prompts for {arrivals.size} arrivals"
            )
        interned = PromptIds()
        for index, (ids, length) in enumerate(zip(hash_ids, inputs.tolist(), strict=True)):
            covering = _covering_ids(index, ids, length, trace_block_size)
            interned.add(covering, len(covering))
        prompts = interned.build()
    arrivals = speed_up_arrivals(arrivals, arrival_speedup_ratio)
    return table_in_arrival_order(arrivals, inputs, outputs, prompts, trace_block_size)


def _arrival_column(values: ArrayLike) -> NDArray[np.float64]:
    column = np.asarray(values)
    if column.ndim != 1:
        raise WorkloadError(f"arrival_ms: got shape {column.shape}, allowed: one dimension")
    if column.dtype.kind not in "iuf":
        raise WorkloadError(f"arrival_ms: got dtype {column.dtype}, allowed: numbers (ms)")
    arrivals = column.astype(np.float64)
    good = np.isfinite(arrivals) & (arrivals >= 0.0)
    if not good.all():
        index = int(np.argmin(good))
        raise WorkloadError(
            f"request {index}: arrival_ms: got {number_text(float(arrivals[index]))}, "
            "allowed: a finite number >= 0"
        )
    return arrivals


def _token_column(name: str, values: ArrayLike, count: int, minimum: int) -> NDArray[np.int64]:
    column = np.asarray(values)
    if column.shape != (count,):
        raise WorkloadError(f"{name}: got shape {column.shape} for {count} arrivals")
    if column.dtype.kind in "iu":
        good = (column >= minimum) & (column <= MAX_TOKENS)
    else:
        # As objects, because NumPy would read [1, 2**63] as floats.
        column = np.asarray(values, dtype=np.object_)
        items: list[object] = column.tolist()
        good = np.array([_is_integer_in(item, minimum, MAX_TOKENS) for item in items], np.bool_)
    if not good.all():
        index = int(np.argmin(good))
        raise WorkloadError(
            f"request {index}: {name}: got {column[index]!s}, "
            f"allowed: an integer from {minimum} to {MAX_TOKENS}"
        )
    return column.astype(np.int64)


def _is_integer_in(item: object, minimum: int, maximum: int) -> bool:
    if isinstance(item, bool) or not isinstance(item, int | np.integer):
        return False
    return minimum <= int(item) <= maximum


def _covering_ids(
    index: int, hash_ids: HashIds | None, input_tokens: int, trace_block_size: int
) -> list[int]:
    """Return the hash ids that cover the prompt of request ``index``; empty if it has none."""
    if hash_ids is None:
        return []
    ids: list[int] = hash_ids.tolist() if isinstance(hash_ids, np.ndarray) else list(hash_ids)
    for item in ids:
        if not _is_integer_in(item, 0, MAX_HASH_ID):
            raise WorkloadError(
                f"request {index}: hash_ids: got {item!r}, allowed: integers from 0 to 2**64-1"
            )
    needed = -(-input_tokens // trace_block_size)
    if 0 < len(ids) < needed:
        raise WorkloadError(
            f"request {index}: hash_ids: got {len(ids)} for input_tokens {input_tokens}, "
            f"allowed: at least {needed} of {trace_block_size} tokens each, or none at all"
        )
    return ids[:needed]

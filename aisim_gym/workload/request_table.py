"""The one form in which every workload reaches the replay: a table of requests.

Rules: workloads.md §2 (fields), §3 (hash ids), §13 (in-memory lists are not shifted in time).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aisim_gym.errors import WorkloadError
from aisim_gym.number_text import number_text
from aisim_gym.workload.prompt_ids import MAX_HASH_ID, PromptIds, take_prompts

DEFAULT_TRACE_BLOCK_SIZE = 512
"""Tokens per hash id when nothing else is said."""

MAX_TOKENS = 2**31 - 1
"""Longest prompt or output of one request: what the replay's tables hold."""


HashIds = Sequence[int] | NDArray[np.integer]
"""Hash ids of one prompt."""


@dataclass(frozen=True, eq=False, repr=False)
class RequestTable:
    """Requests in order of arrival, as read-only columns.

    The columns are copies: nothing a caller passes in is kept or modified. Build a table with
    :func:`requests_from_arrays` or a reader, which check their input; this class does not.

    Attributes:
        row: Shape (requests,), int64: index of the request in its source, from 0.
        arrival_ms: Shape (requests,), float64, ascending; equal arrivals keep the source's order.
        input_tokens: Shape (requests,), int64, >= 1.
        output_tokens: Shape (requests,), int64, >= 0.
        prompt_ids: Interned hash ids of all prompts, one prompt after the other, int64.
        prompt_starts: Shape (requests + 1,), int64: prompt i is
            ``prompt_ids[prompt_starts[i]:prompt_starts[i + 1]]``, ceil(input / trace_block_size)
            ids, or none if the prompt shares no block with any other.
        trace_block_size: Tokens per hash id.
    """

    row: NDArray[np.int64]
    arrival_ms: NDArray[np.float64]
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    prompt_ids: NDArray[np.int64]
    prompt_starts: NDArray[np.int64]
    trace_block_size: int = DEFAULT_TRACE_BLOCK_SIZE

    def __post_init__(self) -> None:
        """Freeze a private copy of every column."""
        for field in fields(self):
            if field.name != "trace_block_size":
                dtype = np.float64 if field.name == "arrival_ms" else np.int64
                column = np.array(getattr(self, field.name), dtype=dtype)
                column.setflags(write=False)
                object.__setattr__(self, field.name, column)

    def __len__(self) -> int:
        """Return the number of requests."""
        return self.arrival_ms.size

    def __repr__(self) -> str:
        """Return count, duration, mean rate and mean lengths."""
        if len(self) == 0:
            return "RequestTable(0 requests)"
        rate = self.mean_rate_rps
        rate_text = "all at once" if rate is None else f"{rate:.4g} req/s"
        return (
            f"RequestTable({len(self)} requests over {self.duration_s:.3f} s, {rate_text}, "
            f"mean input {self.input_tokens.mean():.1f} tokens, "
            f"mean output {self.output_tokens.mean():.1f} tokens)"
        )

    @property
    def duration_s(self) -> float:
        """Seconds from the first arrival to the last."""
        if len(self) == 0:
            return 0.0
        return float(self.arrival_ms[-1] - self.arrival_ms[0]) / 1000.0

    @property
    def mean_rate_rps(self) -> float | None:
        """Requests per second over the duration; None if all arrive at one instant."""
        duration_s = self.duration_s
        return len(self) / duration_s if duration_s > 0.0 else None

    def between(self, start_ms: float, end_ms: float) -> "RequestTable":
        """Return the requests with ``start_ms <= arrival_ms < end_ms``, in time since the start.

        Rows, hash ids and their numbers stay as they are.

        Raises:
            ValueError: If ``start_ms`` is not finite or ``end_ms`` is less (or NaN).
        """
        if not (np.isfinite(start_ms) and start_ms <= end_ms):
            raise ValueError(
                f"between: got start_ms {number_text(start_ms)} and end_ms {number_text(end_ms)}, "
                "allowed: a finite start and an end that is not before it"
            )
        first, last = np.searchsorted(self.arrival_ms, [start_ms, end_ms], side="left")
        return self._slice(int(first), int(last), start_ms)

    def head(self, count: int) -> "RequestTable":
        """Return the first ``count`` requests (fewer if the table is shorter).

        Raises:
            ValueError: If ``count`` is negative.
        """
        if count < 0:
            raise ValueError(f"head: got count {count}, allowed: an integer >= 0")
        return self._slice(0, min(count, len(self)), 0.0)

    def _slice(self, first: int, last: int, origin_ms: float) -> "RequestTable":
        starts = self.prompt_starts[first : last + 1]
        return RequestTable(
            row=self.row[first:last],
            arrival_ms=self.arrival_ms[first:last] - origin_ms,
            input_tokens=self.input_tokens[first:last],
            output_tokens=self.output_tokens[first:last],
            prompt_ids=self.prompt_ids[starts[0] : starts[-1]],
            prompt_starts=starts - starts[0],
            trace_block_size=self.trace_block_size,
        )


def requests_from_arrays(
    arrival_ms: ArrayLike,
    input_tokens: ArrayLike,
    output_tokens: ArrayLike,
    hash_ids: Sequence[HashIds | None] | None = None,
    trace_block_size: int = DEFAULT_TRACE_BLOCK_SIZE,
    arrival_speedup_ratio: float = 1.0,
) -> RequestTable:
    """Return the requests held in arrays, in order of arrival.

    Arrivals count from the start of the replay: they are divided by ``arrival_speedup_ratio`` but,
    unlike the arrivals of a trace file, not shifted to begin at 0 (workloads.md §13).

    Args:
        arrival_ms: Shape (requests,), finite numbers >= 0, in any order.
        input_tokens: Shape (requests,), integers >= 1.
        output_tokens: Shape (requests,), integers >= 0.
        hash_ids: One sequence of integers 0 .. 2**64-1 per request, at least
            ceil(input / trace_block_size) of them (the rest is ignored); None or an empty one if
            the prompt shares no block with any other.
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
    prompts: PromptIds | None = None
    if hash_ids is not None:
        if len(hash_ids) != arrivals.size:
            raise WorkloadError(
                f"hash_ids: got {len(hash_ids)} prompts for {arrivals.size} arrivals"
            )
        prompts = PromptIds()
        for index, (ids, length) in enumerate(zip(hash_ids, inputs.tolist(), strict=True)):
            prompts.add(_covering_ids(index, ids, length, trace_block_size))
    arrivals = speed_up_arrivals(arrivals, arrival_speedup_ratio)
    return table_in_arrival_order(arrivals, inputs, outputs, prompts, trace_block_size)


def speed_up_arrivals(
    arrival_ms: NDArray[np.float64], arrival_speedup_ratio: float
) -> NDArray[np.float64]:
    """Return finite arrivals divided by the ratio; they must be finite afterwards too."""
    with np.errstate(over="ignore"):
        sped_up_ms = arrival_ms / arrival_speedup_ratio
    finite = np.isfinite(sped_up_ms)
    if not finite.all():
        raise WorkloadError(
            f"request {int(np.argmin(finite))}: arrival_ms: got infinity after division by "
            f"arrival_speedup_ratio {number_text(arrival_speedup_ratio)}"
        )
    return sped_up_ms


def table_in_arrival_order(
    arrival_ms: NDArray[np.float64],
    input_tokens: NDArray[np.int64],
    output_tokens: NDArray[np.int64],
    prompts: PromptIds | None = None,
    trace_block_size: int = DEFAULT_TRACE_BLOCK_SIZE,
) -> RequestTable:
    """Return checked columns in source order as a table; ``row`` is the position in the source.

    The sort is stable: equal arrivals keep the order of the source (workloads.md §4.4).
    """
    order = np.argsort(arrival_ms, kind="stable")
    if prompts is None:
        flat = np.empty(0, np.int64)
        starts = np.zeros(arrival_ms.size + 1, np.int64)
    else:
        flat, starts = take_prompts(*prompts.columns(), order)
    return RequestTable(
        row=order,
        arrival_ms=arrival_ms[order],
        input_tokens=input_tokens[order],
        output_tokens=output_tokens[order],
        prompt_ids=flat,
        prompt_starts=starts,
        trace_block_size=trace_block_size,
    )


def check_trace_block_size(trace_block_size: int) -> None:
    """Raise WorkloadError unless ``trace_block_size`` is an integer >= 1."""
    if isinstance(trace_block_size, bool) or not isinstance(trace_block_size, int | np.integer):
        raise WorkloadError(f"trace_block_size: got {trace_block_size!r}, allowed: an integer >= 1")
    if trace_block_size < 1:
        raise WorkloadError(f"trace_block_size must be greater than 0, got {trace_block_size}")


def check_speedup_ratio(ratio: float) -> None:
    """Raise WorkloadError, in the reference's words, unless the ratio is finite and > 0."""
    if not (np.isfinite(ratio) and ratio > 0.0):
        raise WorkloadError(
            f"arrival_speedup_ratio must be a finite positive number, got {number_text(ratio)}"
        )


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
    """Return the hash ids that cover the prompt of request ``index``; none if it has none."""
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

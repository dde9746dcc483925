"""Build a request table from checked columns, sorted by arrival or by session and turn."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aisim_gym.workload.ragged import Ragged
from aisim_gym.workload.request_table import DEFAULT_TRACE_BLOCK_SIZE, RequestTable


def table_in_arrival_order(
    arrival_ms: NDArray[np.float64],
    input_tokens: NDArray[np.int64],
    output_tokens: NDArray[np.int64],
    prompts: Ragged | None = None,
    trace_block_size: int = DEFAULT_TRACE_BLOCK_SIZE,
    outputs: Ragged | None = None,
) -> RequestTable:
    """Return a plain list; ``row`` is the position in the source.

    The sort is stable: equal arrivals keep the order of the source (workloads.md §4.4).
    """
    order = np.argsort(arrival_ms, kind="stable")
    prompts = (prompts or Ragged.empty(order.size)).take(order)
    output_ids, output_starts = _output_columns(outputs, order)
    return RequestTable(
        row=order,
        arrival_ms=arrival_ms[order],
        input_tokens=input_tokens[order],
        output_tokens=output_tokens[order],
        prompt_ids=prompts.flat,
        prompt_starts=prompts.starts,
        trace_block_size=trace_block_size,
        output_ids=output_ids,
        output_starts=output_starts,
    )


def table_in_session_order(
    sessions: NDArray[np.int64],
    session_ids: Sequence[str],
    start_ms: NDArray[np.float64],
    delay_ms: NDArray[np.float64],
    new_input_tokens: NDArray[np.int64],
    output_tokens: NDArray[np.int64],
    prompts: Ragged | None = None,
    trace_block_size: int = DEFAULT_TRACE_BLOCK_SIZE,
    outputs: Ragged | None = None,
    *,
    is_delta: bool = False,
) -> RequestTable:
    """Return sessions in numeric order, each with its turns in the source's order.

    Args:
        sessions: Shape (requests,): session 0 .. sessions - 1 of each request, none left out.
        session_ids: Name of each session.
        start_ms: Shape (requests,), read at first turns only; NaN for none.
        delay_ms: Shape (requests,), think time, not read at first turns.
        new_input_tokens: Shape (requests,): the prompt, or what a delta turn adds to it.
        output_tokens: Shape (requests,).
        prompts: Numbers of the hash ids of ``new_input_tokens``; None if all prompts are unique.
        trace_block_size: Tokens per hash id.
        outputs: Tokens of the outputs whose content is given.
        is_delta: Whether a prompt continues all earlier turns of its session.
    """
    order = np.argsort(sessions, kind="stable")
    in_order = sessions[order]
    is_first = np.diff(in_order, prepend=-1) > 0
    session_starts = np.append(np.flatnonzero(is_first), order.size)
    inputs, planned = new_input_tokens[order], output_tokens[order]
    if is_delta:
        # Tokens up to the end of a turn's input, minus those before the session.
        before = np.cumsum(inputs + planned) - planned - inputs
        inputs = before + inputs - before[session_starts[:-1]][in_order]
    prompts = (prompts or Ragged.empty(order.size)).take(order)
    output_ids, output_starts = _output_columns(outputs, order)
    return RequestTable(
        row=order,
        arrival_ms=np.where(is_first, start_ms[order], np.nan),
        input_tokens=inputs,
        output_tokens=planned,
        prompt_ids=prompts.flat,
        prompt_starts=prompts.starts,
        trace_block_size=trace_block_size,
        session_starts=session_starts,
        delay_ms=np.where(is_first, 0.0, delay_ms[order]),
        session_ids=tuple(session_ids),
        is_delta=is_delta,
        output_ids=output_ids,
        output_starts=output_starts,
    )


def _output_columns(outputs: Ragged | None, order: NDArray[np.int64]) -> Ragged:
    """Return the outputs in order; both columns are empty if no output content is given."""
    if outputs is None or outputs.flat.size == 0:
        return Ragged(np.empty(0, np.int64), np.empty(0, np.int64))
    return outputs.take(order)

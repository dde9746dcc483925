"""Transform request tables: slice, change rates, stamps and lengths, merge.

Every function returns a new table and does not modify its argument. A "unit" below is a request of
a list, or a session with all its turns.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import WorkloadError
from aisim_gym.number_text import number_text
from aisim_gym.workload.ragged import Ragged, offsets_of
from aisim_gym.workload.request_table import RequestTable
from aisim_gym.workload.speedup import check_speedup_ratio, speed_up_arrivals
from aisim_gym.workload.table_order import table_in_arrival_order

COPY_JITTER_MS = 1000.0
"""Maximum delay of a copy made by :func:`scale_rate` after its original."""


class LengthCheck(NamedTuple):
    """A table without overlong requests, and the number of changed requests.

    Attributes:
        requests: The remaining requests.
        num_changed: Requests left out or cut.
    """

    requests: RequestTable
    num_changed: int


def slice_requests(
    requests: RequestTable, start_s: float = 0.0, duration_s: float | None = None
) -> RequestTable:
    """Return the units that arrive in ``[start_s, start_s + duration_s)``; ``start_s`` is time 0.

    A session is kept with all its turns if it starts there (:meth:`RequestTable.between`).

    Args:
        requests: The table.
        start_s: In the table's time, seconds, >= 0.
        duration_s: Seconds, > 0; None = up to the end.

    Raises:
        WorkloadError: If nothing arrives there, or an argument is out of range.
        ValueError: If a session has no start.
    """
    if not (math.isfinite(start_s) and start_s >= 0.0):
        raise WorkloadError(f"start_s: got {number_text(start_s)}, allowed: finite and >= 0")
    if duration_s is not None and not duration_s > 0.0:
        raise WorkloadError(f"duration_s: got {number_text(duration_s)}, allowed: > 0")
    end_s = math.inf if duration_s is None else start_s + duration_s
    part = requests.between(start_s * 1000.0, end_s * 1000.0)
    if len(part) == 0:
        if len(requests) == 0:
            raise WorkloadError("slice: the table has no requests")
        until = "on" if duration_s is None else f"for duration_s {duration_s:g}"
        first_s, last_s = requests.start_ms.min() / 1000.0, requests.start_ms.max() / 1000.0
        raise WorkloadError(
            f"nothing arrives from start_s {start_s:g} {until}: the first arrival is at "
            f"{first_s:g} s, the last at {last_s:g} s"
        )
    return part


def spread_stamps(requests: RequestTable, spread_ms: float) -> RequestTable:
    """Return the table with equal stamps spread out (rulings.md 9).

    The k-th of n units that share a stamp (k = 0 .. n - 1, in the table's order) moves to ``stamp +
    spread_ms * k / n``. Intended for traces whose stamps are rounded down to a multiple of
    ``spread_ms``, whose requests would otherwise arrive in batches.

    Args:
        requests: The table; sessions without a start are unchanged.
        spread_ms: Finite and >= 0; 0 changes nothing.

    Raises:
        WorkloadError: If ``spread_ms`` is out of range.
    """
    if not (math.isfinite(spread_ms) and spread_ms >= 0.0):
        raise WorkloadError(f"spread_ms: got {number_text(spread_ms)}, allowed: finite and >= 0")
    stamps = requests.start_ms
    _, group, counts = np.unique(stamps, return_inverse=True, return_counts=True)
    by_group = np.argsort(group, kind="stable")
    place = np.empty(stamps.size, np.int64)
    place[by_group] = np.arange(stamps.size) - offsets_of(counts)[group[by_group]]
    return _with_starts(requests, stamps + spread_ms * place / counts[group])


def speed_up(requests: RequestTable, ratio: float) -> RequestTable:
    """Return the table with all times, arrivals and delays, divided by ``ratio`` (> 0).

    The rate grows by ``ratio``, and bursts shorten by it. To change the rate alone, see
    :func:`scale_rate`.

    Raises:
        WorkloadError: If the ratio is out of range, or a time is not finite after division.
    """
    check_speedup_ratio(ratio)
    delay_ms = speed_up_arrivals(requests.delay_ms, ratio)
    if not requests.has_sessions:
        return replace(requests, arrival_ms=speed_up_arrivals(requests.arrival_ms, ratio))
    starts = requests.start_ms.copy()
    known = np.isfinite(starts)
    starts[known] = speed_up_arrivals(starts[known], ratio)
    return replace(_with_starts(requests, starts), delay_ms=delay_ms)


def scale_rate(requests: RequestTable, factor: float, seed: int = 0) -> RequestTable:
    """Return the table with ``factor`` times as many units in the same time.

    Bursts and silences stay where they are. Below 1, each unit is kept with probability ``factor``:
    a Poisson process stays one, but shared prefixes get rarer. Above 1, copies are added: the
    integer part of ``factor`` gives the number of units, the fraction the probability of one more.
    A copy arrives up to ``COPY_JITTER_MS`` after its original, uniformly at random. Its hash ids
    belong to another population (see :func:`merge_tables`), so the share of prompts found in a
    cache stays about the same. Copies are close together: over windows longer than the jitter the
    counts vary ``factor`` times as much as those of independent arrivals.

    Args:
        requests: The table.
        factor: Finite and > 0; 1 changes nothing.
        seed: Seed of the draws, >= 0.

    Raises:
        WorkloadError: If ``factor`` is out of range, or nothing is left.
    """
    if not (math.isfinite(factor) and factor > 0.0):
        raise WorkloadError(f"rate_scale: got {number_text(factor)}, allowed: finite and > 0")
    if factor == 1.0:
        return requests
    random = np.random.Generator(np.random.PCG64(seed))
    num_units = requests.start_ms.size
    whole = int(factor)
    copies = [requests] * min(whole, 1)
    for _ in range(1, whole):
        copies.append(_moved_copy(requests, random))
    part = _take_units(requests, random.random(num_units) < factor - whole)
    if len(part):
        copies.append(part if whole == 0 else _moved_copy(part, random))
    if not copies:
        raise WorkloadError(
            f"rate_scale {number_text(factor)} leaves none of {len(requests)} requests "
            f"(rate_seed {seed})"
        )
    return copies[0] if len(copies) == 1 else merge_tables(copies)


def merge_tables(tables: Sequence[RequestTable]) -> RequestTable:
    """Return all requests of several tables on one time axis, without shared prompts.

    Hash ids (and tokens of outputs) of different tables never match, even if equal. Lists become
    one list by arrival, equal arrivals in the order of the tables. Sessions stay whole and keep the
    order of the tables; session ``a`` of table k, from 0, is renamed to ``k/a``. ``row`` is the
    position in the concatenated tables.

    Args:
        tables: At least one; all lists or all sessions, alike in ``is_delta`` and
            ``trace_block_size``.

    Raises:
        WorkloadError: If there is no table, or they do not fit together.
    """
    if not tables:
        raise WorkloadError("merge: got no tables, allowed: at least one")
    for name in ("has_sessions", "is_delta", "trace_block_size"):
        values = [getattr(table, name) for table in tables]
        if len(set(values)) > 1:
            raise WorkloadError(
                f"merge: {name}: got {' and '.join(map(str, dict.fromkeys(values)))}, "
                "allowed: the same in all tables"
            )
    prompt_ids, output_ids = _disjoint_ids(tables)
    num_outputs = [
        np.diff(table.output_starts) if table.output_starts.size else np.zeros(len(table), np.int64)
        for table in tables
    ]
    no_outputs = np.empty(0, np.int64)
    has_outputs = any(ids.size for ids in output_ids)
    first_rows = offsets_of(np.array([len(table) for table in tables]))
    merged = RequestTable(
        row=np.arange(first_rows[-1]),
        arrival_ms=np.concatenate([table.arrival_ms for table in tables]),
        input_tokens=np.concatenate([table.input_tokens for table in tables]),
        output_tokens=np.concatenate([table.output_tokens for table in tables]),
        prompt_ids=np.concatenate(prompt_ids),
        prompt_starts=offsets_of(
            np.concatenate([np.diff(table.prompt_starts) for table in tables])
        ),
        trace_block_size=tables[0].trace_block_size,
        session_starts=_session_starts(tables),
        delay_ms=np.concatenate([table.delay_ms for table in tables]),
        session_ids=tuple(
            f"{number}/{name}" for number, table in enumerate(tables) for name in table.session_ids
        ),
        is_delta=tables[0].is_delta,
        output_ids=np.concatenate(output_ids),
        output_starts=offsets_of(np.concatenate(num_outputs)) if has_outputs else no_outputs,
    )
    return merged if merged.has_sessions else _with_starts(merged, merged.arrival_ms)


def drop_longer_than(
    requests: RequestTable,
    max_input_tokens: int | None = None,
    max_total_tokens: int | None = None,
) -> LengthCheck:
    """Remove requests that are longer than a model or an engine allows.

    In a session, the first overlong turn and all later turns are removed.

    Args:
        requests: The table.
        max_input_tokens: Longest prompt, >= 1; None = no limit.
        max_total_tokens: Longest prompt and output together, >= 2; None = no limit.

    Raises:
        WorkloadError: If a limit is out of range, or nothing is left.
    """
    _check_limits(max_input_tokens, max_total_tokens)
    good = np.ones(len(requests), np.bool_)
    if max_input_tokens is not None:
        good &= requests.input_tokens <= max_input_tokens
    if max_total_tokens is not None:
        good &= requests.input_tokens + requests.output_tokens <= max_total_tokens
    if requests.has_sessions:
        num_bad = offsets_of(~good)  # in the turns before each
        at_start = num_bad[requests.session_starts[:-1]]
        good = num_bad[1:] == at_start[requests.session_of()]
    if not good.any():
        raise WorkloadError(
            f"all {len(requests)} requests are longer than allowed: "
            f"{limits_text(max_input_tokens, max_total_tokens)}"
        )
    return LengthCheck(requests.take(np.flatnonzero(good)), int(np.count_nonzero(~good)))


def clip_lengths(
    requests: RequestTable,
    max_input_tokens: int | None = None,
    max_total_tokens: int | None = None,
) -> LengthCheck:
    """Cut requests that are longer than a model or an engine allows, prompts at their end.

    With ``max_total_tokens``, the prompt leaves space for one output token; the output gets the
    rest.

    Args:
        requests: The table, without delta sessions: their prompts follow from earlier turns.
        max_input_tokens: Longest prompt, >= 1; None = no limit.
        max_total_tokens: Longest prompt and output together, >= 2; None = no limit.

    Raises:
        WorkloadError: If a limit is out of range, or the table has delta sessions.
    """
    _check_limits(max_input_tokens, max_total_tokens)
    if requests.is_delta:
        raise WorkloadError(
            "clip: got delta sessions, whose prompts are made of all earlier turns; "
            "allowed: to drop what is too long"
        )
    inputs, outputs = requests.input_tokens, requests.output_tokens
    if max_input_tokens is not None:
        inputs = np.minimum(inputs, max_input_tokens)
    if max_total_tokens is not None:
        inputs = np.minimum(inputs, max_total_tokens - 1)
        outputs = np.minimum(outputs, max_total_tokens - inputs)
    prompts = _heads(
        Ragged(requests.prompt_ids, requests.prompt_starts), -(-inputs // requests.trace_block_size)
    )
    contents = Ragged(requests.output_ids, requests.output_starts)
    if contents.starts.size:
        contents = _heads(contents, outputs)
    is_cut = (inputs != requests.input_tokens) | (outputs != requests.output_tokens)
    clipped = replace(
        requests,
        input_tokens=inputs,
        output_tokens=outputs,
        prompt_ids=prompts.flat,
        prompt_starts=prompts.starts,
        output_ids=contents.flat,
        output_starts=contents.starts,
    )
    return LengthCheck(clipped, int(np.count_nonzero(is_cut)))


def limits_text(max_input_tokens: int | None, max_total_tokens: int | None) -> str:
    """Return the given limits as text for messages."""
    limits = {"max_input_tokens": max_input_tokens, "max_total_tokens": max_total_tokens}
    return ", ".join(f"{name} {limit}" for name, limit in limits.items() if limit is not None)


def _with_starts(requests: RequestTable, start_ms: NDArray[np.float64]) -> RequestTable:
    """Return the table with new unit arrivals; a list is sorted by them."""
    if requests.has_sessions:
        arrival_ms = requests.arrival_ms.copy()
        arrival_ms[requests.session_starts[:-1]] = start_ms
        return replace(requests, arrival_ms=arrival_ms)
    outputs = Ragged(requests.output_ids, requests.output_starts)
    table = table_in_arrival_order(
        start_ms,
        requests.input_tokens,
        requests.output_tokens,
        Ragged(requests.prompt_ids, requests.prompt_starts),
        requests.trace_block_size,
        outputs if outputs.starts.size else None,
    )
    return replace(table, row=requests.row[table.row])


def _take_units(requests: RequestTable, wanted: NDArray[np.bool_]) -> RequestTable:
    if requests.has_sessions:
        wanted = wanted[requests.session_of()]
    return requests.take(np.flatnonzero(wanted))


def _moved_copy(requests: RequestTable, random: np.random.Generator) -> RequestTable:
    """Return a copy of the units with random delays."""
    jitter_ms = COPY_JITTER_MS * random.random(requests.start_ms.size)
    return _with_starts(requests, requests.start_ms + jitter_ms)


def _disjoint_ids(
    tables: Sequence[RequestTable],
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Return hash ids and output tokens of each table, renumbered so that no two tables share any.

    Both are numbered together, because an output token can equal a hash id of a prompt.
    """
    prompts, outputs, num_used = [], [], 0
    for table in tables:
        ids = np.concatenate((table.prompt_ids, table.output_ids))
        distinct, numbers = np.unique(ids, return_inverse=True)
        numbers = numbers + num_used
        prompts.append(numbers[: table.prompt_ids.size])
        outputs.append(numbers[table.prompt_ids.size :])
        num_used += distinct.size
    return prompts, outputs


def _session_starts(tables: Sequence[RequestTable]) -> NDArray[np.int64]:
    if not tables[0].has_sessions:
        return np.empty(0, np.int64)
    return offsets_of(np.concatenate([np.diff(table.session_starts) for table in tables]))


def _heads(rows: Ragged, lengths: NDArray[np.int64]) -> Ragged:
    """Return rows cut to the given lengths."""
    counts = np.diff(rows.starts)
    position = np.arange(rows.flat.size) - np.repeat(rows.starts[:-1], counts)
    kept = np.minimum(counts, lengths)
    return Ragged(rows.flat[position < np.repeat(kept, counts)], offsets_of(kept))


def _check_limits(max_input_tokens: int | None, max_total_tokens: int | None) -> None:
    for name, limit, least in (
        ("max_input_tokens", max_input_tokens, 1),
        ("max_total_tokens", max_total_tokens, 2),
    ):
        if limit is not None and limit < least:
            raise WorkloadError(f"{name}: got {limit}, allowed: an integer >= {least}")

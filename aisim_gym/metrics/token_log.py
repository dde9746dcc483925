"""Token times of a worker's requests: one log entry per pass instead of one value per token.

Requests that decode together receive a token at the end of every pass, so their inter-token gaps
are equal. An *entry* of the log is the end of a pass that emitted tokens; its gap is the time since
the previous entry. A request stores the first and the last entry of its unbroken token stream. On
completion it increases the weights of the gaps in between, by adding 1 where the stream begins and
subtracting 1 after its end. Old entries are *settled* in chunks: each gap enters the statistics
once, with its weight. Chunk boundaries are fixed, so that the sums do not depend on when chunks are
settled.

The log is a ring in a slice of the entry table; entry ``i`` is row
``start + (i & (capacity - 1))``. Weights of future entries are 0, or negative where completed
streams end with the last entry.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import TableFullError
from aisim_gym.kernel import kernel
from aisim_gym.metrics.gap_statistics import (
    GAP,
    RATE,
    StatisticsRow,
    add_moments,
    bucket_bounds,
    bucket_index,
    bucket_place,
)
from aisim_gym.tables import F8, I8, Table

CHUNK = 64
"""Number of entries settled together."""


class TokenLogRow(Protocol):
    """The log of one worker."""

    start: I8  # start of its slice in the entry table
    capacity: I8  # rows of the slice, a power of two; 0: no slice yet
    first: I8  # oldest stored entry, a multiple of CHUNK
    next: I8  # entry of the next pass
    weight: I8  # weight of the entry before the first
    previous_ms: F8  # end of the entry before the first


class EntryRow(Protocol):
    """One entry of a log."""

    end_ms: F8
    weight: I8  # change of the weight relative to the previous entry


@kernel
def entry_row(log: TokenLogRow, entry: int) -> int:
    """Return the row of an entry."""
    return log.start + (entry & (log.capacity - 1))


@kernel
def append_entry(log: TokenLogRow, entries: Table[EntryRow], end_ms: float) -> int:
    """Append an entry and return it; the log must have room."""
    if free_entries(log) < 1:
        raise TableFullError("log_entries")
    entry = log.next
    entries[entry_row(log, entry)].end_ms = end_ms
    log.next += 1
    return int(entry)


@kernel
def free_entries(log: TokenLogRow) -> int:
    """Return how many entries can be added; one row after the last entry stays reserved."""
    return max(0, log.capacity - (log.next - log.first) - 1)


@kernel
def weigh_stream(log: TokenLogRow, entries: Table[EntryRow], first: int, last: int) -> None:
    """Count the gaps of a completed request with a token in every entry from first to last."""
    if last > first:
        entries[entry_row(log, first + 1)].weight += 1
        entries[entry_row(log, last + 1)].weight -= 1


@kernel
def settle_entries(
    log: TokenLogRow,
    entries: Table[EntryRow],
    gaps: StatisticsRow,
    rates: StatisticsRow,
    buckets: NDArray[np.int64],
    before: int,
    is_final: bool,
) -> None:
    """Settle the complete chunks before an entry; in the final call, also the remaining entries."""
    while log.first + CHUNK <= before or (is_final and log.first < before):
        count = min(CHUNK, before - log.first)
        _settle_chunk(log, entries, gaps, rates, buckets, count)


@kernel
def drop_entries(log: TokenLogRow, before: int) -> None:
    """Drop the complete chunks before an entry without settling; their weights must be zero."""
    log.first += max(0, before - log.first) // CHUNK * CHUNK


@kernel
def move_log(log: TokenLogRow, entries: Table[EntryRow], start: int, size: int) -> None:
    """Move a log to a larger slice of unused rows; the old slice is not reused."""
    if start + size > len(entries):
        raise TableFullError("log_entries")
    for entry in range(log.first, log.next + 1 if log.capacity > 0 else log.first):
        old = entries[entry_row(log, entry)]
        new = entries[start + (entry & (size - 1))]
        new.end_ms = old.end_ms
        new.weight = old.weight
    log.start = start
    log.capacity = size


@kernel
def _settle_chunk(
    log: TokenLogRow,
    entries: Table[EntryRow],
    gaps: StatisticsRow,
    rates: StatisticsRow,
    buckets: NDArray[np.int64],
    count: int,
) -> None:
    """Move the gaps of the oldest ``count`` entries into the statistics.

    Sums are relative to the first gap with a weight, which limits rounding errors.
    """
    start, mask, first = int(log.start), int(log.capacity) - 1, int(log.first)
    previous_ms = log.previous_ms
    weight = int(log.weight)
    num_gaps = 0
    num_rates = 0
    origin_ms = 0.0
    origin_rate = 0.0
    gap_sum = 0.0
    gap_squares = 0.0
    rate_sum = 0.0
    rate_squares = 0.0
    gap_low = math.inf
    gap_high = 0.0
    rate_low = math.inf
    rate_high = 0.0
    gap_from = math.inf  # bucket bounds of the previous gap
    gap_to = 0.0
    rate_from = math.inf
    rate_to = 0.0
    gap_bucket = 0
    rate_bucket = 0
    for entry in range(first, first + count):
        row = entries[start + (entry & mask)]
        if row.weight != 0:
            weight += row.weight
            row.weight = 0
        gap_ms = row.end_ms - previous_ms
        previous_ms = row.end_ms
        if weight == 0:
            continue
        if num_gaps == 0:
            origin_ms = gap_ms
        share = float(weight)
        num_gaps += weight
        off_ms = gap_ms - origin_ms
        gap_sum += share * off_ms
        gap_squares += share * off_ms * off_ms
        if gap_ms < gap_low:
            gap_low = gap_ms
        if gap_ms > gap_high:
            gap_high = gap_ms
        if gap_ms <= 0.0:
            gaps.zeros += weight
            continue
        rate = 1000.0 / gap_ms
        if num_rates == 0:
            origin_rate = rate
        num_rates += weight
        off_rate = rate - origin_rate
        rate_sum += share * off_rate
        rate_squares += share * off_rate * off_rate
        if rate < rate_low:
            rate_low = rate
        if rate > rate_high:
            rate_high = rate
        if not gap_from < gap_ms < gap_to:
            place = bucket_place(gap_ms)
            gap_bucket = bucket_index(place)
            gap_from, gap_to = bucket_bounds(gap_ms, place)
        if not rate_from < rate < rate_to:
            place = bucket_place(rate)
            rate_bucket = bucket_index(place)
            rate_from, rate_to = bucket_bounds(rate, place)
        buckets[GAP, gap_bucket] += weight
        buckets[RATE, rate_bucket] += weight
    if num_gaps > 0:
        _add_sums(gaps, num_gaps, origin_ms, gap_sum, gap_squares, gap_low, gap_high)
    if num_rates > 0:
        _add_sums(rates, num_rates, origin_rate, rate_sum, rate_squares, rate_low, rate_high)
    log.first += count
    log.weight = weight
    log.previous_ms = previous_ms


@kernel
def _add_sums(
    row: StatisticsRow,
    count: int,
    origin: float,
    total: float,
    squares: float,
    low: float,
    high: float,
) -> None:
    """Add ``count`` values, given the sums of their differences from ``origin`` and the squares."""
    mean = total / count
    deviations = max(squares - total * mean, 0.0)
    add_moments(row, count, origin + mean, deviations, low, high)

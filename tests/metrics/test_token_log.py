"""The log of pass ends gives the statistics of the gaps of all completed requests.

Rules: replay-runtime.md §15.4. The expectation is a list with one gap per token.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.laws import fewer

from aisim_gym.metrics.gap_statistics import (
    GAP,
    NUM_BUCKETS,
    NUM_SAMPLES,
    RATE,
    StatisticsRow,
    add_gap,
)
from aisim_gym.metrics.token_log import (
    CHUNK,
    EntryRow,
    TokenLogRow,
    append_entry,
    free_entries,
    move_log,
    settle_entries,
    weigh_stream,
)
from aisim_gym.tables import make_table

SMALLEST = 2 * CHUNK


@dataclass
class Stream:
    """An unbroken stream of tokens, one per entry, of a request that goes on or has completed."""

    first: int
    last: int


@dataclass
class Log:
    """A log that grows, and the gaps that it stands for.

    Attributes:
        streams: Those that are not weighed yet.
        ends_ms: Of all entries ever.
        expected_ms: Gaps of the streams that are weighed.
    """

    streams: list[Stream] = field(default_factory=list)
    ends_ms: list[float] = field(default_factory=list)
    expected_ms: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start without a slice."""
        self.log = make_table(TokenLogRow, 1)[0]
        self.entries = make_table(EntryRow, 1 << 16)
        self.used = 0
        self.rows = make_table(StatisticsRow, NUM_SAMPLES)
        self.buckets = np.zeros((NUM_SAMPLES, NUM_BUCKETS), np.int64)

    def append(self, end_ms: float) -> None:
        """Add an entry, in a larger slice if need be."""
        if free_entries(self.log) == 0:
            size = max(SMALLEST, 2 * int(self.log.capacity))
            move_log(self.log, self.entries, self.used, size)
            self.used += size
        assert append_entry(self.log, self.entries, end_ms) == len(self.ends_ms)
        self.ends_ms.append(end_ms)

    def complete(self, stream: Stream) -> None:
        """Weigh a stream."""
        self.streams.remove(stream)
        weigh_stream(self.log, self.entries, stream.first, stream.last)
        for entry in range(stream.first, stream.last):
            self.expected_ms.append(self.ends_ms[entry + 1] - self.ends_ms[entry])

    def settle(self, is_final: bool = False) -> None:
        """Settle what nobody needs any more."""
        before = min((stream.first for stream in self.streams), default=len(self.ends_ms))
        rows = self.rows[GAP], self.rows[RATE]
        settle_entries(self.log, self.entries, *rows, self.buckets, before, is_final)

    def check(self) -> None:
        """Compare the statistics with those of the list of gaps."""
        rows, buckets = make_table(StatisticsRow, NUM_SAMPLES), np.zeros_like(self.buckets)
        for gap_ms in self.expected_ms:
            add_gap(rows[GAP], rows[RATE], buckets, gap_ms, 1)
        assert (self.buckets == buckets).all()
        rates = [1000.0 / gap_ms for gap_ms in self.expected_ms if gap_ms > 0.0]
        for sample, values in ((GAP, self.expected_ms), (RATE, rates)):
            row = self.rows[sample]
            assert (row.count, row.zeros) == (rows[sample].count, rows[sample].zeros)
            assert (row.low, row.high) == (rows[sample].low, rows[sample].high)
            if values:
                average = math.fsum(values) / len(values)
                assert row.average == pytest.approx(average, rel=1e-12)
                squares = math.fsum((value - average) ** 2 for value in values)
                scale = len(values) * max(values) ** 2
                assert row.squares == pytest.approx(squares, rel=1e-12, abs=1e-12 * scale)


def play(seed: int, num_entries: int, gaps_ms: list[float], may_settle: Callable[[], bool]) -> Log:
    """Let requests come, stall and complete; what happens depends on the seed only."""
    rng = Random(seed)
    log, now_ms = Log(), 0.0
    for entry in range(num_entries):
        now_ms += rng.choice(gaps_ms)
        log.append(now_ms)
        for stream in list(log.streams):
            what = rng.random()
            if what < 0.9 or what >= 0.97:
                stream.last = entry
            elif what < 0.95:  # it stalls: a break, what came before stays
                log.streams.append(Stream(entry, entry))
            if what >= 0.93:
                log.complete(stream)
        for _ in range(rng.choice([0, 0, 0, 1, 3])):
            log.streams.append(Stream(entry, entry))
        # A stream that has missed an entry is over.
        for stream in [stream for stream in log.streams if stream.last < entry]:
            log.complete(stream)
        if may_settle():
            log.settle()
    for stream in list(log.streams):
        log.complete(stream)
    log.settle(is_final=True)
    return log


GAPS = st.lists(
    st.one_of(st.just(0.0), st.sampled_from([1.0, 5.0, 7.25]), st.floats(1e-3, 1e5)),
    min_size=1,
    max_size=12,
)


@fewer(5)  # an example is a log of hundreds of entries in plain Python
@given(st.integers(0, 2**32), st.integers(0, 700), GAPS, st.sampled_from([0.0, 0.02, 0.3, 1.0]))
@example(0, 64, [1.0], 1.0)
@example(0, 65, [1.0], 1.0)
@example(3, 700, [5.0, 0.0], 0.0)
def test_statistics_are_those_of_a_list_of_all_gaps(
    seed: int, num_entries: int, gaps_ms: list[float], often: float
) -> None:
    moments = Random(seed + 1)
    log = play(seed, num_entries, gaps_ms, lambda: moments.random() < often)
    assert log.log.first == log.log.next == num_entries
    log.check()


@fewer(2)
@given(st.integers(0, 2**32), st.integers(0, 500), GAPS)
def test_statistics_do_not_depend_on_when_entries_are_settled(
    seed: int, num_entries: int, gaps_ms: list[float]
) -> None:
    """Bit by bit, although settling at every entry never lets the ring grow."""
    moments = Random(seed + 1)
    logs = [
        play(seed, num_entries, gaps_ms, may_settle)
        for may_settle in (lambda: False, lambda: True, lambda: moments.random() < 0.1)
    ]
    for log in logs[1:]:
        assert np.asarray(log.rows).tobytes() == np.asarray(logs[0].rows).tobytes()
        assert (log.buckets == logs[0].buckets).all()


def test_entries_that_a_request_needs_stay() -> None:
    log = Log()
    for entry in range(3 * CHUNK):
        log.append(float(entry))
    log.streams.append(Stream(CHUNK + 5, 3 * CHUNK - 1))
    log.settle()
    assert log.log.first == CHUNK
    log.complete(log.streams[0])
    log.settle()
    assert log.log.first == 3 * CHUNK
    assert log.rows[GAP].count == 2 * CHUNK - 6


def test_only_whole_chunks_are_settled_before_the_end() -> None:
    log = Log()
    for entry in range(CHUNK + 10):
        log.append(float(entry))
    log.settle()
    assert log.log.first == CHUNK
    log.settle(is_final=True)
    assert log.log.first == CHUNK + 10


def test_ring_goes_round_without_growing_while_old_entries_are_settled() -> None:
    log = Log()
    for entry in range(20 * CHUNK):
        log.append(float(entry))
        log.streams.append(Stream(entry, entry))
        if len(log.streams) > 10:
            oldest = log.streams[0]
            oldest.last = entry
            log.complete(oldest)
        log.settle()
    assert log.used == SMALLEST
    while log.streams:
        log.complete(log.streams[0])
    log.settle(is_final=True)
    log.check()


def test_single_token_has_no_gap() -> None:
    log = Log()
    log.append(4.0)
    log.streams.append(Stream(0, 0))
    log.complete(log.streams[0])
    log.settle(is_final=True)
    assert log.rows[GAP].count == 0

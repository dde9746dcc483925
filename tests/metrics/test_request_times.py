"""What is recorded per request (replay-runtime.md §15.1, §15.6)."""

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.engine.slices import NUM_CLASSES, make_heads
from aisim_gym.engine.tables import NONE
from aisim_gym.metrics.gap_statistics import GAP, NUM_BUCKETS, RATE, StatisticsRow
from aisim_gym.metrics.request_times import (
    POOL_AGGREGATED,
    POOL_DECODE,
    POOL_PREFILL,
    REQUEST_COMPLETED,
    REQUEST_FAILED,
    REQUEST_REJECTED,
    RequestRow,
    breaks_fit,
    make_requests,
    record_admission,
    record_break,
    record_terminal,
    weigh_broken_streams,
)
from aisim_gym.metrics.token_log import EntryRow, TokenLogRow
from aisim_gym.tables import make_table

SPACE = 64 * 64


class Recorder:
    """Requests whose tokens are all breaks in their streams, and the statistics of their gaps."""

    def __init__(self, count: int = 1) -> None:
        self.requests = make_requests(count)
        self.breaks = np.zeros(SPACE, np.float64)
        self.heads = make_heads()
        self.rows = make_table(StatisticsRow, 2)
        self.buckets = np.zeros((2, NUM_BUCKETS), np.int64)

    def gap(self, request: int, gap_ms: float, first: int = NONE, last: int = NONE) -> None:
        assert breaks_fit(self.breaks, self.heads, 1)
        record_break(self.requests[request], self.breaks, self.heads, first, last, gap_ms)

    def end(self, request: int, status: int, now_ms: float) -> None:
        record_terminal(
            self.requests[request],
            status,
            self.breaks,
            self.heads,
            self.rows,
            self.buckets,
            now_ms,
        )

    def free_space(self) -> int:
        """Elements in free chunks."""
        chunks, at = 0, int(self.heads[6])
        while at >= 0:
            chunks, at = chunks + 1, int(self.breaks[at])
        return 64 * chunks


def admission_state(row: RequestRow) -> tuple[float, ...]:
    return (row.first_admit_ms, row.prefill_admit_ms, row.decode_admit_ms)


@given(
    st.lists(st.lists(st.integers(0, 10_000), max_size=200), min_size=1, max_size=4), st.randoms()
)
def test_gaps_of_completed_requests_all_enter_the_statistics(
    gaps_ms: list[list[int]], order: Random
) -> None:
    """Chunks of several requests interleave; every one is given back in the end."""
    recorder = Recorder(len(gaps_ms))
    steps = [request for request, own in enumerate(gaps_ms) for _ in own]
    order.shuffle(steps)
    left = [list(own) for own in gaps_ms]
    for request in steps:
        recorder.gap(request, float(left[request].pop(0)))
    for request in range(len(gaps_ms)):
        recorder.end(request, REQUEST_COMPLETED, 1.0)
    recorded = [gap_ms for own in gaps_ms for gap_ms in own]
    row = recorder.rows[GAP]
    assert (row.count, row.zeros) == (len(recorded), recorded.count(0))
    assert row.average == pytest.approx(sum(recorded) / max(len(recorded), 1), rel=1e-9)
    assert recorder.free_space() == recorder.heads[NUM_CLASSES]


@pytest.mark.parametrize("gaps", [0, 1, 20, 21, 22, 41, 42, 43, 200])
def test_every_gap_counts_once_whatever_the_number_of_chunks(gaps: int) -> None:
    recorder = Recorder()
    for at in range(gaps):
        recorder.gap(0, float(2 * at + 1))
    recorder.end(0, REQUEST_COMPLETED, 1.0)
    assert recorder.rows[GAP].count == gaps
    if gaps > 0:
        assert (recorder.rows[GAP].low, recorder.rows[GAP].high) == (1.0, 2.0 * gaps - 1.0)


def test_gaps_between_tokens_of_one_burst_are_zero() -> None:
    recorder = Recorder()
    recorder.requests[0].zero_gaps = 5
    recorder.gap(0, 4.0)
    recorder.end(0, REQUEST_COMPLETED, 1.0)
    assert (recorder.rows[GAP].count, recorder.rows[GAP].zeros) == (6, 5)
    assert recorder.rows[RATE].count == 1


@pytest.mark.parametrize("status", [REQUEST_REJECTED, REQUEST_FAILED])
def test_gaps_of_requests_that_did_not_complete_are_dropped(status: int) -> None:
    recorder = Recorder()
    recorder.requests[0].zero_gaps = 5
    for at in range(100):
        recorder.gap(0, float(at))
    recorder.end(0, status, 99.0)
    assert recorder.rows[GAP].count == 0
    assert recorder.free_space() == recorder.heads[NUM_CLASSES] > 0


@pytest.mark.parametrize("streams", [1, 21, 22, 60])
def test_streams_before_breaks_are_weighed_as_far_as_they_are_in_the_log(streams: int) -> None:
    """Every third break comes after tokens that are in no log; streams are three entries long."""
    recorder = Recorder()
    log, entries = make_table(TokenLogRow, 1)[0], make_table(EntryRow, 512)
    log.capacity = len(entries)
    expected = np.zeros(len(entries), np.int64)
    for at in range(streams):
        if at % 3 == 0:
            recorder.gap(0, 1.0)
        else:
            first = 5 * at
            recorder.gap(0, 1.0, first, first + 2)
            expected[first + 1] += 1
            expected[first + 3] -= 1
    weigh_broken_streams(recorder.requests[0], recorder.breaks, log, entries)
    assert entries["weight"].tolist() == expected.tolist()


def test_nothing_is_known_of_a_new_request() -> None:
    row = make_requests(1)[0]
    assert all(math.isnan(value) for value in (*admission_state(row), row.first_token_ms))
    assert (row.prefill_scheduler, row.decode_scheduler, row.break_chunk) == (-1, -1, -1)


def test_first_admission_and_the_largest_reuse_are_kept() -> None:
    row = make_requests(1)[0]
    for at_ms, reused in ((1.0, 4), (5.0, 12), (9.0, 8)):
        record_admission(row, POOL_AGGREGATED, reused, at_ms)
    assert (row.first_admit_ms, row.first_reused_tokens, row.most_reused_tokens) == (1.0, 4, 12)
    assert (row.prefill_admissions, row.decode_admissions) == (0, 3)
    assert math.isnan(row.decode_admit_ms)


def test_reuse_of_a_disaggregated_request_is_that_of_its_prefill() -> None:
    row = make_requests(1)[0]
    record_admission(row, POOL_PREFILL, 4, 1.0)
    record_admission(row, POOL_DECODE, 0, 5.0)
    record_admission(row, POOL_DECODE, 16, 9.0)
    assert admission_state(row) == (1.0, 1.0, 5.0)
    assert (row.most_reused_tokens, row.decode_reused_tokens) == (4, 16)
    assert (row.prefill_admissions, row.decode_admissions) == (1, 2)

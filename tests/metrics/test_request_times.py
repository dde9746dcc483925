"""What is recorded per request (replay-runtime.md §15.1, §15.6)."""

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.engine.slices import NUM_CLASSES, make_heads
from aisim_gym.metrics.gap_statistics import GAP, NUM_BUCKETS, StatisticsRow
from aisim_gym.metrics.request_times import (
    POOL_AGGREGATED,
    POOL_DECODE,
    POOL_PREFILL,
    REQUEST_COMPLETED,
    REQUEST_FAILED,
    REQUEST_REJECTED,
    RequestRow,
    gaps_fit,
    make_requests,
    record_admission,
    record_terminal,
    record_token,
)
from aisim_gym.tables import make_table

SPACE = 64 * 64


class Recorder:
    """Requests and the statistics of their gaps."""

    def __init__(self, count: int = 1) -> None:
        self.requests = make_requests(count)
        self.gaps = np.zeros(SPACE, np.float64)
        self.heads = make_heads()
        self.rows = make_table(StatisticsRow, 2)
        self.buckets = np.zeros((2, NUM_BUCKETS), np.int64)

    def token(self, request: int, now_ms: float) -> None:
        assert gaps_fit(self.gaps, self.heads, 1)
        record_token(self.requests[request], self.gaps, self.heads, now_ms)

    def end(self, request: int, status: int, now_ms: float) -> None:
        record_terminal(
            self.requests[request],
            status,
            self.gaps,
            self.heads,
            self.rows,
            self.buckets,
            now_ms,
        )

    def free_space(self) -> int:
        """Elements of the gap array in free chunks."""
        chunks, at = 0, int(self.heads[6])
        while at >= 0:
            chunks, at = chunks + 1, int(self.gaps[at])
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
    clocks = [0.0] * len(gaps_ms)
    for request in range(len(gaps_ms)):
        recorder.token(request, 0.0)
    steps = [request for request, own in enumerate(gaps_ms) for _ in own]
    order.shuffle(steps)
    left = [list(own) for own in gaps_ms]
    recorded = []
    for request in steps:
        before = clocks[request]
        clocks[request] += left[request].pop(0)
        recorded.append(clocks[request] - before)
        recorder.token(request, clocks[request])
    for request, now_ms in enumerate(clocks):
        recorder.end(request, REQUEST_COMPLETED, now_ms)
    row = recorder.rows[GAP]
    assert row.count == len(recorded)
    assert row.average == pytest.approx(sum(recorded) / max(len(recorded), 1), rel=1e-9)
    assert recorder.free_space() == recorder.heads[NUM_CLASSES]


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 127, 128, 200])
def test_every_gap_counts_once_whatever_the_number_of_chunks(tokens: int) -> None:
    recorder = Recorder()
    for at in range(tokens):
        recorder.token(0, float(at * at))
    recorder.end(0, REQUEST_COMPLETED, float((tokens - 1) ** 2))
    assert recorder.rows[GAP].count == tokens - 1
    if tokens > 1:
        assert (recorder.rows[GAP].low, recorder.rows[GAP].high) == (1.0, 2.0 * tokens - 3.0)


@pytest.mark.parametrize("status", [REQUEST_REJECTED, REQUEST_FAILED])
def test_gaps_of_requests_that_did_not_complete_are_dropped(status: int) -> None:
    recorder = Recorder()
    for at in range(100):
        recorder.token(0, float(at))
    recorder.end(0, status, 99.0)
    assert recorder.rows[GAP].count == 0
    assert recorder.free_space() == recorder.heads[NUM_CLASSES] > 0


def test_first_second_and_last_token_are_kept() -> None:
    recorder = Recorder()
    for now_ms in (3.0, 5.0, 8.0, 9.0):
        recorder.token(0, now_ms)
    row = recorder.requests[0]
    assert (row.first_token_ms, row.second_token_ms, row.last_token_ms) == (3.0, 5.0, 9.0)
    assert row.emitted_tokens == 4


def test_nothing_is_known_of_a_new_request() -> None:
    row = make_requests(1)[0]
    assert all(math.isnan(value) for value in (*admission_state(row), row.first_token_ms))
    assert (row.prefill_scheduler, row.decode_scheduler, row.gap_chunk) == (-1, -1, -1)


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

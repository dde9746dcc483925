"""Tokenizers and detokenizers of a worker (replay-runtime.md §17.2)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.fleet.server_stage import ServerStageRow, receive_output, serve
from aisim_gym.tables import make_table

JOBS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.0, 0.1, 1.0, 3.7]), st.integers(0, 40)), max_size=60
)
"""Time since the job before, and tokens."""


def make_stage(num_servers: int, request_ms: float, token_ms: float) -> ServerStageRow:
    stage = make_table(ServerStageRow, 1)[0]
    stage.num_servers = num_servers
    stage.request_ms = request_ms
    stage.token_ms = token_ms
    return stage


@pytest.mark.parametrize(
    ("num_servers", "ends_ms"), [(1, [6.0, 12.0, 18.0, 46.0]), (2, [6.0, 6.0, 12.0, 46.0])]
)
def test_jobs_wait_for_the_server_that_is_free_first(
    num_servers: int, ends_ms: list[float]
) -> None:
    stage = make_stage(num_servers, request_ms=2.0, token_ms=0.5)
    free_ms = np.zeros(2)
    arrivals = [(0.0, 8), (0.0, 8), (1.0, 8), (40.0, 8)]
    assert [serve(stage, free_ms, tokens, at_ms) for at_ms, tokens in arrivals] == ends_ms


@given(JOBS, st.integers(1, 7))
def test_servers_behave_like_a_list_of_free_times(
    jobs: list[tuple[float, int]], num_servers: int
) -> None:
    stage = make_stage(num_servers, request_ms=0.3, token_ms=0.07)
    free_ms = np.zeros(8)
    expected = [0.0] * num_servers
    now_ms = busy_ms = 0.0
    for wait_ms, tokens in jobs:
        now_ms += wait_ms
        server = expected.index(min(expected))
        start_ms = max(expected[server], now_ms)
        expected[server] = start_ms + (0.3 + tokens * 0.07)
        busy_ms += expected[server] - start_ms
        assert serve(stage, free_ms, tokens, now_ms) == expected[server]
        assert sorted(free_ms[:num_servers].tolist()) == sorted(expected)
    assert busy_ms == pytest.approx(sum(0.3 + tokens * 0.07 for _, tokens in jobs))


def test_stage_without_latency_changes_nothing() -> None:
    stage, free_ms = make_stage(1, 0.0, 0.0), np.zeros(1)
    assert [serve(stage, free_ms, 100, at_ms) for at_ms in (0.0, 0.0, 7.25)] == [0.0, 0.0, 7.25]


def test_short_output_does_not_overtake_the_one_before_it() -> None:
    stage, free_ms = make_stage(2, request_ms=2.0, token_ms=0.5), np.zeros(2)
    first_ms = receive_output(stage, free_ms, 10, 0.0, math.nan)
    second_ms = receive_output(stage, free_ms, 1, 1.0, first_ms)
    assert (first_ms, second_ms) == (7.0, 7.0)
    # The second server was done at 3.5 and works for others since then.
    assert receive_output(stage, free_ms, 1, 4.0, math.nan) == 6.5

"""Requests in memory: validation, order, slices (workloads.md §2, §13; rulings.md 8)."""

import numpy as np
import pytest
from numpy.typing import ArrayLike

from aisim_gym.errors import WorkloadError
from aisim_gym.workload import (
    RequestTable,
    requests_from_arrays,
    requests_from_mooncake_rows,
)
from aisim_gym.workload.arrays import HashIds


def prompts(table: RequestTable) -> list[list[int]]:
    bounds = zip(table.prompt_starts[:-1], table.prompt_starts[1:], strict=True)
    return [table.prompt_ids[first:last].tolist() for first, last in bounds]


def test_equal_arrivals_keep_their_order() -> None:
    table = requests_from_arrays([5.0, 1.0, 5.0, 1.0], [10, 20, 30, 40], [1, 2, 3, 4])
    assert table.row.tolist() == [1, 3, 0, 2]
    assert table.arrival_ms.tolist() == [1.0, 1.0, 5.0, 5.0]
    assert table.input_tokens.tolist() == [20, 40, 10, 30]
    assert table.output_tokens.tolist() == [2, 4, 1, 3]


def test_arrivals_are_divided_by_the_ratio_but_not_shifted() -> None:
    table = requests_from_arrays([30.0, 60.0], [1, 1], [1, 1], arrival_speedup_ratio=3.0)
    assert table.arrival_ms.tolist() == [10.0, 20.0]


def test_hash_ids_are_numbered_by_first_appearance_in_source_order() -> None:
    table = requests_from_arrays(
        [2.0, 1.0, 0.0],
        [8, 5, 4],
        [1, 1, 1],
        hash_ids=[[900, 2**64 - 1], [900, 7, 55], None],
        trace_block_size=4,
    )
    assert prompts(table) == [[], [0, 2], [0, 1]]
    assert table.prompt_starts.tolist() == [0, 0, 2, 4]


def test_surplus_hash_ids_are_dropped() -> None:
    table = requests_from_arrays([0.0], [9], [1], hash_ids=[[5, 6, 7, 8]], trace_block_size=4)
    assert prompts(table) == [[0, 1, 2]]


def test_columns_are_read_only_copies_of_the_input() -> None:
    arrival_ms = np.array([3.0, 1.0])
    inputs = np.array([5, 6])
    table = requests_from_arrays(arrival_ms, inputs, np.array([1, 1]))
    assert arrival_ms.tolist() == [3.0, 1.0]
    assert not np.shares_memory(table.arrival_ms, arrival_ms)
    for column in (table.row, table.arrival_ms, table.input_tokens, table.prompt_starts):
        assert not column.flags.writeable
    arrival_ms[:] = 9.0
    inputs[:] = 9
    assert table.arrival_ms.tolist() == [1.0, 3.0]
    assert table.input_tokens.tolist() == [6, 5]


@pytest.mark.parametrize(
    ("arrival_ms", "inputs", "outputs", "message"),
    [
        ([0.0, np.nan], [1, 1], [1, 1], r"request 1: arrival_ms: got NaN, allowed: a finite"),
        ([0.0, np.inf], [1, 1], [1, 1], r"request 1: arrival_ms: got inf"),
        ([-1.0, 0.0], [1, 1], [1, 1], r"request 0: arrival_ms: got -1, "),
        (["0", "1"], [1, 1], [1, 1], r"arrival_ms: got dtype"),
        ([[0.0, 1.0]], [1, 1], [1, 1], r"arrival_ms: got shape \(1, 2\)"),
        ([0.0, 1.0], [1, 0], [1, 1], r"request 1: input_tokens: got 0, allowed: an integer from 1"),
        ([0.0, 1.0], [1, 1], [1, -1], r"request 1: output_tokens: got -1, .* from 0"),
        ([0.0, 1.0], [1, 1], [1.0, 1.5], r"request 0: output_tokens: got 1.0, allowed: an integer"),
        ([0.0, 1.0], [1, None], [1, 1], r"request 1: input_tokens: got None"),
        ([0.0, 1.0], [1, 2**63], [1, 1], r"request 1: input_tokens: got 9223372036854775808"),
        ([0.0, 1.0], [1, 2**70], [1, 1], r"request 1: input_tokens: got 1180591620717411303424"),
        ([0.0, 1.0], [True, True], [1, 1], r"request 0: input_tokens: got True"),
        ([0.0, 1.0], [1], [1, 1], r"input_tokens: got shape \(1,\) for 2 arrivals"),
    ],
)
def test_bad_column_is_refused_by_request_and_field(
    arrival_ms: ArrayLike, inputs: ArrayLike, outputs: ArrayLike, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        requests_from_arrays(arrival_ms, inputs, outputs)


@pytest.mark.parametrize(
    ("hash_ids", "message"),
    [
        ([[1], [1]], r"request 1: hash_ids: got 1 for input_tokens 5, allowed: at least 2 of 4"),
        ([[1], [1, -2]], r"request 1: hash_ids: got -2"),
        ([[1], [1, 2.0]], r"request 1: hash_ids: got 2.0, allowed: integers from 0 to 2\*\*64-1"),
        ([[1], [1, 2**64]], r"request 1: hash_ids: got 18446744073709551616"),
        ([[1]], r"hash_ids: got 1 prompts for 2 arrivals"),
        ([[1], [[1, 2]]], r"request 1: hash_ids: got \[1, 2\], allowed"),
    ],
)
def test_bad_hash_ids_are_refused_by_request(hash_ids: list[HashIds | None], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        requests_from_arrays([0.0, 1.0], [4, 5], [1, 1], hash_ids=hash_ids, trace_block_size=4)


@pytest.mark.parametrize("ratio", [0.0, -1.0, np.nan, np.inf])
def test_bad_speedup_ratio_is_refused_in_the_words_of_the_reference(ratio: float) -> None:
    with pytest.raises(WorkloadError, match="ratio must be a finite positive number, got"):
        requests_from_arrays([0.0], [1], [1], arrival_speedup_ratio=ratio)


def test_ratio_that_makes_arrivals_overflow_is_refused() -> None:
    with pytest.raises(WorkloadError, match="request 1: arrival_ms: got infinity after division"):
        requests_from_arrays([0.0, 1e300], [1, 1], [1, 1], arrival_speedup_ratio=1e-300)


def test_bad_trace_block_size_is_refused() -> None:
    with pytest.raises(WorkloadError, match="trace_block_size must be greater than 0"):
        requests_from_arrays([0.0], [1], [1], trace_block_size=0)


def test_repr_shows_count_duration_rate_and_mean_lengths() -> None:
    table = requests_from_arrays([0.0, 500.0, 2000.0], [10, 20, 60], [1, 2, 3])
    assert repr(table) == (
        "RequestTable(3 requests over 2.000 s, 1.5 req/s, "
        "mean input 30.0 tokens, mean output 2.0 tokens)"
    )
    assert "all at once" in repr(requests_from_arrays([7.0], [1], [1]))
    assert repr(requests_from_arrays([], [], [])) == "RequestTable(0 requests)"


def test_between_keeps_requests_of_a_half_open_interval_and_restarts_the_clock() -> None:
    table = requests_from_arrays(
        [0.0, 10.0, 20.0, 30.0],
        [4, 8, 12, 4],
        [1, 2, 3, 4],
        hash_ids=[[1], [1, 2], None, [9]],
        trace_block_size=4,
    )
    part = table.between(10.0, 30.0)
    assert part.row.tolist() == [1, 2]
    assert part.arrival_ms.tolist() == [0.0, 10.0]
    assert part.output_tokens.tolist() == [2, 3]
    assert prompts(part) == [[0, 1], []]
    assert part.trace_block_size == 4
    assert len(table.between(0.0, np.inf)) == 4
    assert len(table.between(5.0, 5.0)) == 0


@pytest.mark.parametrize(("start", "end"), [(2.0, 1.0), (np.nan, 1.0), (0.0, np.nan)])
def test_between_refuses_an_interval_that_ends_before_it_starts(start: float, end: float) -> None:
    table = requests_from_arrays([0.0], [1], [1])
    with pytest.raises(ValueError, match="between: got start_ms"):
        table.between(start, end)


def test_head_keeps_the_first_requests() -> None:
    table = requests_from_arrays([0.0, 10.0], [4, 8], [1, 2], hash_ids=[[1], [1, 2]])
    assert prompts(table.head(1)) == [[0]]
    assert len(table.head(5)) == 2
    assert len(table.head(0)) == 0
    with pytest.raises(ValueError, match="head: got count -1"):
        table.head(-1)


def three_sessions() -> RequestTable:
    rows = [
        {"session_id": "a", "timestamp": 20},
        {"session_id": "a", "delay": 5, "hash_ids": [1, 2], "input_length": 7},
        {"session_id": "b", "timestamp": 0, "output_token_ids": [7, 8]},
        {"session_id": "c", "timestamp": 30},
        {"session_id": "c", "delay": 6, "output_token_ids": [9, 9]},
    ]
    row = {"input_length": 4, "output_length": 2, "hash_ids": [1]}
    return requests_from_mooncake_rows([row | fields for fields in rows], 4, is_delta=True)


def test_between_keeps_whole_sessions_that_start_in_the_interval() -> None:
    table = three_sessions()
    part = table.between(20.0, 30.0)
    assert part.session_ids == ("a",)
    assert part.session_starts.tolist() == [0, 2]
    assert part.row.tolist() == [0, 1]
    assert part.start_ms.tolist() == [0.0]
    assert part.delay_ms.tolist() == [0.0, 5.0]
    assert prompts(part) == [[0], [0, 1]]
    assert part.is_delta
    later = table.between(10.0, np.inf)
    assert later.session_ids == ("a", "c")
    assert later.start_ms.tolist() == [10.0, 20.0]
    assert later.output_starts.tolist() == [0, 0, 0, 0, 2]
    assert later.output_ids.tolist() == [9, 9]
    assert table.between(1.0, 2.0).session_starts.tolist() == [0]


def test_between_refuses_sessions_without_a_start() -> None:
    row = {"output_length": 2, "hash_ids": [1], "session_id": "x"}
    table = requests_from_mooncake_rows([row], 4, is_closed_loop=True)
    with pytest.raises(ValueError, match="between: session x has no start"):
        table.between(0.0, 1.0)


@pytest.mark.parametrize(
    ("count", "starts", "names"),
    [
        (0, [0], ()),
        (1, [0, 1], ("a",)),
        (3, [0, 2, 3], ("a", "b")),
        (4, [0, 2, 3, 4], ("a", "b", "c")),
        (9, [0, 2, 3, 5], ("a", "b", "c")),
    ],
)
def test_head_of_sessions_may_cut_off_the_later_turns_of_the_last(
    count: int, starts: list[int], names: tuple[str, ...]
) -> None:
    part = three_sessions().head(count)
    assert part.has_sessions
    assert part.session_starts.tolist() == starts
    assert part.session_ids == names


def test_duration_and_rate_of_sessions_are_those_of_their_starts() -> None:
    table = three_sessions()
    assert table.duration_s == 0.03
    assert table.mean_rate_rps == pytest.approx(100.0)
    assert table.num_sessions == 3
    assert repr(table) == (
        "RequestTable(5 requests in 3 sessions over 0.030 s, 100 sessions/s, "
        "mean input 7.0 tokens, mean output 2.0 tokens)"
    )


def test_rate_is_unknown_if_a_session_has_no_start() -> None:
    row = {"output_length": 2, "hash_ids": [1]}
    rows = [row | {"timestamp": 0}, row, row | {"timestamp": 50}]
    table = requests_from_mooncake_rows(rows, 4, is_closed_loop=True)
    assert table.duration_s == 0.05
    assert table.mean_rate_rps is None
    assert "3 requests in 3 sessions without start times, mean" in repr(table)


def test_list_has_no_sessions_turns_or_deltas() -> None:
    table = requests_from_arrays([0.0, 1.0], [4, 5], [1, 1])
    assert (table.has_sessions, table.num_sessions) == (False, 0)
    assert table.session_of().tolist() == [-1, -1]
    assert table.turn_of().tolist() == [-1, -1]
    assert table.new_input_tokens().tolist() == [4, 5]
    assert table.start_ms is table.arrival_ms

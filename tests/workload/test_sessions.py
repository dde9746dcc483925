"""Sessions of several turns, delta prompts and closed loops (workloads.md §4, §5, §15.1-15.11).

``data/turns.json`` holds Mooncake rows and the reference's records of them, on one worker whose
passes take about 0.001 ms, so that requests run one after the other.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.prefix_reuse import serial_reuse
from support.shared_folder import require_shared

from aisim_gym.errors import WorkloadError
from aisim_gym.workload import (
    RequestTable,
    build_prompt_blocks,
    read_mooncake,
    requests_from_mooncake_rows,
)

CASES = json.loads((Path(__file__).parent / "data" / "turns.json").read_text("utf-8"))


def turn(session: object, **fields: object) -> dict[str, object]:
    """A row of a session; a field set to ``...`` is left out."""
    row = {"input_length": 4, "output_length": 2, "hash_ids": [1], "session_id": session} | fields
    return {name: value for name, value in row.items() if value is not ...}


def read(*rows: dict[str, object], **options: Any) -> RequestTable:
    return requests_from_mooncake_rows(rows, 4, **options)


def case_id(case: dict[str, Any]) -> str:
    delta, loop = ("delta " * case["is_delta"], "closed loop " * case["is_closed_loop"])
    return f"{delta}{loop}blocks {case['trace_block_size']}/{case['block_size']}"


def table_of(case: dict[str, Any]) -> RequestTable:
    options = ("trace_block_size", "arrival_speedup_ratio", "is_delta", "is_closed_loop")
    return requests_from_mooncake_rows(case["rows"], **{name: case[name] for name in options})


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_turns_come_when_they_come_in_the_reference(case: dict[str, Any]) -> None:
    table, records = table_of(case), case["records"]
    assert table.input_tokens.tolist() == records["input_length"]
    assert table.output_tokens.tolist() == records["output_length"]
    for index, turn_index in enumerate(records["turn_index"]):
        if turn_index is None:
            assert not table.has_sessions
        else:
            session = table.session_of()[index]
            assert table.session_ids[session] == records["session_id"][index]
            assert table.turn_of()[index] == turn_index
        if turn_index:
            ready_ms = records["terminal_time_ms"][index - 1] + table.delay_ms[index]
            assert records["arrival_time_ms"][index] == ready_ms
        elif not case["is_closed_loop"]:
            assert records["arrival_time_ms"][index] == table.arrival_ms[index]


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_prompts_and_outputs_have_in_common_what_they_have_in_the_reference(
    case: dict[str, Any],
) -> None:
    table, records = table_of(case), case["records"]
    blocks = build_prompt_blocks(table, case["block_size"])
    expected = serial_reuse(table, blocks, records["arrival_time_ms"])
    assert expected == records["reused_input_tokens"]


def test_records_cover_every_form() -> None:
    forms = {
        (
            case["is_delta"],
            case["is_closed_loop"],
            any("output_token_ids" in r for r in case["rows"]),
        )
        for case in CASES
    }
    assert len(forms) == 8


@pytest.mark.parametrize(
    "name",
    [
        "agg-vllm-sessions-01",
        "agg-vllm-sessions-02",
        "agg-vllm-sessions-04",
        "agg-trtllm-sessions-01",
        "agg-vllm-concurrency-01",
        "agg-vllm-delta-01",
        "agg-sglang-delta-01",
    ],
)
def test_recorded_runs_have_these_sessions(name: str) -> None:
    path = require_shared("goldens", f"{name}.json.gz")
    golden = json.loads(gzip.decompress(path.read_bytes()))
    workload, replay = golden["scenario"]["workload"], golden["scenario"]["replay"]
    is_closed_loop = "replay_concurrency" in replay
    table = requests_from_mooncake_rows(
        workload["rows"],
        workload["block_size"],
        replay.get("arrival_speedup_ratio", 1.0),
        is_delta=replay.get("trace_format") == "mooncake-delta",
        is_closed_loop=is_closed_loop,
    )
    records = golden["per_request"]
    index_of = {row: index for index, row in enumerate(table.row.tolist())}
    sessions, turns = table.session_of(), table.turn_of()
    for at, row in enumerate(records["row"]):
        index = index_of[row]
        assert table.session_ids[sessions[index]] == records["session_id"][at]
        assert turns[index] == records["turn_index"][at]
        assert table.input_tokens[index] == records["input_length"][at]
        if turns[index] == 0 and not is_closed_loop:
            assert table.arrival_ms[index] == records["arrival_time_ms"][at]


def test_sessions_are_in_order_of_appearance_and_their_turns_in_order_of_lines() -> None:
    table = read(
        turn("b", timestamp=70, input_length=1),
        turn("a", timestamp=50, input_length=2),
        turn("b", delay=3, input_length=3),
        turn("c", timestamp=60, input_length=4),
        turn("a", timestamp=55, hash_ids=[1, 2], input_length=5),
    )
    assert table.session_ids == ("b", "a", "c")
    assert table.session_starts.tolist() == [0, 2, 4, 5]
    assert table.row.tolist() == [0, 2, 1, 4, 3]
    assert table.input_tokens.tolist() == [1, 3, 2, 5, 4]
    assert table.session_of().tolist() == [0, 0, 1, 1, 2]
    assert table.turn_of().tolist() == [0, 1, 0, 1, 0]
    assert table.start_ms.tolist() == [20.0, 0.0, 10.0]
    assert np.isnan(table.arrival_ms).tolist() == [False, True, False, True, False]
    assert table.delay_ms.tolist() == [0.0, 3.0, 0.0, 5.0, 0.0]
    assert table.prompt_starts.tolist() == [0, 1, 2, 3, 5, 6]


def test_delay_is_explicit_or_inferred_or_nothing() -> None:
    table = read(
        turn("a", timestamp=10),
        turn("a", timestamp=40),  # inferred: 30
        turn("a", timestamp=900, delay=7),  # explicit, and yet the last timestamp seen
        turn("a", delay=...),
        turn("a", timestamp=900.5),
        turn("a", delay=-0.0),
    )
    assert table.delay_ms.tolist() == [0.0, 30.0, 7.0, 0.0, 0.5, 0.0]


def test_speedup_divides_starts_and_delays() -> None:
    table = read(
        turn("a", timestamp=10),
        turn("a", timestamp=11),
        turn("a", delay=0.7),
        turn("b", timestamp=40),
        arrival_speedup_ratio=3.0,
    )
    assert table.start_ms.tolist() == [0.0, 10.0]
    assert table.delay_ms.tolist() == [0.0, 1.0 / 3.0, 0.7 / 3.0, 0.0]


def test_unnamed_row_can_be_a_turn_of_a_session_with_its_default_name() -> None:
    table = read(turn("request_2", timestamp=0), turn(..., timestamp=7))
    assert table.session_ids == ("request_2",)
    assert table.delay_ms.tolist() == [0.0, 7.0]


def test_sessions_of_one_turn_are_a_list_unless_the_loop_is_closed() -> None:
    rows = (turn("a", timestamp=5), turn("b", timestamp=0), turn(..., timestamp=2))
    plain = read(*rows)
    assert not plain.has_sessions
    assert plain.session_ids == ()
    assert plain.row.tolist() == [1, 2, 0]
    closed = read(*rows, is_closed_loop=True)
    assert closed.session_ids == ("a", "b", "request_3")
    assert closed.row.tolist() == [0, 1, 2]


def test_closed_loop_needs_no_starts_and_leaves_times_as_they_are() -> None:
    table = read(
        turn("a"),
        turn("b", timestamp=30),
        turn("a", delay=4),
        turn("b", timestamp=36),
        is_closed_loop=True,
        arrival_speedup_ratio=0.0,
    )
    assert np.isnan(table.start_ms).tolist() == [True, False]
    assert table.start_ms[1] == 30.0
    assert table.delay_ms.tolist() == [0.0, 4.0, 0.0, 6.0]


def test_delta_prompts_hold_what_came_before() -> None:
    table = read(
        turn("a", timestamp=0, output_length=2),
        turn("b", timestamp=3, input_length=1),
        turn("a", output_length=1, delay=5),
        turn("b", input_length=2),
        turn("a", input_length=3, output_length=1, delay=5),
        is_delta=True,
    )
    assert table.is_delta
    assert table.input_tokens.tolist() == [4, 10, 14, 1, 5]
    assert table.new_input_tokens().tolist() == [4, 4, 3, 1, 2]
    assert read(turn("a", timestamp=0), is_delta=True).input_tokens.tolist() == [4]


def test_output_ids_follow_their_requests() -> None:
    table = read(
        turn("a", timestamp=9, output_token_ids=[7, 8]),
        turn("b", timestamp=5),
        turn("c", timestamp=0, output_length=1, output_token_ids=[9]),
    )
    assert table.row.tolist() == [2, 1, 0]
    assert table.output_starts.tolist() == [0, 1, 1, 3]
    assert table.output_ids.tolist() == [9, 7, 8]
    without = read(turn("a", timestamp=9), turn("b", timestamp=5, output_length=0))
    assert without.output_starts.size == 0


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        # A session's start comes before its turns, a turn's length before its delay.
        (
            [turn("a"), turn("a", input_length=0)],
            {},
            "trace mode requires first_arrival_timestamp_ms for session a",
        ),
        (
            [turn("a", timestamp=0), turn("b"), turn("a", input_length=0)],
            {},
            "session a turn 1 must have a positive input_length",
        ),
        (
            [turn("a", timestamp=0), turn("a", delay=1e300), turn("b", timestamp=1e300)],
            {"arrival_speedup_ratio": 1e-300},
            "session a turn 1 has invalid delay inf",
        ),
        (
            [turn("a", timestamp=0), turn("a", delay=1e300, input_length=0)],
            {"arrival_speedup_ratio": 1e-300},
            "session a turn 1 must have a positive input_length",
        ),
        (
            [turn("a", timestamp=0), turn("b", timestamp=1e300), turn("b")],
            {"arrival_speedup_ratio": 1e-300},
            "session b has invalid first_arrival_timestamp_ms inf",
        ),
        (
            [turn("a", timestamp=-1.7e308), turn("a", timestamp=1.7e308)],
            {},
            "trace line 2 has invalid delay inf",
        ),
        # Timestamps mean nothing in a closed loop, yet negative ones are refused.
        (
            [turn("a"), turn("b", timestamp=-5)],
            {"is_closed_loop": True},
            "session b has invalid first_arrival_timestamp_ms -5",
        ),
        (
            [turn("a"), turn("a", timestamp=5)],
            {"is_closed_loop": True},
            "trace line 2 for session a cannot infer delay without a previous timestamp",
        ),
        (
            [turn("a", timestamp=0), turn("a", input_length=0, hash_ids=[])],
            {"is_delta": True},
            "session a turn 1 must have a positive input_length",
        ),
    ],
)
def test_refusals_have_the_words_and_the_order_of_the_reference(
    rows: list[dict[str, object]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(*rows, **options)
    assert message in str(caught.value)


def test_delta_prompt_beyond_what_a_replay_counts_is_refused() -> None:
    most = 2**31 - 1
    rows = [turn("a", timestamp=0, output_length=most), turn("b", timestamp=0), turn("a")]
    with pytest.raises(WorkloadError, match=r"session a turn 1: .* is above 2147483647, .*line 3"):
        read(*rows, is_delta=True)


def test_file_is_read_like_rows(tmp_path: Path) -> None:
    rows = [turn("ä", timestamp=3), turn("ä", delay=2)]
    path = tmp_path / "t.jsonl"
    path.write_text("\n\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    table = read_mooncake(path, 4, is_delta=True)
    assert table.session_ids == ("ä",)
    assert table.input_tokens.tolist() == [4, 10]
    assert read_mooncake(path, 4, is_closed_loop=True).start_ms.tolist() == [3.0]

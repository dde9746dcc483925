"""The reference's synthetic workload, against its records (workloads.md §6, §15.4, §15.9).

``data/synthetic.json`` holds calls of the reference's synthetic replay on one worker whose passes
take about 0.001 ms, so that requests run one after the other, and what came of them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.prefix_reuse import serial_reuse

from aisim_gym.errors import WorkloadError
from aisim_gym.spec import SyntheticSpec, replay_spec_from_synthetic_arguments
from aisim_gym.workload import RequestTable, build_prompt_blocks, generate_synthetic, load_workload

CASES = json.loads((Path(__file__).parent / "data" / "synthetic.json").read_text("utf-8"))


def case_id(case: dict[str, Any]) -> str:
    return " ".join(str(value) for value in case["arguments"].values())


def table_of(case: dict[str, Any]) -> RequestTable:
    workload = replay_spec_from_synthetic_arguments(**case["arguments"]).workload
    return load_workload(workload, case["block_size"])


def make(block_size: int | None = None, speedup_ratio: float = 1.0, **fields: Any) -> RequestTable:
    lengths: dict[str, Any] = {"input_tokens": 8, "output_tokens": 2, "request_count": 3}
    return generate_synthetic(SyntheticSpec(**(lengths | fields)), speedup_ratio, block_size)


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_requests_are_those_of_the_reference(case: dict[str, Any]) -> None:
    table, records = table_of(case), case["records"]
    assert table.input_tokens.tolist() == records["input_length"]
    assert table.output_tokens.tolist() == records["output_length"]
    names = [table.session_ids[s] if s >= 0 else None for s in table.session_of().tolist()]
    assert names == records["session_id"]
    turns = [turn if turn >= 0 else None for turn in table.turn_of().tolist()]
    assert turns == records["turn_index"]


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_arrivals_are_those_of_the_reference_to_the_last_bit(case: dict[str, Any]) -> None:
    table, records = table_of(case), case["records"]
    is_closed_loop = "replay_concurrency" in case["arguments"]
    for index, turn in enumerate(records["turn_index"]):
        if turn:
            ready_ms = records["terminal_time_ms"][index - 1] + table.delay_ms[index]
            assert records["arrival_time_ms"][index] == ready_ms
        elif not is_closed_loop:
            assert records["arrival_time_ms"][index] == table.arrival_ms[index]


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_shared_prefixes_are_those_of_the_reference(case: dict[str, Any]) -> None:
    table, records = table_of(case), case["records"]
    blocks = build_prompt_blocks(table, case["block_size"])
    expected = serial_reuse(table, blocks, records["arrival_time_ms"])
    assert expected == records["reused_input_tokens"]


def test_records_cover_shared_prefixes() -> None:
    assert sum(any(case["records"]["reused_input_tokens"]) for case in CASES) >= 4


@pytest.mark.parametrize(
    ("ratio", "blocks"), [(0.1, 1), (0.3, 2), (0.5, 3), (0.7, 4), (0.9, 5), (1.0, 5)]
)
def test_shared_part_is_rounded_half_away_from_zero_to_whole_blocks(
    ratio: float, blocks: int
) -> None:
    table = make(
        4, input_tokens=20, request_rate=1.0, shared_prefix_ratio=ratio, num_prefix_groups=1
    )
    assert build_prompt_blocks(table, 4).shared_blocks.tolist() == [blocks] * 3


def test_groups_are_drawn_per_session_and_shared_by_its_turns() -> None:
    table = make(
        4,
        request_count=13,
        request_rate=1.0,
        turns_per_session=2,
        shared_prefix_ratio=0.5,
        num_prefix_groups=50,
    )
    groups = [6, 26, 12, 27, 43, 31, 49, 20, 48, 1, 30, 20, 17]
    assert table.prompt_ids.tolist() == np.repeat(groups, 2).tolist()


def test_list_has_no_sessions_and_no_prompts_in_common() -> None:
    table = make(request_rate=1.0)
    assert not table.has_sessions
    assert build_prompt_blocks(table, 4).num_shared == 0


def test_prompts_of_a_list_that_begin_with_the_same_random_token_share_it() -> None:
    # Seen in the reference: with blocks of one token, request 81105 reuses one token of 13286.
    table = make(1, request_count=81_106, arrival_interval_ms=1.0)
    blocks = build_prompt_blocks(table, 1)
    assert np.flatnonzero(blocks.shared_blocks).tolist() == [13_286, 81_105]
    assert blocks.num_shared == 1


def test_closed_loop_has_a_list_at_zero_and_sessions_without_starts() -> None:
    assert make().arrival_ms.tolist() == [0.0, 0.0, 0.0]
    sessions = make(turns_per_session=2, inter_turn_delay_ms=5.0)
    assert np.isnan(sessions.arrival_ms).all()
    assert sessions.delay_ms.tolist() == [0.0, 5.0] * 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"request_rate": 1e-308},
            "trace replay request 00000000-0000-0000-0000-000000000002 has an unusable arrival "
            "timestamp (inf)",
        ),
        (
            {"request_rate": 1e-308, "turns_per_session": 2},
            "session session_1 has invalid first_arrival_timestamp_ms inf",
        ),
        (
            {"arrival_interval_ms": 1e308, "turns_per_session": 2},
            "session session_2 has invalid first_arrival_timestamp_ms inf",
        ),
        (
            {"turns_per_session": 2, "inter_turn_delay_ms": 1e300, "speedup_ratio": 1e-300},
            "session session_0 turn 1 has invalid delay inf",
        ),
        ({"speedup_ratio": 0.0}, "ratio must be a finite positive number, got 0"),
    ],
)
def test_times_that_overflow_are_refused_in_the_words_of_the_reference(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        make(**fields)
    assert message in str(caught.value)


def test_shared_prefixes_need_the_block_size_of_the_engine() -> None:
    with pytest.raises(WorkloadError, match="got no engine_block_size"):
        make(request_rate=1.0, shared_prefix_ratio=0.5, num_prefix_groups=1)


def test_million_requests_are_generated_quickly() -> None:
    table = make(request_count=1_000_000, request_rate=100.0)
    assert table.mean_rate_rps == pytest.approx(100.0, rel=0.01)

"""Tables written as Mooncake files and read again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_gym.spec import SyntheticSpec
from aisim_gym.spec.generator import GeneratorSpec
from aisim_gym.workload import (
    RequestTable,
    build_prompt_blocks,
    generate_requests,
    generate_synthetic,
    read_mooncake,
    requests_from_arrays,
    requests_from_mooncake_rows,
    write_mooncake,
)


@pytest.mark.parametrize("name", ["out.jsonl", "out ü.jsonl.gz"])
def test_written_file_reads_back_to_the_same_requests(tmp_path: Path, name: str) -> None:
    table = generate_requests(GeneratorSpec(duration_s=200))
    path = tmp_path / name
    write_mooncake(table, path)
    again = read_mooncake(path)
    assert np.array_equal(again.arrival_ms, table.arrival_ms - table.arrival_ms[0])
    assert np.array_equal(again.input_tokens, table.input_tokens)
    assert np.array_equal(again.output_tokens, table.output_tokens)
    assert build_prompt_blocks(again, 64).num_shared == 0
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")


@settings(deadline=None, max_examples=50)
@given(
    prompts=st.lists(st.one_of(st.none(), st.lists(st.integers(0, 3), min_size=1)), min_size=1),
    block_size=st.integers(1, 6),
)
def test_written_file_keeps_shared_prefixes(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[list[int] | None], block_size: int
) -> None:
    inputs = [4 if ids is None else 4 * len(ids) for ids in prompts]
    arrival_ms = 0.1 * np.arange(len(prompts))[::-1]
    table = requests_from_arrays(arrival_ms, inputs, [0] * len(inputs), prompts, 4)
    path = tmp_path_factory.mktemp("written") / "t.jsonl"
    write_mooncake(table, path)
    before = build_prompt_blocks(table, block_size)
    after = build_prompt_blocks(read_mooncake(path, trace_block_size=4), block_size)
    assert np.array_equal(before.contents, after.contents)
    assert np.array_equal(before.shared_blocks, after.shared_blocks)


ROWS: list[dict[str, Any]] = [
    {"session_id": "b", "timestamp": 4, "input_length": 5, "output_length": 2},
    {"session_id": "ä", "timestamp": 0, "input_length": 8, "output_length": 2},
    {"session_id": "b", "delay": 1.5, "input_length": 3, "output_length": 0},
    {"session_id": "ä", "timestamp": 6.25, "input_length": 6, "output_length": 1},
]
PROMPTS = [[50, 51], [50, 52], [50], [53, 52]]
OUTPUTS = [[90_000, 90_001], None, [], [90_000]]


def assert_same_requests(first: RequestTable, second: RequestTable) -> None:
    assert np.array_equal(first.start_ms, second.start_ms, equal_nan=True)
    assert np.array_equal(first.input_tokens, second.input_tokens)
    assert np.array_equal(first.output_tokens, second.output_tokens)
    assert np.array_equal(first.session_starts, second.session_starts)
    assert np.array_equal(first.delay_ms, second.delay_ms)
    assert first.session_ids == second.session_ids
    assert first.is_delta == second.is_delta
    assert np.array_equal(first.output_ids, second.output_ids)
    assert np.array_equal(first.output_starts, second.output_starts)
    before, after = build_prompt_blocks(first, 3), build_prompt_blocks(second, 3)
    assert np.array_equal(before.contents, after.contents)
    assert np.array_equal(before.shared_blocks, after.shared_blocks)


@pytest.mark.parametrize("is_delta", [False, True])
@pytest.mark.parametrize("is_closed_loop", [False, True])
def test_sessions_are_written_with_names_delays_and_outputs(
    tmp_path: Path, is_delta: bool, is_closed_loop: bool
) -> None:
    rows = [
        row | {"hash_ids": hash_ids, "output_token_ids": output_ids}
        for row, hash_ids, output_ids in zip(ROWS, PROMPTS, OUTPUTS, strict=True)
    ]
    if is_closed_loop:
        del rows[0]["timestamp"]
    table = requests_from_mooncake_rows(rows, 4, is_delta=is_delta, is_closed_loop=is_closed_loop)
    path = tmp_path / "t.jsonl"
    write_mooncake(table, path)
    again = read_mooncake(path, 4, is_delta=is_delta, is_closed_loop=is_closed_loop)
    assert again.row.tolist() == [0, 1, 2, 3]
    assert_same_requests(table, again)


def test_prompts_known_in_part_are_filled_up_with_ids_of_their_own(tmp_path: Path) -> None:
    spec = SyntheticSpec(
        input_tokens=11,
        output_tokens=1,
        request_count=3,
        turns_per_session=2,
        shared_prefix_ratio=0.5,
        num_prefix_groups=1,
    )
    table = generate_synthetic(spec, engine_block_size=4)
    path = tmp_path / "t.jsonl"
    write_mooncake(table, path)
    ids = [json.loads(line)["hash_ids"] for line in path.read_text().splitlines()]
    assert [len(prompt) for prompt in ids] == [3] * 6
    assert [prompt[:2] for prompt in ids] == [[0, 1]] * 6
    assert len({prompt[2] for prompt in ids}) == 6
    assert_same_requests(table, read_mooncake(path, 4, is_closed_loop=True))

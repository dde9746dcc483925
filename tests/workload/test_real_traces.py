"""Public traces: counts and statistics as published (traffic-data.md), and speed."""

import time

import numpy as np
import pytest
from support.shared_folder import require_shared

from aisim_gym.workload import (
    build_prompt_blocks,
    detect_trace_format,
    read_azure_csv,
    read_mooncake,
    write_mooncake,
)


@pytest.mark.parametrize(
    ("name", "count", "mean_input", "mean_output"),
    [
        ("azure_llm_2023_conv.csv.gz", 19_366, 1155, 211.1),
        ("azure_llm_2023_code.csv.gz", 8_819, 2048, 27.9),
    ],
)
def test_azure_trace_is_read_whole_and_quickly(
    name: str, count: int, mean_input: float, mean_output: float
) -> None:
    path = require_shared("data", "traces", name)
    assert detect_trace_format(path) == "azure"
    begin = time.perf_counter()
    table = read_azure_csv(path)
    assert time.perf_counter() - begin < 0.5
    assert len(table) == count
    assert table.arrival_ms[0] == 0.0
    assert np.array_equal(table.row, np.arange(count))
    assert table.input_tokens.mean() == pytest.approx(mean_input, abs=0.5)
    assert table.output_tokens.mean() == pytest.approx(mean_output, abs=0.05)


def test_mooncake_trace_is_read_and_its_blocks_are_numbered_quickly() -> None:
    path = require_shared("data", "traces", "mooncake_conversation.jsonl.gz")
    assert detect_trace_format(path) == "mooncake"
    begin = time.perf_counter()
    table = read_mooncake(path)
    read = time.perf_counter()
    blocks = build_prompt_blocks(table, 64)
    done = time.perf_counter()
    assert read - begin < 1.0
    assert done - read < 1.5
    assert len(table) == 12_031
    assert table.duration_s == pytest.approx(3537.0, abs=0.01)
    # Eight engine blocks per trace block: aligned sizes share the same tokens, whole blocks apart.
    coarse = build_prompt_blocks(table, 512)
    shared_tokens = blocks.shared_blocks * 64
    assert (shared_tokens >= coarse.shared_blocks * 512).all()
    assert (shared_tokens - coarse.shared_blocks * 512 < 512).all()


def test_mooncake_trace_written_and_read_again_is_the_same(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    table = read_mooncake(require_shared("data", "traces", "mooncake_synthetic.jsonl.gz"))
    path = tmp_path_factory.mktemp("written") / "again.jsonl"
    write_mooncake(table, path)
    again = read_mooncake(path)
    assert np.array_equal(again.arrival_ms, table.arrival_ms)
    assert np.array_equal(again.prompt_ids, table.prompt_ids)
    assert np.array_equal(again.prompt_starts, table.prompt_starts)

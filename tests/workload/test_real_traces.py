"""Public traces: counts and statistics as published (traffic-data.md), and speed."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from support.effort import cpu_ratio
from support.shared_folder import require_shared

from aisim_gym.workload import (
    build_prompt_blocks,
    detect_trace_format,
    read_azure_csv,
    read_mooncake,
    write_mooncake,
)


def split_csv(path: Path) -> None:
    """Do what any reader of the file has to do."""
    with gzip.open(path, "rt", newline="") as file:
        list(csv.reader(file))


def parse_json(path: Path) -> None:
    """Do what any reader of the file has to do."""
    with gzip.open(path, "rt") as file:
        [json.loads(line) for line in file]


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
    table = read_azure_csv(path)
    assert cpu_ratio(lambda: read_azure_csv(path), lambda: split_csv(path)) < 30  # usual: 5
    assert len(table) == count
    assert table.arrival_ms[0] == 0.0
    assert np.array_equal(table.row, np.arange(count))
    assert table.input_tokens.mean() == pytest.approx(mean_input, abs=0.5)
    assert table.output_tokens.mean() == pytest.approx(mean_output, abs=0.05)


def test_mooncake_trace_is_read_and_its_blocks_are_numbered_quickly() -> None:
    path = require_shared("data", "traces", "mooncake_conversation.jsonl.gz")
    assert detect_trace_format(path) == "mooncake"
    table = read_mooncake(path)
    blocks = build_prompt_blocks(table, 64)
    # Usual: 2.5 and 0.5.
    assert cpu_ratio(lambda: read_mooncake(path), lambda: parse_json(path), 3) < 12
    assert cpu_ratio(lambda: build_prompt_blocks(table, 64), lambda: parse_json(path), 3) < 5
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

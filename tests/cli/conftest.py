"""A tiny workload for the command line."""

from pathlib import Path

import pytest


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A Mooncake trace of 20 requests in ten seconds."""
    line = '{{"timestamp": {}, "input_length": 300, "output_length": 20, "hash_ids": [{}]}}\n'
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(line.format(500 * index, index) for index in range(20)))
    return path

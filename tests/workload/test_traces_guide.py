"""The guide to traces: its code runs, and its table names the formats there are."""

import re
from pathlib import Path

import numpy as np
import pytest

from aisim_gym.workload import requests_from_arrays, write_simple_csv
from aisim_gym.workload.load import TRACE_READERS

GUIDE = Path(__file__).parents[2] / "docs" / "traces.md"


def test_code_of_the_guide_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """F48: documented examples work as they stand."""
    monkeypatch.chdir(tmp_path)
    arrival_ms = np.arange(0.0, 900_000.0, 1000.0)
    prompts = [[0, 1 + index] for index in range(900)]
    write_simple_csv(
        requests_from_arrays(arrival_ms, [600] * 900, [3000, 4000] * 450, prompts), "trace.csv"
    )
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL):
        exec(compile(block, str(GUIDE), "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1200 ")
    assert lines[1] == "2100 requests, 1050 too long"


def test_guide_names_every_format_that_is_read() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (?:JSONL|CSV|the same)", GUIDE.read_text("utf-8"), re.M)
    assert rows == list(TRACE_READERS)

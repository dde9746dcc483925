"""What was measured is in the file at once."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from aisim_gym.bench.bench_options import BenchOptions
from aisim_gym.bench.bench_run import BenchRun
from aisim_gym.bench.measurement import Measurement, Skipped


def interrupted(options: BenchOptions) -> Iterator[Measurement | Skipped]:
    yield Measurement("first", "ms", (1.0,) * options.repeats)
    yield Skipped("second", "not here")
    raise KeyboardInterrupt


def test_interrupted_section_leaves_what_it_measured(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    run = BenchRun(BenchOptions(repeats=2), out)
    run.measure("whole", lambda options: iter([Measurement("only", "s", (2.0,))]))
    with pytest.raises(KeyboardInterrupt):
        run.measure("half", interrupted)
    written = json.loads(out.read_text())
    assert written == run.to_dict()
    assert written["sections"]["whole"]["is_complete"] is True
    half = written["sections"]["half"]
    assert [found["repeats"] for found in half["measurements"]] == [[1.0, 1.0]]
    assert half["skipped"] == [{"name": "second", "reason": "not here"}]
    assert half["is_complete"] is False


def test_file_says_on_what_it_ran(tmp_path: Path) -> None:
    result = BenchRun(BenchOptions(repeats=3, is_short=True)).to_dict()
    assert (result["repeats"], result["is_short"], result["reference"]) == (3, True, None)
    assert result["machine"].keys() >= {"processor", "cpu_count", "python", "numba", "numpy"}
    assert result["machine"]["processor"]

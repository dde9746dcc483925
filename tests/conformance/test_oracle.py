"""Asking the reference: what is recorded from its answers, and what happens when it hangs."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support.goldens import golden_path
from support.oracle import HungError, Oracle, why_no_oracle
from support.oracle_comparison import Differential
from support.oracle_recording import golden_data, unrecorded

from aisim_gym.conformance import Golden, run_scenario
from aisim_gym.conformance.difference import first_difference
from aisim_gym.errors import ReplayError

PARTS = ("error", "snapshots", "per_request", "summary", "lifecycle_operations", "telemetry")


def scenario(rows: list[dict[str, Any]], **engine: Any) -> dict[str, Any]:
    """Return a scenario of one aggregated worker with fixed pass times."""
    timing = {"type": "fixed", "prefill_ms": 10.0, "decode_ms": 3.0}
    engine = {"block_size": 4, "num_gpu_blocks": 16, "timing_model": timing, **engine}
    return {
        "name": "test",
        "topology": {"kind": "agg", "num_workers": 1},
        "engine_overrides": {"agg": {"engine": engine}},
        "workload": {"block_size": 4, "rows": rows},
        "replay": {},
        "ticks": None,
    }


def row(input_tokens: int, output_tokens: int, *hash_ids: int) -> dict[str, Any]:
    """Return a trace row that arrives at 0."""
    return {
        "timestamp": 0.0,
        "input_length": input_tokens,
        "output_length": output_tokens,
        "hash_ids": list(hash_ids),
    }


HANGING = scenario(
    [row(9, 60, 1, 2, 3)], backend="sglang", sglang={"clip_max_new_tokens": 1}
)  # engine-sglang.md, E9


@pytest.mark.parametrize(
    "name",
    [
        "agg-sglang-sessions-01",
        "agg-vllm-delta-01",
        "agg-vllm-error-04",
        "agg-vllm-maxsim-01",
        "agg-vllm-micro-01",
        "disagg-vllm-scale-cancel-01",
    ],
)
def test_recording_a_golden_again_gives_the_same(oracle: Oracle, name: str) -> None:
    golden = Golden.read(golden_path(name))
    data = golden_data(golden, oracle.run(golden), run_scenario(golden))
    with gzip.open(golden.path, "rt", encoding="utf-8") as file:
        recorded = json.load(file)
    assert data["scenario"]["ticks"] == recorded["scenario"]["ticks"]
    for part in PARTS:
        assert first_difference(part, data.get(part), recorded.get(part)) is None


def test_requests_that_look_alike_are_told_apart(oracle: Oracle, tmp_path: Path) -> None:
    rows = [row(8, 3, 1, 2), row(8, 3, 1, 2), row(8, 3, 3, 4)]
    comparison = Differential(oracle, tmp_path).compare(scenario(rows, max_num_seqs=1))
    assert comparison.difference is None
    assert comparison.recording["per_request"]["row"] == [0, 1, 2]
    assert comparison.recording["per_request"]["reused_input_tokens"] == [0, 4, 0]


def test_hanging_reference_is_told_and_asked_again(oracle: Oracle) -> None:
    with pytest.raises(HungError):
        oracle.run(unrecorded(HANGING))
    assert oracle.run(unrecorded(scenario([row(8, 3, 1, 2)])))["error"] is None


def test_where_the_reference_hangs_we_raise(oracle: Oracle, tmp_path: Path) -> None:
    comparison = Differential(oracle, tmp_path).compare(HANGING)
    assert isinstance(comparison.failure, HungError)
    assert isinstance(comparison.run.exception, ReplayError)
    assert comparison.difference is None


def test_difference_is_written_as_a_golden(oracle: Oracle, tmp_path: Path) -> None:
    comparison = Differential(oracle, tmp_path).compare(scenario([row(8, 3, 1, 2)]))
    path = comparison.write(tmp_path)
    assert Golden.read(path).summary == comparison.recording["summary"]
    assert list(tmp_path.iterdir()) == [path]


def test_missing_interpreter_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AISIM_ORACLE_PYTHON", "/nowhere/python")
    assert "/nowhere/python" in why_no_oracle.__wrapped__()

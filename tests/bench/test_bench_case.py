"""The cases that both sides run: what they are, and that a wrong result is no fast one."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from aisim_gym.bench import our_run, reference_worker, tick_policies
from aisim_gym.bench.against_reference import measure_case
from aisim_gym.bench.bench_case import BenchCase, WrongResultError, read_scenarios
from aisim_gym.bench.bench_options import BenchOptions
from aisim_gym.bench.measurement import Measurement, Target
from aisim_gym.replay import Replay, ScalingDecision
from aisim_gym.workload import requests_from_arrays

ROW = '{"timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [1, 2]}\n'


@pytest.fixture
def small() -> BenchCase:
    """One request under a planner that decides nothing."""
    return BenchCase(
        name="small",
        arguments={"num_workers": 1},
        requests=requests_from_arrays([0.0], [100], [400]),
        ticks={"every_ms": 100.0},
        write_trace=lambda path: None,
        summary=None,
    )


def test_six_scenarios_come_with_the_package() -> None:
    cases = read_scenarios()
    assert [len(case.requests) for case in cases] == [2000, 10000, 1500, 2400, 12000, 6000]
    for case in cases:
        assert case.summary is not None
        assert case.summary["num_requests"] == len(case.requests)
        assert not case.spec.capture_per_request
        assert (case.ticks is not None) == case.name.startswith("bench-6")


def test_scenario_is_written_as_it_was_recorded(tmp_path: Path) -> None:
    case = read_scenarios()[0]
    case.write_trace(tmp_path / "trace.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert len(rows) == 2000
    assert {row["input_length"] for row in rows} == set(case.requests.input_tokens.tolist())


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mooncake_trace_is_handed_over_unpacked(suffix: str, tmp_path: Path) -> None:
    trace = tmp_path / f"conversation.jsonl{suffix}"
    trace.write_bytes(gzip.compress(ROW.encode()) if suffix else ROW.encode())
    case = BenchCase.of_mooncake(trace)
    case.write_trace(tmp_path / "copy.jsonl")
    assert (tmp_path / "copy.jsonl").read_text() == ROW
    assert (case.name, len(case.requests), case.ticks) == ("conversation", 1, {"every_ms": 5000.0})


def test_timed_run_gives_the_recorded_result() -> None:
    case = read_scenarios()[2]
    found, *_ = measure_case(case, BenchOptions(repeats=1), Target(8.0, True, True))
    assert len(found.ours) == 1
    assert 0.0 < found.details["ours, run only, ms"] < found.ours[0]
    assert found.ours[0] < found.details["ours, with summary, ms"]


def test_wrong_result_is_refused(small: BenchCase) -> None:
    wrong = BenchCase(**{**vars(small), "summary": {"num_requests": 2}})
    with pytest.raises(WrongResultError, match=r"small, run by ours: summary num_requests: got 1"):
        list(measure_case(wrong, BenchOptions(repeats=1), Target(8.0, True, True)))


def test_case_without_a_recorded_result_must_repeat_itself(small: BenchCase) -> None:
    found, *_ = measure_case(small, BenchOptions(repeats=2), Target(8.0, True, True))
    assert isinstance(found, Measurement)
    assert len(found.ours) == 2


def test_version_with_a_fast_forward_is_compared_with_itself_pass_by_pass(
    small: BenchCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    class Switchable(Replay):
        def __init__(self, *args: Any, fast_forward: bool = True, **options: Any) -> None:
            super().__init__(*args, **options)
            asked.append(fast_forward)

    monkeypatch.setattr(our_run, "Replay", Switchable)
    (found,) = measure_case(small, BenchOptions(repeats=2), Target(8.0, True, True))
    assert (found.other_name, len(found.other), found.target) == ("pass by pass", 2, None)
    assert asked == [True, False] * 3


def test_both_sides_decide_alike() -> None:
    spec = {"fleet": {"kind": "agg"}}
    replay = Replay(spec, requests_from_arrays([0.0], [100], [400]), initial_tick_ms=500.0)
    snapshot = replay.advance_to_tick()
    assert snapshot is not None
    script = [[None, 3, 1000.0]]
    for ours, theirs in (
        (tick_policies.KeepFleet(500.0), reference_worker.ReferenceKeepFleet(500.0)),
        (
            tick_policies.PlayScript(500.0, script),
            reference_worker.ReferencePlayScript(500.0, script),
        ),
    ):
        assert ours.initial_tick_ms() == theirs.initial_tick_ms() == 500.0
        decision = ours.on_tick(snapshot)
        fields = vars(decision) if isinstance(decision, ScalingDecision) else decision
        assert fields == theirs.on_tick(snapshot.to_dict())

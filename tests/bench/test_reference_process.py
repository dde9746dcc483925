"""The reference as a process: its protocol, shown with a stand-in, and its errors."""

import sys
from pathlib import Path

import pytest
from support.oracle import oracle_python, why_no_oracle

from aisim_gym.bench.against_reference import measure_case
from aisim_gym.bench.bench_case import BenchCase, read_scenarios
from aisim_gym.bench.bench_options import BenchOptions
from aisim_gym.bench.measurement import REFERENCE, Target
from aisim_gym.bench.reference_process import ReferenceError, ReferenceProcess
from aisim_gym.workload import requests_from_arrays

STAND_IN = """
import pathlib, time
class WorkerReply:
    def __init__(self, summary):
        self.summary = summary
def run_mocker_trace_replay(traces, scaling_policy=None, **arguments):
    if arguments["num_workers"] == 0:
        raise ValueError("no workers")
    print("chatter on standard output")
    rows = pathlib.Path(traces[0]).read_text().splitlines()
    tick_ms = scaling_policy and scaling_policy.initial_tick_ms()
    return WorkerReply({"wall_time_ms": 250.0, "num_requests": len(rows), "tick_ms": tick_ms})
"""


def interpreter(folder: Path, *flags: str) -> str:
    """Return an interpreter that sees ``folder`` first, started with ``flags``."""
    path = folder / "python"
    call = f'PYTHONPATH="{folder}" exec "{sys.executable}" {" ".join(flags)} "$@"'
    path.write_text(f"#!/bin/sh\n{call}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    """An interpreter whose ``dynamo`` counts the requests and says it took 250 ms."""
    (tmp_path / "dynamo").mkdir()
    (tmp_path / "dynamo" / "__init__.py").touch()
    (tmp_path / "dynamo" / "_core.py").write_text(STAND_IN)
    (tmp_path / "ai_dynamo_runtime-0.0.0.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: ai-dynamo-runtime\nVersion: 0.0.0\n"
    (tmp_path / "ai_dynamo_runtime-0.0.0.dist-info" / "METADATA").write_text(metadata)
    return interpreter(tmp_path)


def write_two_rows(path: Path) -> None:
    path.write_text("{}\n{}\n")


def case(num_workers: int = 1) -> BenchCase:
    return BenchCase(
        name="pair",
        arguments={"num_workers": num_workers},
        requests=requests_from_arrays([0.0, 1.0], [10, 10], [2, 2]),
        ticks={"every_ms": 40.0},
        write_trace=write_two_rows,
        summary=None,
    )


def test_calls_are_answered_one_after_the_other(stand_in: str) -> None:
    with ReferenceProcess(stand_in) as reference:
        assert reference.version == "0.0.0"
        for _ in range(2):
            run = reference.run(case())
            assert run.seconds == 0.25
            assert run.summary == {"wall_time_ms": 250.0, "num_requests": 2, "tick_ms": 40.0}
            assert list(run.details) == ["reference, whole call"]


def test_failed_call_says_why(stand_in: str) -> None:
    with (
        ReferenceProcess(stand_in) as reference,
        pytest.raises(ReferenceError, match=r"did not run the reference \(pair\).*no workers"),
    ):
        reference.run(case(num_workers=0))


def test_call_after_a_failure_says_so(stand_in: str) -> None:
    with ReferenceProcess(stand_in) as reference:
        for _ in range(2):
            with pytest.raises(ReferenceError, match="did not run the reference"):
                reference.run(case(num_workers=0))


def test_interpreter_without_the_reference_is_named(tmp_path: Path) -> None:
    bare = interpreter(tmp_path, "-S")  # no installed packages
    with pytest.raises(ReferenceError, match=r"the package ai-dynamo-runtime.*dynamo") as told:
        ReferenceProcess(bare)
    assert bare in str(told.value)


def test_program_that_is_no_interpreter_is_refused() -> None:
    with pytest.raises(ReferenceError, match="echo did not run the reference"):
        ReferenceProcess("/bin/echo")


def test_absent_interpreter_is_named() -> None:
    with pytest.raises(ReferenceError, match=r"got /nowhere/python, .*No such file or directory"):
        ReferenceProcess("/nowhere/python")


@pytest.mark.skipif(bool(why_no_oracle()), reason=why_no_oracle() or "it is there")
@pytest.mark.parametrize("index", [0, 5])
def test_both_sides_give_the_recorded_result(index: int) -> None:
    with ReferenceProcess(oracle_python()) as reference:
        options = BenchOptions(repeats=1, reference=reference)
        found = list(measure_case(read_scenarios()[index], options, Target(8.0, True, True)))
    assert found[0].other_name == REFERENCE
    assert found[0].other[0] <= found[0].details["reference, whole call, ms"]

"""Same input, same run: across processes, beside other runs, without touching anything else."""

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.audit import differing_tables
from support.cases import drive
from support.fixed_cases import BUSY, BUSY_DISAGGREGATED
from support.fleets import arrivals, small_fleet
from support.results import results

from aisim_gym.replay import Replay, ScalingDecision
from aisim_gym.replay.run import INSTANTS_PER_CALL
from aisim_gym.spec import replay_spec_from_reference_arguments
from aisim_gym.workload import requests_from_arrays

PRINT_DIGESTS = """
from replay.test_determinism import BUSY, digest
for name, case in BUSY.items():
    print(name, digest(case))
"""


def digest(case: Any) -> str:
    """Return a hash of everything a run shows, floats in full."""
    replay = case.replay()
    outcome = drive(replay, case)
    snapshots = [snapshot.to_dict() for snapshot in outcome.snapshots]
    text = json.dumps([snapshots, results(replay)], default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("case", BUSY.values(), ids=BUSY)
def test_second_run_is_equal_byte_for_byte(case: Any) -> None:
    first, second = case.replay(), case.replay()
    assert drive(first, case) == drive(second, case)
    assert differing_tables(first.state, second.state) == []


def digests() -> dict[str, str]:
    return {name: digest(case) for name, case in BUSY.items()}


def digests_of_another_process(**variables: str) -> dict[str, str]:
    """Return the digests of all cases in a process with these variables; warnings are errors."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PRINT_DIGESTS],
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "disable_jit"), [("0", "0"), ("4242", "1")], ids=["compiled", "plain Python"]
)
def test_processes_agree_whatever_their_hash_seed_compiled_or_not(
    seed: str, disable_jit: str
) -> None:
    """The process of the tests has a hash seed of its own."""
    theirs = digests_of_another_process(PYTHONHASHSEED=seed, NUMBA_DISABLE_JIT=disable_jit)
    assert theirs == digests()


def test_interleaved_runs_do_not_disturb_each_other() -> None:
    cases = [*BUSY.values(), *BUSY.values()]
    alone = [case.replay() for case in cases]
    expected = [drive(replay, case) for replay, case in zip(alone, cases, strict=True)]
    together = [case.replay() for case in cases]
    open_runs = list(range(len(cases)))
    while open_runs:
        for index in tuple(open_runs):
            snapshot = together[index].advance_to_tick()
            if snapshot is None:
                open_runs.remove(index)
            else:
                assert snapshot == expected[index].snapshots[snapshot.tick_ordinal]
                together[index].apply(cases[index].answer(snapshot))
    for replay, other in zip(together, alone, strict=True):
        assert differing_tables(replay.state, other.state) == []


@pytest.mark.parametrize("case", BUSY.values(), ids=BUSY)
def test_run_is_the_same_however_many_instants_one_call_covers(
    case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, split = case.replay(), case.replay()
    expected = drive(whole, case)
    monkeypatch.setattr("aisim_gym.replay.run.INSTANTS_PER_CALL", 1)
    assert drive(split, case) == expected
    assert differing_tables(split.state, whole.state) == []
    assert INSTANTS_PER_CALL > 1


def test_global_random_state_is_neither_used_nor_moved() -> None:
    legacy = np.random.mtrand._rand
    legacy.seed(1)
    random.seed(1)
    ours = digest(BUSY_DISAGGREGATED)
    assert legacy.random_sample() == np.random.RandomState(1).random_sample()
    assert random.random() == random.Random(1).random()
    legacy.seed(2)
    random.seed(2)
    assert digest(BUSY_DISAGGREGATED) == ours


def test_trace_file_is_not_modified(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 5.0 * at, "input_length": 20, "output_length": 3, "hash_ids": [at]}
        for at in range(20)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, ns=(1_000, 2_000))
    content = path.read_bytes()
    Replay.run(replay_spec_from_reference_arguments(trace_files=[path]))
    assert path.read_bytes() == content
    assert path.stat().st_mtime_ns == 2_000
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.jsonl"]


def test_input_arrays_are_not_modified_nor_kept() -> None:
    at_ms, inputs, outputs = np.array([5.0, 0.0]), np.array([8, 9]), np.array([3, 4])
    hash_ids = [np.array([1, 2]), np.array([1, 2, 3])]
    requests = requests_from_arrays(at_ms, inputs, outputs, hash_ids, trace_block_size=4)
    columns = [requests.arrival_ms.copy(), requests.prompt_ids.copy()]
    replay = Replay(small_fleet(workers=1), requests, initial_tick_ms=6.0)
    for array in (at_ms, inputs, outputs, *hash_ids):
        array[:] = 1
    replay.advance_to_tick()
    replay.apply(ScalingDecision(None, 2, None))
    replay.advance_to_tick()
    assert replay.state.world.requests["input_tokens"].tolist() == [9, 8]
    assert [requests.arrival_ms.tolist(), requests.prompt_ids.tolist()] == [
        column.tolist() for column in columns
    ]


def test_one_table_of_requests_serves_many_runs() -> None:
    requests = arrivals([0.0, 1.0])
    spec = small_fleet(workers=1)
    first, second = Replay(spec, requests), Replay(spec, requests)
    first.advance_to_tick()
    second.advance_to_tick()
    assert differing_tables(first.state, second.state) == []

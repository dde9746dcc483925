"""Laws that hold for every run with optional stages or shared links, on small random ones."""

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.audit import (
    check_arrivals,
    check_nothing_left,
    check_pools,
    check_ranks,
    check_requests,
    differing_tables,
    places,
)
from support.cases import BACKENDS, MAX_TICKS, SERVERS, Case, CaseOutcome, cases, drive, encoders
from support.fixed_cases import BUSY_DISAGGREGATED
from support.fleets import small_fleet
from support.results import results
from support.stages import (
    DETOKENIZERS,
    ENCODERS,
    NO_LATENCY,
    NO_STAGES,
    TOKENIZERS,
    with_stages,
)

from aisim_gym.metrics.request_times import REQUEST_COMPLETED
from aisim_gym.replay import Replay, ScalingSnapshot

SLOW = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

STAGES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"transfer_links": st.sampled_from(["fixed", "shared"])},
    optional={
        "encoder": encoders(),
        "tokenization": SERVERS,
        "detokenization": SERVERS,
    },
)


def staged(case: Case, **stages: Any) -> Case:
    return replace(case, spec=with_stages(case.spec, **stages))


PLAIN_CASES = (
    cases(limited=True)
    .filter(lambda case: case.spec.fleet.kind == "disagg")
    .map(lambda case: staged(case, **NO_STAGES))
)
STAGED_CASES = st.builds(lambda case, stages: staged(case, **stages), PLAIN_CASES, STAGES)


def check_all(replay: Replay) -> None:
    check_requests(replay.state)
    check_arrivals(replay.state)
    check_ranks(replay.state)
    check_pools(replay.state)


@SLOW
@given(STAGED_CASES)
def test_every_request_is_in_exactly_one_place_at_every_tick(case: Case) -> None:
    replay = case.replay()
    outcome = drive(replay, case, lambda _: check_all(replay))
    check_all(replay)
    if outcome.error is None and not replay.hit_time_limit:
        check_nothing_left(replay.state)


@SLOW
@given(STAGED_CASES)
def test_stages_of_a_request_follow_each_other(case: Case) -> None:
    replay = case.replay()
    drive(replay, case)
    state = replay.state
    names = ("prefill_admit_ms", "source_held_ms", "decode_admit_ms")
    later = ("first_token_ms", "last_token_ms", "terminal_ms")
    for row, request in enumerate(np.asarray(state.world.requests)):
        if request["is_arrived"] == 0:
            continue
        times = [request["arrival_ms"]]
        if len(state.world.stage_times):
            times += [
                state.world.stage_times[row].encoder_ready_ms,
                state.world.stage_times[row].tokenized_ms,
            ]
        times += [request[name] for name in names]
        if request["status"] == REQUEST_COMPLETED:
            times += [request[name] for name in later]
        times = [at_ms for at_ms in times if not math.isnan(at_ms)]
        assert times == sorted(times), row


@SLOW
@given(PLAIN_CASES, st.integers(1, 2), st.booleans(), st.booleans())
def test_servers_without_latency_change_nothing(
    case: Case, workers: int, tokenizes: bool, detokenizes: bool
) -> None:
    stages = {"tokenization": tokenizes, "detokenization": detokenizes}
    servers = {**NO_LATENCY, "workers": workers}
    plain = case.replay()
    timeless = staged(case, **{name: servers for name, is_on in stages.items() if is_on})
    replay = timeless.replay()
    assert drive(replay, timeless) == drive(plain, case)
    summary, records, operations = results(replay)
    for record in records:
        record.pop("tokenized_ms", None)
    expected, *rest = results(plain)
    assert [records, operations] == rest
    # A client's gaps are recorded one by one then, so their sums are added in another order.
    assert list(summary) == list(expected)
    for name, value in expected.items():
        if name.endswith(("_itl_ms", "_output_token_throughput_per_user")):
            value = pytest.approx(value, rel=1e-12, abs=1e-9)
        assert summary[name] == value, name


@SLOW
@given(PLAIN_CASES, SERVERS)
def test_detokenization_delays_clients_but_not_the_fleet(
    case: Case, servers: dict[str, Any]
) -> None:
    """If nobody waits for a receipt: a list of requests, as they arrive, without ticks."""
    spec = case.spec.model_copy(update={"max_sim_time_ms": None})
    spec = spec.model_copy(
        update={"workload": spec.workload.model_copy(update={"replay_concurrency": None})}
    )
    arrivals = tuple(sorted(case.arrivals, key=lambda arrival: arrival[0]))
    case = Case(spec, arrivals)
    delayed = staged(case, detokenization=servers)
    plain, replay = case.replay(), delayed.replay()
    has_ended = drive(plain, case).error is None
    assert (drive(replay, delayed).error is None) == has_ended
    ours, theirs = np.asarray(replay.state.world.requests), np.asarray(plain.state.world.requests)
    for name in ours.dtype.names or ():
        if name in ("first_token_ms", "second_token_ms", "last_token_ms", "terminal_ms"):
            is_known = ~np.isnan(theirs[name])
            if has_ended:
                assert (np.isnan(ours[name]) == ~is_known).all()
                assert (ours[name][is_known] >= theirs[name][is_known]).all()
        elif name in ("num_breaks", "break_chunk"):
            continue  # where gaps are recorded: those of detokenized tokens one by one
        elif has_ended or name != "status":
            assert ours[name].tobytes() == theirs[name].tobytes(), name


# Copies


def by_fork(replay: Replay) -> Replay:
    return replay.fork()


def by_file(replay: Replay) -> Replay:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.npz"
        replay.save(path)
        return Replay.load(path)


@SLOW
@pytest.mark.parametrize("make_copy", [by_fork, by_file])
@given(case=STAGED_CASES, at=st.integers(0, MAX_TICKS))
def test_copy_continues_like_the_original_and_does_not_disturb_it(
    make_copy: Callable[[Replay], Replay], case: Case, at: int
) -> None:
    straight = case.replay()
    expected = drive(straight, case)
    original = case.replay()
    before = drive(original, case, lambda snapshot: snapshot.tick_ordinal == at)
    copied = make_copy(original)
    assert differing_tables(copied.state, original.state) == []
    if before.error is None:
        continued = [drive(copied, case), drive(original, case)]
        tail = expected.snapshots[len(expected.snapshots) - len(continued[0].snapshots) :]
        assert continued == [CaseOutcome(tail, expected.error)] * 2
    for replay in (copied, original):
        assert differing_tables(replay.state, straight.state) == []


# Compiled and plain Python

BUSY = {
    backend: Case(
        with_stages(
            small_fleet(
                prefill=2,
                decode=2,
                startup_ms=40.0,
                transfer_gb_s=2.0,
                engine={"backend": backend, "num_gpu_blocks": 40},
                prefill_engine={"kv_transfer_timing_mode": "destination_missing"},
            ),
            encoder={**ENCODERS, "num_instances": 2},
            tokenization=TOKENIZERS,
            detokenization={**DETOKENIZERS, "workers": 2},
            transfer_links="shared",
        ),
        BUSY_DISAGGREGATED.arrivals,
        BUSY_DISAGGREGATED.ticks,
    )
    for backend in BACKENDS
}

PRINT_DIGESTS = """
from replay.test_stages_laws import BUSY, digest
for case in BUSY.values():
    print(digest(case))
"""


def digest(case: Case) -> str:
    """Return a hash of everything a run shows, floats in full."""
    replay = case.replay()
    outcome = drive(replay, case)
    snapshots = [snapshot.to_dict() for snapshot in outcome.snapshots]
    text = json.dumps([snapshots, outcome.error, results(replay)], default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def test_busy_runs_cross_every_stage() -> None:
    for case in BUSY.values():
        replay = case.replay()
        seen: Counter[str] = Counter()

        def look(_: ScalingSnapshot, replay: Replay = replay, seen: Counter[str] = seen) -> None:
            check_all(replay)
            seen.update({name: len(found) for name, found in places(replay.state).items()})

        assert drive(replay, case, look).error is None
        for place in ("encoding", "tokenizing", "in transfer", "detokenizing"):
            assert seen[place] > 0, place
        check_nothing_left(replay.state)


@pytest.mark.slow
def test_compiled_code_and_plain_python_agree() -> None:
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    printed = subprocess.run(
        [sys.executable, "-c", PRINT_DIGESTS],
        env={**os.environ, "PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.split() == [digest(case) for case in BUSY.values()]

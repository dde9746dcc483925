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
    differing_tables,
    places,
)
from support.cases import BACKENDS, MAX_TICKS, Case, Outcome, cases, drive
from support.fixed_cases import BUSY_DISAGGREGATED
from support.fleets import small_fleet
from support.results import results
from support.small_tables import shrink_tables
from support.stages import DETOKENIZERS, ENCODERS, NO_LATENCY, TOKENIZERS, with_stages

from aisim_gym.fleet.tables import DETOKENIZING, ENCODING, TOKENIZING
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.metrics.request_times import REQUEST_COMPLETED
from aisim_gym.replay import Replay, ScalingSnapshot

SLOW = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

LATENCIES_MS = st.sampled_from([0.0, 0.25, 1.0, 7.5])
SERVERS = st.fixed_dictionaries(
    {"workers": st.integers(1, 3), "request_ms": LATENCIES_MS, "token_ms": LATENCIES_MS}
)
ENCODER_POOLS = st.builds(
    lambda forward_ms, num_instances, preprocess_ms, transfer_bytes: {
        "num_instances": num_instances,
        "max_batch": len(forward_ms),
        "preprocess_ms": preprocess_ms,
        "forward_ms": forward_ms,
        "transfer_bytes": transfer_bytes,
        "bandwidth_gb_s": 1.0,
    },
    st.lists(LATENCIES_MS, min_size=1, max_size=3),
    st.integers(1, 2),
    LATENCIES_MS,
    st.sampled_from([0, 2_000_000]),
)
STAGES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"transfer_links": st.sampled_from(["fixed", "shared"])},
    optional={
        "encoder": ENCODER_POOLS,
        "tokenization": SERVERS,
        "detokenization": SERVERS,
    },
)


def is_disaggregated(case: Case) -> bool:
    return case.spec.fleet.kind == "disagg"


def staged(case: Case, **stages: Any) -> Case:
    return replace(case, spec=with_stages(case.spec, **stages))


PLAIN_CASES = cases(limited=True).filter(is_disaggregated)
STAGED_CASES = st.builds(lambda case, stages: staged(case, **stages), PLAIN_CASES, STAGES)


def in_stage(state: WorldState, stage: int) -> set[int]:
    """Return the requests that leave a stage by a timer."""
    timers = np.asarray(state.stage_timers)[stage, : int(state.stage_heaps[stage].num_timers)]
    requests: list[int] = timers["subject"].tolist()
    assert len(set(requests)) == len(requests)
    return set(requests)


def waiting_for_encoder(state: WorldState) -> set[int]:
    encoder = state.encoder[0]
    requests, at = [], int(encoder.first_waiting)
    for _ in range(int(encoder.num_waiting)):
        requests.append(at)
        at = int(state.encoder_queue[at])
    return set(requests)


def in_shared_transfer(state: WorldState) -> set[int]:
    rows = np.asarray(state.transfers)[: int(state.transfer_set[0].num_rows)]
    requests: list[int] = rows["request"][rows["is_running"] == 1].tolist()
    assert len(requests) == state.transfer_set[0].num_transfers
    return set(requests)


def check_requests(state: WorldState) -> None:
    """Assert that each request that has arrived is in exactly one place (rulings.md 12)."""
    found = places(state)
    found["in shared transfer"] = in_shared_transfer(state)
    found["reserved, not yet running"] -= found["in shared transfer"]
    found["tokenizing"] = in_stage(state, TOKENIZING)
    found["detokenizing"] = in_stage(state, DETOKENIZING)
    found["encoding"] = in_stage(state, ENCODING) | waiting_for_encoder(state)
    counts = Counter(request for requests in found.values() for request in requests)
    arrived = np.flatnonzero(state.requests["is_arrived"] == 1).tolist()
    assert counts == Counter(arrived), found
    needs_fleet = int(np.asarray(state.handoffs)["is_counted"].sum())
    assert state.clock[0].in_flight == (
        needs_fleet + len(found["detokenizing"]) + len(found["encoding"])
    )


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
def test_tables_that_must_grow_change_nothing(case: Case) -> None:
    large, small = case.replay(), case.replay()
    shrink_tables(small.state)
    assert drive(small, case) == drive(large, case)
    assert results(small) == results(large)


@SLOW
@given(STAGED_CASES)
def test_stages_of_a_request_follow_each_other(case: Case) -> None:
    replay = case.replay()
    drive(replay, case)
    state = replay.state
    names = ("prefill_admit_ms", "source_held_ms", "decode_admit_ms")
    later = ("first_token_ms", "last_token_ms", "terminal_ms")
    for row, request in enumerate(np.asarray(state.requests)):
        if request["is_arrived"] == 0:
            continue
        times = [request["arrival_ms"]]
        if len(state.stage_times):
            times += [state.stage_times[row].encoder_ready_ms, state.stage_times[row].tokenized_ms]
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
    assert (summary, records, operations) == results(plain)


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
    ours, theirs = np.asarray(replay.state.requests), np.asarray(plain.state.requests)
    for name in ours.dtype.names or ():
        if name in ("first_token_ms", "second_token_ms", "last_token_ms", "terminal_ms"):
            is_known = ~np.isnan(theirs[name])
            if has_ended:
                assert (np.isnan(ours[name]) == ~is_known).all()
                assert (ours[name][is_known] >= theirs[name][is_known]).all()
        elif has_ended or name not in ("status", "gap_chunk"):
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
        assert continued == [Outcome(tail, expected.error)] * 2
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
            seen["tokenizing"] += len(in_stage(replay.state, TOKENIZING))
            seen["detokenizing"] += len(in_stage(replay.state, DETOKENIZING))
            seen["encoding"] += len(waiting_for_encoder(replay.state))
            seen["transferring"] += len(in_shared_transfer(replay.state))

        assert drive(replay, case, look).error is None
        assert min(seen.values()) > 0, seen
        check_nothing_left(replay.state)


@pytest.mark.slow
def test_compiled_code_and_plain_python_agree() -> None:
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    printed = [
        subprocess.run(
            [sys.executable, "-c", PRINT_DIGESTS],
            env={**os.environ, "PYTHONPATH": path, "NUMBA_DISABLE_JIT": disabled},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for disabled in ("0", "1")
    ]
    assert printed[0] == printed[1]
    assert len(printed[0]) == len(BUSY)

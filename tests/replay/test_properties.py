"""Laws that hold for every run, on small random ones.

A run that ends in an error is a valid one: then its copies must end in the same.
"""

import copy
import math
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

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
    paid_seconds,
    places,
)
from support.cases import MAX_TICKS, Case, CaseOutcome, cases, drive
from support.fleets import small_fleet
from support.results import results
from support.small_tables import shrink_tables

from aisim_gym.engine.backend import Backend
from aisim_gym.engine.tables import NONE, ROLE_AGGREGATED, ROLE_DECODE
from aisim_gym.errors import ReplayError
from aisim_gym.fleet.paid_time import pool_worker_seconds
from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.fleet.worlds import WORLD_TYPES
from aisim_gym.metrics.gap_statistics import NUM_SAMPLES
from aisim_gym.metrics.request_times import (
    REQUEST_CANCELED,
    REQUEST_COMPLETED,
    REQUEST_FAILED,
    REQUEST_OPEN,
)
from aisim_gym.replay import Replay, ScalingSnapshot
from aisim_gym.workload import requests_from_arrays

SLOW = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
FEWER = settings(SLOW, max_examples=max(10, SLOW.max_examples // 2))


def check_all(replay: Replay) -> None:
    check_requests(replay.state)
    check_arrivals(replay.state)
    check_ranks(replay.state)
    check_pools(replay.state)


@SLOW
@given(cases(limited=True))
def test_every_request_is_in_exactly_one_place_at_every_tick(case: Case) -> None:
    """F51."""
    replay = case.replay()
    drive(replay, case, lambda _: check_all(replay))
    check_all(replay)


@SLOW
@given(cases())
def test_finished_run_leaves_nothing_behind(case: Case) -> None:
    replay = case.replay()
    outcome = drive(replay, case)
    if outcome.error is None:
        check_nothing_left(replay.state)
        check_every_session_ended(replay.state)


def check_every_session_ended(state: WorldState) -> None:
    """Every request has ended, but for turns behind one that failed or was canceled."""
    requests = np.asarray(state.world.requests)
    for row in np.flatnonzero(requests["status"] == REQUEST_OPEN).tolist():
        before = requests[row - 1]
        assert requests["session"][row] == before["session"] != NONE
        assert requests["is_arrived"][row] == 0
        assert before["status"] in (REQUEST_OPEN, REQUEST_FAILED, REQUEST_CANCELED)


@SLOW
@given(cases(limited=True))
def test_worker_seconds_are_the_integral_of_the_worker_counts(case: Case) -> None:
    replay = case.replay()

    def check(_: ScalingSnapshot | None = None) -> None:
        for pool_id in (PREFILL, DECODE):
            seconds = pool_worker_seconds(replay.state.world, pool_id)
            assert seconds == pytest.approx(paid_seconds(replay.state, pool_id), rel=1e-9)

    drive(replay, case, check)
    check()


@SLOW
@given(cases(limited=True))
def test_clock_goes_forward_and_stays_within_the_limit(case: Case) -> None:
    replay = case.replay()
    outcome = drive(replay, case)
    times = [snapshot.now_ms for snapshot in outcome.snapshots] + [replay.now_ms]
    assert times == sorted(times)
    assert times[:-1] == [at_ms for at_ms, _, _ in case.ticks[: len(times) - 1]]
    limit_ms = case.spec.max_sim_time_ms
    assert replay.now_ms <= (math.inf if limit_ms is None else limit_ms)


PREFILL_STAGES = ("first_admit_ms", "prefill_admit_ms", "source_held_ms")
RESERVATION = ("destination_reserved_ms",)
LATER_STAGES = (
    "destination_activated_ms",
    "decode_admit_ms",
    "first_token_ms",
    "second_token_ms",
    "last_token_ms",
    "terminal_ms",
)


@SLOW
@given(cases(limited=True))
def test_stages_of_a_request_follow_each_other(case: Case) -> None:
    replay = case.replay()
    drive(replay, case)
    stages = (*PREFILL_STAGES, *RESERVATION, *LATER_STAGES)
    if replay.state.world.options.reserves_first:
        stages = (*RESERVATION, *PREFILL_STAGES, *LATER_STAGES)
    requests = np.asarray(replay.state.world.requests)
    for row in requests[requests["is_arrived"] == 1]:
        times = [row[stage] for stage in ("arrival_ms", *stages) if not math.isnan(row[stage])]
        if row["emitted_tokens"] == 1:  # its last token is its first, it has no second one
            assert math.isnan(row["second_token_ms"])
        assert times == sorted(times), row
        if not math.isnan(row["source_released_ms"]):
            assert row["source_released_ms"] >= row["destination_activated_ms"]


@SLOW
@given(cases())
def test_completed_requests_get_the_tokens_they_ask_for(case: Case) -> None:
    replay = case.replay()
    drive(replay, case)
    state = replay.state
    backend: Backend = getattr(WORLD_TYPES[int(state.world.options.backend)], "backend")  # noqa: B009
    engine = state.world.engines[DECODE]
    assert engine.role in (ROLE_AGGREGATED, ROLE_DECODE)
    for row in np.asarray(state.world.requests):
        limit = backend.output_limit(
            state.world, engine, int(row["input_tokens"]), int(row["output_tokens"])
        )
        limit = min(limit, max(0, engine.max_model_len - row["input_tokens"]))
        if row["status"] == REQUEST_COMPLETED:
            assert row["emitted_tokens"] == limit
        else:
            assert row["emitted_tokens"] <= limit


@SLOW
@given(cases(limited=True))
def test_windows_add_up_to_the_whole_run(case: Case) -> None:
    replay = case.replay()
    outcome = drive(replay, case)
    rest = replay.state.world.traffic[0]
    windows = [snapshot.traffic for snapshot in outcome.snapshots]
    if replay.snapshot is not None:
        windows = windows[:-1]
    assert sum(window.num_req for window in windows) + rest.num_req == (
        replay.state.world.clock.arrived_requests
    )
    completed = int((replay.state.world.requests["status"] == REQUEST_COMPLETED).sum())
    completed += len(places(replay.state)["detokenizing"])  # counted when the decode pass ends
    assert sum(window.shape_count for window in windows) + rest.shape_count == completed


# Copies


def by_fork(replay: Replay) -> Replay:
    return replay.fork()


def by_pickle(replay: Replay) -> Replay:
    loaded: Replay = pickle.loads(pickle.dumps(replay))
    return loaded


def by_file(replay: Replay) -> Replay:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved.npz"
        replay.save(path)
        return Replay.load(path)


COPIES = {"fork": by_fork, "pickle": by_pickle, "deepcopy": copy.deepcopy, "file": by_file}


@FEWER
@pytest.mark.parametrize("make_copy", COPIES.values(), ids=COPIES)
@given(case=cases(limited=True), at=st.integers(-1, MAX_TICKS), is_answered=st.booleans())
def test_copy_continues_like_the_original_and_does_not_disturb_it(
    make_copy: Callable[[Replay], Replay], case: Case, at: int, is_answered: bool
) -> None:
    """The copy is taken at tick ``at`` (-1: before the start; too late: at the end)."""
    straight = case.replay()
    expected = drive(straight, case)
    original = case.replay()
    before = CaseOutcome()
    if at >= 0:
        before = drive(original, case, lambda snapshot: snapshot.tick_ordinal == at)
    if original.snapshot is not None and is_answered:
        original.apply(case.answer(original.snapshot))
    copied = make_copy(original)
    assert differing_tables(copied.state, original.state) == []
    if before.error is None:
        continued = [drive(copied, case), drive(original, case)]
        tail = expected.snapshots[len(expected.snapshots) - len(continued[0].snapshots) :]
        for outcome in continued:
            assert outcome == CaseOutcome(tail, expected.error)
    for replay in (copied, original):
        assert differing_tables(replay.state, straight.state) == []
        assert (replay.ticks, replay.is_done) == (straight.ticks, straight.is_done)
        assert results(replay) == results(straight)


@SLOW
@given(cases(limited=True))
def test_copies_of_copies_run_independently(case: Case) -> None:
    """A planner that looks ahead at every tick sees its own future and changes nothing."""
    straight = case.replay()
    expected = drive(straight, case)
    replay = case.replay()
    futures: list[CaseOutcome] = []

    def look_ahead(_: ScalingSnapshot) -> None:
        futures.append(drive(replay.fork().fork(), case))

    assert drive(replay, case, look_ahead) == expected
    for ordinal, future in enumerate(futures):
        assert future == CaseOutcome(expected.snapshots[ordinal:], expected.error)
    assert differing_tables(replay.state, straight.state) == []


# Tables grow


@SLOW
@given(cases(limited=True))
def test_results_do_not_depend_on_the_first_size_of_the_tables(case: Case) -> None:
    large, small = case.replay(), case.replay()
    shrink_tables(small.state)
    expected = drive(large, case)
    assert drive(small, case, lambda _: check_all(small)) == expected
    check_all(small)
    if expected.error is None and not large.hit_time_limit:
        check_nothing_left(small.state)
    assert results(small) == results(large)
    for name in ("requests", "buckets", "pools", "traffic", "handoffs"):
        ours, theirs = small.state.tables[name], large.state.tables[name]
        assert ours.tobytes() == theirs.tobytes(), name
    count = int(sum(large.state.world.pools["num_workers"]))
    for name, rows in (("workers", count), ("statistics", NUM_SAMPLES * (count + 1))):
        for field in large.state.tables[name].dtype.names or ():
            ours, theirs = (r.state.tables[name][field][:rows] for r in (small, large))
            assert ours.tobytes() == theirs.tobytes(), f"{name}.{field}"


# Requests that cannot run


@given(st.integers(1, 32), st.integers(2, 40), st.booleans())
def test_output_that_outgrows_the_pool_always_ends_the_run(
    input_tokens: int, output_tokens: int, disaggregated: bool
) -> None:
    """8 blocks of 4 tokens hold all but the last token of prompt and output."""
    engine = {"num_gpu_blocks": 8}
    if disaggregated:
        spec = small_fleet(prefill=1, decode=1, engine=engine)
    else:
        spec = small_fleet(workers=1, engine=engine)
    replay = Replay(spec, requests_from_arrays([0.0], [input_tokens], [output_tokens]))
    if input_tokens + output_tokens - 1 <= 32:
        assert replay.advance_to_tick() is None
        return
    with pytest.raises(ReplayError, match="effect-free zero-duration pass with 1 in-flight"):
        replay.advance_to_tick()

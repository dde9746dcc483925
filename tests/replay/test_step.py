"""Going through a run one instant at a time (replay-runtime.md §3.2)."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.audit import differing_tables
from support.cases import Case, cases
from support.fixed_cases import BUSY_DISAGGREGATED
from support.fleets import arrivals, every, small_fleet
from support.results import results
from support.two_modes import differing_parts

from aisim_gym.errors import ReplayError
from aisim_gym.fleet.arrivals import next_arrival_ms
from aisim_gym.fleet.events import next_event_ms
from aisim_gym.fleet.stages import next_stage_ms
from aisim_gym.replay import Replay, ScalingDecision, StepEnd
from aisim_gym.replay.settle import PHASE_SETTLED

SETTLED, TICK = StepEnd.SETTLED, StepEnd.TICK
COMPLETE, TIME_LIMIT = StepEnd.COMPLETE, StepEnd.TIME_LIMIT
NO_CHANGE = ScalingDecision(None, None, None)


def steps(replay: Replay, count: int) -> list[tuple[StepEnd, float]]:
    """Return outcome and time of so many steps."""
    return [(replay.step(), replay.now_ms) for _ in range(count)]


def test_each_step_settles_the_next_instant() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0, 10.5]))
    assert steps(replay, 6) == [
        (SETTLED, 0.0),
        (SETTLED, 10.0),
        (SETTLED, 10.5),
        (SETTLED, 11.0),
        (SETTLED, 22.0),
        (SETTLED, 23.0),
    ]
    assert steps(replay, 1) == [(COMPLETE, 24.0)]


def test_first_step_settles_time_zero() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0, 0.0]))
    assert (replay.step(), replay.now_ms) == (SETTLED, 0.0)
    assert replay.state.world.requests["first_admit_ms"].tolist() == [0.0, 0.0]
    assert replay.state.world.requests["emitted_tokens"].tolist() == [0, 0]


def test_first_step_settles_time_zero_even_if_nothing_happens_there() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([50.0]))
    assert steps(replay, 2) == [(SETTLED, 0.0), (SETTLED, 50.0)]


def test_workload_that_ends_at_time_zero_is_complete_after_one_step() -> None:
    engine = {"num_gpu_blocks": 1}
    replay = Replay(small_fleet(workers=1, engine=engine), arrivals([0.0]))
    assert steps(replay, 1) == [(COMPLETE, 0.0)]


def test_outcome_reads_as_a_word() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0]))
    assert f"{replay.step()}" == "settled"
    assert list(StepEnd) == ["settled", "tick", "complete", "time_limit"]


def test_steps_after_the_end_change_nothing() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0]))
    while replay.step() is not COMPLETE:
        pass
    before = replay.fork()
    assert steps(replay, 3) == [(COMPLETE, 12.0)] * 3
    assert replay.advance_to_tick() is None
    assert differing_tables(replay.state, before.state) == []
    assert replay.is_done


@pytest.mark.parametrize(("limit_ms", "last_ms"), [(11.5, 11.0), (11.0, 11.0), (0.0, 0.0)])
def test_time_limit_is_told_again_and_again_without_moving_the_clock(
    limit_ms: float, last_ms: float
) -> None:
    replay = Replay(small_fleet(workers=1, max_sim_time_ms=limit_ms), arrivals([0.0]))
    while replay.step() is SETTLED:
        pass
    before = replay.fork()
    assert steps(replay, 3) == [(TIME_LIMIT, last_ms)] * 3
    assert differing_tables(replay.state, before.state) == []
    assert replay.hit_time_limit
    straight = Replay(small_fleet(workers=1, max_sim_time_ms=limit_ms), arrivals([0.0]))
    straight.advance_to_tick()
    assert results(replay) == results(straight)


# Ticks


def test_tick_ends_a_step_and_the_next_one_settles_the_rest_of_its_instant() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0]), initial_tick_ms=5.0)
    assert steps(replay, 2) == [(SETTLED, 0.0), (TICK, 5.0)]
    assert replay.snapshot is not None
    replay.apply(ScalingDecision(None, 3, 10.0))
    assert replay.snapshot is None
    assert steps(replay, 2) == [(SETTLED, 5.0), (TICK, 10.0)]
    assert replay.snapshot is not None
    assert replay.snapshot.decode.active_ids == (0, 1, 2)
    replay.apply(NO_CHANGE)
    assert steps(replay, 3) == [(SETTLED, 10.0), (SETTLED, 11.0), (COMPLETE, 12.0)]


def test_tick_must_be_answered_before_the_next_step() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0]), initial_tick_ms=5.0)
    steps(replay, 2)
    with pytest.raises(ReplayError, match=r"tick 0 at 5\.0 ms waits .* before step\(\)"):
        replay.step()
    replay.apply(NO_CHANGE)
    assert replay.step() is SETTLED


@pytest.mark.parametrize("at_ms", [0.0, -3.0])
def test_first_tick_at_zero_comes_in_the_first_step(at_ms: float) -> None:
    replay = Replay(small_fleet(prefill=1, decode=1), arrivals([0.0]), initial_tick_ms=at_ms)
    assert steps(replay, 1) == [(TICK, 0.0)]
    snapshot = replay.snapshot
    assert snapshot is not None
    assert snapshot.traffic.num_req == 1
    replay.apply(NO_CHANGE)
    assert steps(replay, 2) == [(SETTLED, 0.0), (SETTLED, 10.0)]


# A run that cannot go on


def test_step_of_a_stuck_run_raises_the_error_of_the_run() -> None:
    spec = small_fleet(workers=1, engine={"num_gpu_blocks": 8})
    straight = Replay(spec, arrivals([0.0], 10, 24))
    with pytest.raises(ReplayError) as expected:
        straight.advance_to_tick()
    replay = Replay(spec, arrivals([0.0], 10, 24))
    messages = []
    for _ in range(100):
        try:
            replay.step()
        except ReplayError as error:
            messages.append(str(error))
    assert set(messages) == {str(expected.value)}
    assert differing_parts(replay.state, straight.state, is_settled=False) == []


# Laws


def check_settled(replay: Replay) -> None:
    """Assert that nothing is left to do at this instant."""
    assert replay.state.world.resume.phase == PHASE_SETTLED
    assert next_event_ms(replay.state.world) > replay.now_ms
    assert next_arrival_ms(replay.state.world) > replay.now_ms
    assert next_stage_ms(replay.state.world) > replay.now_ms


def stepped(replay: Replay, case: Case) -> Iterator[StepEnd]:
    """Step to the end, answering ticks by the script; an error of the run ends it too."""
    outcome = SETTLED
    while outcome in (SETTLED, TICK):
        try:
            outcome = replay.step()
        except ReplayError:
            return
        yield outcome
        if replay.snapshot is not None:
            replay.apply(case.answer(replay.snapshot))


def straight_run(case: Case) -> Replay:
    replay = case.replay()
    try:
        while (snapshot := replay.advance_to_tick()) is not None:
            replay.apply(case.answer(snapshot))
    except ReplayError:
        pass
    return replay


SLOW = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@SLOW
@given(cases(limited=True))
def test_run_in_steps_is_the_run(case: Case) -> None:
    replay = case.replay()
    last_ms, is_same_instant = -math.inf, False
    for outcome in stepped(replay, case):
        if outcome in (TICK, SETTLED):
            assert replay.now_ms >= last_ms
            assert is_same_instant or replay.now_ms > last_ms
        if outcome is SETTLED:
            check_settled(replay)
        last_ms, is_same_instant = replay.now_ms, outcome is TICK
    straight = straight_run(case)
    assert differing_parts(replay.state, straight.state, is_settled=straight.is_done) == []
    assert (replay.is_done, replay.hit_time_limit) == (straight.is_done, straight.hit_time_limit)
    assert results(replay) == results(straight)


@SLOW
@given(cases(limited=True), st.data())
def test_steps_and_whole_stretches_may_be_mixed(case: Case, data: st.DataObject) -> None:
    replay = case.replay()
    straight = straight_run(case)
    try:
        while not replay.is_done:
            if data.draw(st.integers(0, 9)) == 0:
                replay.advance_to_tick()
            else:
                replay.step()
            if data.draw(st.integers(0, 19)) == 0:
                replay = replay.fork()
            if replay.snapshot is not None:
                replay.apply(case.answer(replay.snapshot))
    except ReplayError:
        pass
    assert differing_parts(replay.state, straight.state, is_settled=straight.is_done) == []
    assert results(replay) == results(straight)


def test_busy_run_in_steps_is_the_run() -> None:
    replay = BUSY_DISAGGREGATED.replay()
    assert sum(1 for _ in stepped(replay, BUSY_DISAGGREGATED)) > 100
    assert differing_parts(replay.state, straight_run(BUSY_DISAGGREGATED).state) == []


# Telemetry on the way


def test_samples_between_two_instants_are_published_by_the_step_that_passes_them() -> None:
    spec = small_fleet(workers=1, telemetry_sample_interval_ms=4.0)
    replay = Replay(spec, arrivals([0.0]))
    published = []
    for outcome in (SETTLED, SETTLED, SETTLED, COMPLETE):
        assert replay.step() is outcome
        published.append([sample["sampled_at_ms"] for sample in replay.samples])
    assert published == [[0.0], [0.0, 4.0, 8.0], [0.0, 4.0, 8.0], [0.0, 4.0, 8.0, 12.0]]


def test_final_sample_is_published_once_by_the_step_that_completes() -> None:
    spec = small_fleet(workers=1, telemetry_sample_interval_ms=5.0)
    replay = Replay(spec, arrivals(every(20.0, 2)))
    while replay.step() is not COMPLETE:
        pass
    kinds = [sample["kind"] for sample in replay.samples]
    assert (kinds[0], kinds[-1], kinds.count("final")) == ("baseline", "final", 1)
    steps(replay, 3)
    assert len(replay.samples) == len(kinds)
    straight = Replay(spec, arrivals(every(20.0, 2)))
    straight.advance_to_tick()
    assert replay.samples == straight.samples

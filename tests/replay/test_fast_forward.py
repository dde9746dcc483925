"""Steady decode as one event gives bit by bit what running pass by pass gives.

What is compared, and what is not and why, is in ``support/two_modes.py``.
"""

from pathlib import Path
from typing import Any

import pytest
from conformance.drawn_scenarios import scenarios
from hypothesis import given
from hypothesis import strategies as st
from support.cases import BACKENDS, Case, cases
from support.fixed_cases import BUSY
from support.fleets import arrivals, every, small_fleet
from support.goldens import FOUND, GOLDENS
from support.laws import SLOW, fewer
from support.long_decodes import long_decodes
from support.oracle_recording import unrecorded
from support.two_modes import (
    Script,
    advance,
    assert_equal_results,
    assert_equal_runs,
    compare_modes,
    set_fast,
)

from aisim_gym.conformance import Golden, find_goldens
from aisim_gym.conformance.run import golden_name
from aisim_gym.errors import UnsupportedError
from aisim_gym.replay import Replay
from aisim_gym.replay.run import INSTANTS_PER_CALL


@pytest.mark.parametrize("backend", BACKENDS)
@fewer(5)  # all tables are compared at every tick of two long runs
@given(data=st.data())
def test_runs_with_long_decodes_are_equal(backend: str, data: st.DataObject) -> None:
    compare_modes(data.draw(long_decodes(backend)))


@pytest.mark.parametrize("backend", BACKENDS)
@fewer(5)  # likewise
@given(data=st.data())
def test_runs_with_scarce_blocks_sessions_and_scaling_are_equal(
    backend: str, data: st.DataObject
) -> None:
    compare_modes(Script.of_golden(unrecorded(data.draw(scenarios(backend)))))


@SLOW
@given(cases(limited=True))
def test_small_runs_with_stages_are_equal(case: Case) -> None:
    compare_modes(Script.of_case(case))


@pytest.mark.parametrize("case", BUSY.values(), ids=BUSY)
def test_busy_runs_are_equal(case: Case) -> None:
    compare_modes(Script.of_case(case))


@pytest.mark.slow  # all of them together
@pytest.mark.parametrize("path", find_goldens([GOLDENS, FOUND]), ids=golden_name)
def test_recorded_runs_are_equal(path: Path) -> None:
    try:
        script = Script.of_golden(Golden.read(path))
    except UnsupportedError as error:
        pytest.skip(str(error))
    compare_modes(script)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("input_tokens", [20, 30])
def test_worker_that_tries_in_vain_has_its_turns_beside_steady_decode(
    workers: int, input_tokens: int
) -> None:
    """A request outgrows its pool just when passes of all other workers end.

    From then on its worker tries again whenever another one starts a pass.
    """
    spec = small_fleet(workers=workers, prefill_ms=4.0, decode_ms=4.0, engine={"num_gpu_blocks": 8})
    others = workers - 1
    requests = arrivals([0.0] * workers, [input_tokens, *[1] * others], [20, *[25] * others])
    replay = compare_modes(Script(spec, requests, None, lambda _: None))
    assert not replay.is_done


# Changing the mode on the way


@pytest.mark.parametrize("backend", BACKENDS)
@fewer(5)  # likewise
@given(data=st.data(), at=st.integers(0, 8), count=st.integers(1, 5))
def test_copy_that_runs_pass_by_pass_for_a_while_goes_on_like_the_original(
    backend: str, data: st.DataObject, at: int, count: int
) -> None:
    """From tick ``at`` on for ``count`` ticks, then fast again; both see the same."""
    script = data.draw(long_decodes(backend))
    replay = script.replay(fast=True)
    copied: Replay | None = None
    while True:
        ours = advance(replay)
        if copied is not None:
            theirs = advance(copied)
            assert theirs[1] == ours[1]
            assert_equal_runs(replay, copied, is_settled=ours[1] is None)
        if ours[0] is None:
            break
        ordinal = ours[0].tick_ordinal
        if ordinal == at:
            copied = replay.fork()
            set_fast(copied, False)
        elif copied is not None and ordinal == at + count:
            set_fast(copied, True)
        decision = script.answer(ours[0])
        assert decision is not None
        for run in (replay, copied):
            if run is not None:
                run.apply(decision)
    if copied is not None:
        assert_equal_results(replay, copied)


# It is on


def num_instants(*, fast: bool, **fleet: Any) -> int:
    """Return how many instants 20 requests of 200 tokens take, two at a time."""
    spec = small_fleet(**fleet)
    requests = arrivals(every(500.0, 20), input_tokens=9, output_tokens=200)
    replay = Script(spec, requests, None, lambda _: None).replay(fast=fast)
    assert replay.advance_to_tick() is None
    num_tokens = replay.state.world.requests["emitted_tokens"].sum()
    assert num_tokens == 20 * 200
    return INSTANTS_PER_CALL - int(replay.state.world.clock.instants_left)


FLEETS: dict[str, dict[str, Any]] = {
    "agg": {"workers": 2},
    "agg dp": {"workers": 1, "dp_size": 2},
    "disagg": {"prefill": 1, "decode": 2, "transfer_gb_s": 100.0},
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fleet", FLEETS.values(), ids=FLEETS)
def test_steady_decode_takes_few_events(backend: str, fleet: dict[str, Any]) -> None:
    """Pass by pass every token has its own instant; else some for each request are enough."""
    engine = {"backend": backend, "num_gpu_blocks": 1000}
    assert num_instants(fast=False, engine=engine, **fleet) > 20 * 190
    assert num_instants(fast=True, engine=engine, **fleet) <= 20 * 8

"""Many worlds at once run exactly as each would alone."""

import copy
import math
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.audit import differing_tables
from support.cases import Case, drive
from support.fixed_cases import BUSY
from support.fleets import arrivals, small_fleet

from aisim_gym.errors import ReplayError
from aisim_gym.replay import Replay
from aisim_gym.replay.batch import ReplayBatch


def telemetry_case(case: Case) -> Case:
    """Return a case with a telemetry sample every 10 ms."""
    spec = case.spec.model_copy(update={"telemetry_sample_interval_ms": 10.0})
    return Case(spec, case.arrivals, case.ticks, case.sessions, case.is_delta)


CASES = (*BUSY.values(), *map(telemetry_case, BUSY.values()))
"""Every backend, both topologies, lists and sessions, with samples and without."""

FEW_CASES = (BUSY["drafting"], BUSY["trtllm"], telemetry_case(BUSY["sglang"]))
"""The same, as little as can be."""


def answer(batch: ReplayBatch, cases: Sequence[Case]) -> None:
    """Answer all ticks by the scripts of the cases."""
    targets = np.full((len(cases), 2), -1)
    next_ms = np.full(len(cases), math.nan)
    for world, (replay, case) in enumerate(zip(batch.replays, cases, strict=True)):
        if (snapshot := replay.snapshot) is not None:
            decision = case.answer(snapshot)
            for pool, target in enumerate((decision.target_prefill, decision.target_decode)):
                targets[world, pool] = -1 if target is None else target
            next_ms[world] = math.inf if decision.next_tick_ms is None else decision.next_tick_ms
    batch.apply(targets, next_ms)


def check_like_alone(num_threads: int, cases: Sequence[Case] = CASES) -> None:
    alone = [case.replay() for case in cases]
    outcomes = [drive(replay, case) for replay, case in zip(alone, cases, strict=True)]
    assert [outcome.error for outcome in outcomes] == [None] * len(cases)
    with ReplayBatch([case.replay() for case in cases], num_threads) as batch:
        while (waiting := batch.advance_to_tick()).any():
            assert waiting.tolist() == batch.is_waiting.tolist()
            assert (waiting ^ batch.is_done).all()
            for world in np.flatnonzero(waiting).tolist():
                snapshot = batch.replays[world].snapshot
                assert snapshot is not None
                assert snapshot == outcomes[world].snapshots[snapshot.tick_ordinal]
            answer(batch, cases)
        assert batch.is_done.all()
        for replay, other in zip(batch.replays, alone, strict=True):
            assert differing_tables(replay.state, other.state) == []
            assert (replay.samples, replay.ticks) == (other.samples, other.ticks)
            assert replay.hit_time_limit == other.hit_time_limit
            assert replay.wall_s > 0.0


@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_worlds_of_all_backends_run_as_they_would_alone(num_threads: int) -> None:
    check_like_alone(num_threads)


def test_all_threads_are_there_from_the_start() -> None:
    def count() -> int:
        return sum(thread.name.startswith("replay-batch") for thread in threading.enumerate())

    before = count()
    worlds = [Replay(small_fleet(workers=1), arrivals([0.0])) for _ in range(4)]
    with ReplayBatch(worlds, 3):
        assert count() == before + 3
    assert count() == before


@pytest.mark.slow
def test_interpreted_worlds_run_as_they_would_alone() -> None:
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    code = (
        "from replay.test_batch import FEW_CASES, check_like_alone; check_like_alone(2, FEW_CASES)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_batch_at_its_end_stays_there() -> None:
    with ReplayBatch([Replay(small_fleet(workers=1), arrivals([0.0]))]) as batch:
        for _ in range(2):
            assert batch.advance_to_tick().tolist() == [False]
            assert batch.is_done.tolist() == [True]


def test_rows_of_worlds_that_do_not_wait_are_ignored() -> None:
    spec = small_fleet(workers=1)
    ended = Replay(spec, arrivals([0.0]))
    waiting = Replay(spec, arrivals([0.0, 50.0]), initial_tick_ms=20.0)
    with ReplayBatch([ended, waiting]) as batch:
        assert batch.advance_to_tick().tolist() == [False, True]
        batch.apply([[7, 7], [-1, 2]], [30.0, 30.0])
        assert batch.is_waiting.tolist() == [False, False]
        assert batch.advance_to_tick().tolist() == [False, True]
    assert (ended.state.world.pools[1].live_count, waiting.state.world.pools[1].live_count) == (
        1,
        2,
    )


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda batch: pickle.loads(pickle.dumps(batch))])
def test_copy_of_a_batch_goes_on_by_itself(copied: Callable[[ReplayBatch], ReplayBatch]) -> None:
    with ReplayBatch([case.replay() for case in CASES[:3]], 2) as batch:
        batch.advance_to_tick()
        with copied(batch) as other:
            for each in (batch, other):
                while each.is_waiting.any():
                    answer(each, CASES[:3])
                    each.advance_to_tick()
    assert batch.is_done.all()
    for replay, again in zip(batch.replays, other.replays, strict=True):
        assert replay is not again
        assert differing_tables(replay.state, again.state) == []


# Errors


def failing_world() -> Replay:
    """Return a world that loses all its workers before a request arrives."""
    replay = Replay(small_fleet(workers=1), arrivals([0.0, 50.0]), initial_tick_ms=20.0)
    replay.advance_to_tick()
    replay.answer(-1, 0, math.inf)
    return replay


def test_only_the_named_worlds_run() -> None:
    replays = [case.replay() for case in CASES[:3]]
    with ReplayBatch(replays, 2) as batch:
        waiting = batch.advance_to_tick([2, 0])
        assert waiting.tolist() == [True, False, True]
        assert replays[1].now_ms == 0.0
        # A world that waits for an answer is not an error as long as it is not named.
        assert batch.advance_to_tick([1]).all()


def test_world_can_be_replaced_by_another_replay() -> None:
    old, new = CASES[0].replay(), CASES[0].replay()
    with ReplayBatch([old, CASES[1].replay()], 2) as batch:
        batch.replace(0, new)
        assert batch.advance_to_tick().all()
        assert new.is_waiting
        assert not old.is_waiting
        with pytest.raises(ValueError, match=r"replays\[1\]: got the same replay as replays\[0\]"):
            batch.replace(1, new)
        assert batch.replays[1] is not new


def test_broken_world_is_named_and_the_others_are_at_their_ticks() -> None:
    def sound() -> Replay:
        return Replay(small_fleet(workers=1), arrivals([0.0, 50.0]), initial_tick_ms=20.0)

    with ReplayBatch([sound(), failing_world(), sound(), failing_world()], 2) as batch:
        with pytest.raises(ReplayError, match=r"^world 1: placement policy error: no ") as raised:
            batch.advance_to_tick()
        assert raised.value.__notes__[0].startswith("world 3: placement policy error: no ")
        assert batch.is_waiting.tolist() == [True, False, True, False]
        assert [batch.replays[world].now_ms for world in (0, 2)] == [20.0, 20.0]
        batch.apply(np.full((4, 2), -1), np.full(4, 30.0))
        with pytest.raises(ReplayError, match=r"^world 1: placement policy error"):
            batch.advance_to_tick()  # it stays broken, and the others go on
        assert batch.is_waiting.tolist() == [True, False, True, False]


def test_tick_without_an_answer_is_an_error_of_its_world_only() -> None:
    spec, requests = small_fleet(workers=1), arrivals([0.0, 50.0])
    with ReplayBatch([Replay(spec, requests, initial_tick_ms=20.0) for _ in range(2)]) as batch:
        batch.advance_to_tick()
        batch.replays[0].answer(-1, -1, 30.0)
        with pytest.raises(ReplayError, match=r"^world 1: tick 0 at 20.0 ms waits for a decision"):
            batch.advance_to_tick()
        assert batch.replays[0].now_ms == 30.0


def test_error_of_a_telemetry_callback_passes_through() -> None:
    spec = small_fleet(workers=1, telemetry_sample_interval_ms=5.0)
    replays = [Replay(spec, arrivals([0.0])) for _ in range(2)]

    def refuse(sample: Any) -> None:
        raise RuntimeError("no more samples")

    replays[1].on_sample = refuse
    with ReplayBatch(replays) as batch, pytest.raises(RuntimeError, match=r"^no more") as raised:
        batch.advance_to_tick()
    assert raised.value.__notes__ == ["in world 1"]
    assert replays[0].is_done


def test_interrupt_leaves_every_world_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = tuple(BUSY.values())
    interrupts = iter([KeyboardInterrupt])
    wait_for = Future.result

    def result(self: Future[None], timeout: float | None = None) -> None:
        for interrupt in interrupts:
            raise interrupt
        wait_for(self, timeout)

    with ReplayBatch([case.replay() for case in cases], 2) as batch:
        with monkeypatch.context() as patch:
            patch.setattr(Future, "result", result)
            with pytest.raises(KeyboardInterrupt):
                batch.advance_to_tick()
        for replay, case in zip(batch.replays, cases, strict=True):
            other = case.replay()
            assert drive(replay, case).error == drive(other, case).error
            assert differing_tables(replay.state, other.state) == []
        assert not batch.advance_to_tick().any()


@pytest.mark.parametrize(
    ("targets", "next_ms", "error", "message"),
    [
        ([[1, 1]], [9.0, 9.0], ValueError, r"targets: got shape \(1, 2\), expected \(2, 2\)"),
        ([[1, 1]] * 2, [9.0], ValueError, r"next_tick_ms: got shape \(1,\), expected \(2,\)"),
        ([[1.0, 1.0]] * 2, [9.0, 9.0], TypeError, "targets: got float64, expected integers"),
        ([[1, 1]] * 2, ["a", "b"], TypeError, "next_tick_ms: got <U1, expected numbers"),
        ([[1, 1], [1, -2]], [9.0, 9.0], ValueError, r"targets\[1, 1\]: got -2, expected -1"),
        ([[1_000_001, 1]] * 2, [9.0, 9.0], ValueError, r"targets\[0, 0\]: got 1000001"),
    ],
)
def test_wrong_answers_are_refused_before_any_is_given(
    targets: Any, next_ms: Any, error: type[Exception], message: str
) -> None:
    spec, requests = small_fleet(workers=1), arrivals([0.0, 50.0])
    with ReplayBatch([Replay(spec, requests, initial_tick_ms=20.0) for _ in range(2)]) as batch:
        batch.advance_to_tick()
        with pytest.raises(error, match=message):
            batch.apply(targets, next_ms)
        assert batch.is_waiting.all()


def test_wrong_worlds_are_refused() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0]))
    with pytest.raises(ValueError, match="replays: got none"):
        ReplayBatch([])
    with pytest.raises(ValueError, match=r"replays\[1\]: got the same replay as replays\[0\]"):
        ReplayBatch([replay, replay])
    with pytest.raises(TypeError, match=r"replays\[0\]: got 5, expected a Replay"):
        ReplayBatch([5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="num_threads: got 0, expected >= 1"):
        ReplayBatch([replay], 0)
    with pytest.raises(TypeError, match=r"num_threads: got 1\.5, expected an integer"):
        ReplayBatch([replay], 1.5)  # type: ignore[arg-type]

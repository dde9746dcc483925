"""Sections in miniature: what they run is what they say."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from aisim_gym.bench import batch, growth, machine, memory
from aisim_gym.bench.bench_options import BenchOptions
from aisim_gym.bench.child_process import ChildError, run_program
from aisim_gym.bench.environments import make_env, play
from aisim_gym.bench.measurement import Measurement
from aisim_gym.bench.sections import SECTIONS, choose_sections
from aisim_gym.replay import Replay, ScalingDecision


class OneByOne:
    """A batch that advances its worlds one after the other."""

    def __init__(self, replays: Sequence[Replay], num_threads: int | None = None) -> None:
        self.replays = replays

    def apply(self, decisions: NDArray[np.int64], next_tick_ms: NDArray[np.float64]) -> None:
        for replay, (prefill, decode), tick_ms in zip(
            self.replays, decisions.tolist(), next_tick_ms.tolist(), strict=True
        ):
            replay.apply(ScalingDecision(prefill, decode, tick_ms))

    def advance_to_tick(self) -> None:
        for replay in self.replays:
            replay.advance_to_tick()


def test_batch_and_single_worlds_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "NUM_WORLDS", 2)
    monkeypatch.setattr(batch, "NUM_TICKS", 3)
    together, alone = batch.make_replays(), batch.make_replays()
    batch.run_batch(OneByOne, together)
    batch.run_singles(alone)
    for left, right in zip(together, alone, strict=True):
        assert left.snapshot == right.snapshot
        assert left.now_ms == 4 * batch.TICK_MS
    assert together[0].snapshot != together[1].snapshot


def test_load_is_the_same_for_every_fleet_and_longer_for_more_requests() -> None:
    short, long = growth.steady_requests(1000), growth.steady_requests(2000)
    assert np.array_equal(short.start_ms, long.start_ms[:1000])
    assert 1000 / long.between(0.0, float(short.start_ms[-1])).duration_s == pytest.approx(
        growth.RATE_RPS, rel=0.1
    )


def test_short_fleet_section_compares_large_with_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    load = growth.steady_requests(200)
    monkeypatch.setattr(growth, "steady_requests", lambda num_requests: load)
    found = list(growth.measure_fleet(BenchOptions(repeats=1, is_short=True)))
    large = [each for each in found if isinstance(each, Measurement) and each.target]
    assert [each.other_name for each in large] == ["32 workers"] * 2
    assert len(found) == 4


def test_environment_starts_with_the_workers_it_says() -> None:
    env = make_env()
    env.reset(seed=1)
    snapshot = env.unwrapped.snapshot
    assert len(snapshot.prefill.active_ids) == len(snapshot.decode.active_ids) == 4
    assert snapshot.traffic.num_req == pytest.approx(8.0 * 30.0, rel=0.3)
    played = play(env, 3)
    assert (played.num_steps, played.num_resets) == (3, 1)
    assert played.per_second < 3 / played.steps_s


def test_own_peak_is_not_that_of_the_parent() -> None:
    ballast = bytearray(300_000_000)
    ballast[::4096] = b"x" * len(ballast[::4096])
    _, printed = run_program("from aisim_gym.bench.memory import peak_bytes; print(peak_bytes())")
    assert 10_000_000 < int(printed) < len(ballast) < memory.peak_bytes()


def test_failing_child_says_why() -> None:
    with pytest.raises(ChildError, match="ZeroDivisionError"):
        run_program("1 / 0")


def test_sections_keep_their_order() -> None:
    assert list(choose_sections(["fleet", "scenarios"])) == ["scenarios", "fleet"]
    assert choose_sections([]) == SECTIONS


def test_machine_is_described() -> None:
    assert all(machine.describe_machine().values())

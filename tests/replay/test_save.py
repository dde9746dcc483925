"""Saved replays: what a file keeps, and files that are none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cases import drive
from support.fixed_cases import BUSY_DISAGGREGATED
from support.fleets import arrivals, every, small_fleet

from aisim_gym.errors import ReplayError
from aisim_gym.replay import Progress, Replay, ScalingDecision


def saved_at_second_tick(path: Path) -> Replay:
    replay = Replay(
        small_fleet(workers=1, startup_ms=5.0), arrivals(every(10.0, 4)), initial_tick_ms=3.0
    )
    replay.advance_to_tick()
    replay.apply(ScalingDecision(None, 2, 17.0))
    replay.advance_to_tick()
    replay.save(path)
    return replay


def test_loaded_replay_shows_the_tick_that_waits(tmp_path: Path) -> None:
    replay = saved_at_second_tick(tmp_path / "run.npz")
    loaded = Replay.load(tmp_path / "run.npz")
    assert loaded.snapshot == replay.snapshot is not None
    assert (loaded.spec, loaded.ticks, loaded.wall_s) == (replay.spec, replay.ticks, replay.wall_s)
    assert (loaded.now_ms, loaded.is_done) == (17.0, False)


def test_saving_writes_one_file_under_the_given_name_and_replaces_it(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("old")
    saved_at_second_tick(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]
    assert Replay.load(path).now_ms == 17.0


def test_finished_replay_is_still_finished_after_loading(tmp_path: Path) -> None:
    replay = BUSY_DISAGGREGATED.replay()
    drive(replay, BUSY_DISAGGREGATED)
    replay.save(tmp_path / "run.npz")
    loaded = Replay.load(tmp_path / "run.npz")
    assert loaded.is_done
    assert loaded.advance_to_tick() is None


def test_failed_replay_still_fails_after_loading(tmp_path: Path) -> None:
    replay = Replay(small_fleet(workers=1, engine={"num_gpu_blocks": 8}), arrivals([0.0], 10, 24))
    with pytest.raises(ReplayError) as raised:
        replay.advance_to_tick()
    replay.save(tmp_path / "run.npz")
    with pytest.raises(ReplayError) as again:
        Replay.load(tmp_path / "run.npz").advance_to_tick()
    assert str(again.value) == str(raised.value)


def write_half(path: Path) -> None:
    saved_at_second_tick(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_without_a_table(path: Path) -> None:
    saved_at_second_tick(path)
    with np.load(path) as file:
        tables: dict[str, Any] = {name: file[name] for name in file.files if name != "events"}
    np.savez(path, **tables)


def write_array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


NO_REPLAYS: dict[str, Callable[[Path], object]] = {
    "text": lambda path: path.write_text("hello"),
    "empty": lambda path: path.write_bytes(b""),
    "array": write_array,
    "other arrays": lambda path: np.savez(path, a=np.zeros(3)),
    "half a file": write_half,
    "a table missing": write_without_a_table,
}


@pytest.mark.parametrize("write", NO_REPLAYS.values(), ids=NO_REPLAYS)
def test_file_that_is_no_saved_replay_is_named(
    write: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "run.npz"
    write(path)
    with pytest.raises(ReplayError, match=r"run\.npz"):
        Replay.load(path)


def test_missing_file_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        Replay.load(tmp_path / "none.npz")


# Interrupted runs


class StopError(Exception):
    """Raised while a run reports progress, like an interrupt from the keyboard."""


def test_run_interrupted_while_it_reports_progress_can_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aisim_gym.replay.run.INSTANTS_PER_CALL", 3)

    def stop(_: Progress) -> None:
        raise StopError

    straight = BUSY_DISAGGREGATED.replay()
    expected = drive(straight, BUSY_DISAGGREGATED)
    replay = BUSY_DISAGGREGATED.replay()
    with pytest.raises(StopError):
        replay.advance_to_tick(stop)
    assert 0 < replay.now_ms < straight.ticks[0].now_ms
    assert drive(replay, BUSY_DISAGGREGATED) == expected

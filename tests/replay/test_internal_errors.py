"""A fault of the package ends a run with an error that names the table, before it does harm."""

import os
import subprocess
import sys

import pytest
from support.fleets import arrivals, small_fleet

from aisim_gym.engine.tables import NONE
from aisim_gym.errors import InternalError
from aisim_gym.fleet.tables import DECODE
from aisim_gym.replay import Replay
from aisim_gym.replay.batch import ReplayBatch


def replay_without_a_free_sequence() -> Replay:
    """Return a run whose count of free rows is wrong: compiled code asks, and is misled."""
    replay = Replay(small_fleet(workers=1), arrivals([0.0, 5.0]))
    replay.state.world.arena.seq_free = NONE
    return replay


def test_row_that_is_not_there_ends_the_run_with_the_name_of_the_table() -> None:
    replay = replay_without_a_free_sequence()
    message = r"internal error: no room in table seqs at 0.0 ms: 1 more needed, it has 256 rows"
    with pytest.raises(InternalError, match=message):
        replay.advance_to_tick()
    with pytest.raises(InternalError, match=r"table \(unknown\) at 0.0 ms.*please report this"):
        replay.advance_to_tick()
    assert not replay.is_done
    assert not replay.is_stuck


def test_decision_that_finds_no_row_ends_the_run() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0, 500.0]), initial_tick_ms=1.0)
    replay.advance_to_tick()
    world = replay.state.world
    world.clock.operation_count = len(world.operations) - 2
    world.pools[DECODE].active_count = len(world.rosters[0])
    with pytest.raises(InternalError, match="internal error: no room in table rosters"):
        replay.answer(-1, len(world.rosters[0]) + 1, 2.0)
    with pytest.raises(InternalError, match="internal error"):
        replay.answer(-1, -1, 2.0)
    with pytest.raises(InternalError, match="internal error"):
        replay.advance_to_tick()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_batch_goes_on_with_the_other_worlds() -> None:
    healthy = Replay(small_fleet(workers=1), arrivals([0.0, 5.0]))
    with (
        ReplayBatch([replay_without_a_free_sequence(), healthy], num_threads=2) as batch,
        pytest.raises(
            InternalError, match=r"internal error: no room in table \(unknown\)"
        ) as raised,
    ):
        batch.advance_to_tick()
    assert raised.value.__notes__ == ["in world 0"]
    assert healthy.is_done


CHECKED = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_DISABLE_JIT": "0"}

WRITE_BEHIND = """
from support.fleets import arrivals, small_fleet
from aisim_gym.errors import InternalError
from aisim_gym.fleet.tables import DECODE
from aisim_gym.replay import Replay
replay = Replay(small_fleet(workers=1), arrivals([0.0]))
replay.state.check_guards()
memory = replay.state.tables["seqs"]
while memory.base is not None:
    memory = memory.base
memory[replay.state.tables["seqs"].nbytes + 5] = 1
for look in (replay.fork, lambda: replay.save("/dev/null"), replay.state.check_guards):
    try:
        look()
    except InternalError as error:
        print(error)
"""


def test_write_behind_a_table_is_found_by_the_checked_build() -> None:
    environment = {**os.environ, **CHECKED, "PYTHONPATH": "tests"}
    command = [sys.executable, "-c", WRITE_BEHIND]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    lines = said.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("internal error: memory behind seqs was written") for line in lines)

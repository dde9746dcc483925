"""Targets and the life of workers (replay-runtime.md §6.7, §7, §8.3)."""

import pytest
from fleet.worlds import new_world, roster, scale, worker_states
from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.fleet.events import EVENT_WORKER_READY, EVENTS, pop_due
from aisim_gym.fleet.tables import (
    DECODE,
    PREFILL,
    ROSTER_ACTIVE,
    ROSTER_LIVE,
    WORKER_ACTIVE,
    WORKER_DRAINING,
    WORKER_REMOVED,
    WORKER_STARTING,
)
from aisim_gym.fleet.worker_life import (
    begin_drain,
    is_drained,
    is_startable,
    settle_drained,
    settle_ready,
)
from aisim_gym.fleet.world_state import WorldState


def occupy(state: WorldState, *worker_ids: int) -> None:
    """Let workers own a request that never ends."""
    for row in range(len(state.world.workers)):
        worker = state.world.workers[row]
        if worker.pool == DECODE and worker.id in worker_ids:
            state.world.ranks[worker.first_rank].owned_seqs += 1


def free(state: WorldState, *worker_ids: int) -> None:
    for row in range(len(state.world.workers)):
        worker = state.world.workers[row]
        if worker.pool == DECODE and worker.id in worker_ids:
            state.world.ranks[worker.first_rank].owned_seqs -= 1
            state.world.pools[DECODE].drain_check = True


def test_initial_workers_are_active_whatever_the_startup_time() -> None:
    state = new_world(workers=2, startup_ms=30.0)
    assert worker_states(state) == {0: WORKER_ACTIVE, 1: WORKER_ACTIVE}
    assert state.world.heaps[EVENTS].count == 0


def test_added_workers_start_up_and_their_ready_events_are_armed() -> None:
    state = new_world(workers=1, startup_ms=30.0)
    scale(state, 3, at_ms=20.0)
    assert worker_states(state) == {0: WORKER_ACTIVE, 1: WORKER_STARTING, 2: WORKER_STARTING}
    assert sorted(state.world.events["at_ms"][:2].tolist()) == [50.0, 50.0]
    assert roster(state, ROSTER_ACTIVE) == [0]


@pytest.mark.parametrize("startup_ms", [None, 0.0])
def test_added_workers_without_startup_time_are_active_at_once(startup_ms: float | None) -> None:
    state = new_world(workers=1, startup_ms=startup_ms)
    scale(state, 3, at_ms=20.0)
    assert worker_states(state) == dict.fromkeys(range(3), WORKER_ACTIVE)
    assert state.world.workers[2].ready_ms == 20.0
    assert state.world.heaps[EVENTS].count == 0


def test_target_counts_active_and_starting_but_not_draining_workers() -> None:
    state = new_world(workers=2, startup_ms=30.0)
    occupy(state, 0, 1)
    scale(state, 1, at_ms=10.0)
    scale(state, 2, at_ms=11.0)
    assert worker_states(state) == {0: WORKER_ACTIVE, 1: WORKER_DRAINING, 2: WORKER_STARTING}


def test_target_that_is_met_records_no_operation() -> None:
    state = new_world(workers=2)
    scale(state, 2)
    assert state.world.clock.operation_count == 0


def test_starting_workers_are_cancelled_first_highest_id_first() -> None:
    state = new_world(workers=2, startup_ms=30.0)
    occupy(state, 0, 1)
    scale(state, 5, at_ms=10.0)
    scale(state, 3, at_ms=20.0)
    assert worker_states(state) == {
        0: WORKER_ACTIVE,
        1: WORKER_ACTIVE,
        2: WORKER_STARTING,
        3: WORKER_REMOVED,
        4: WORKER_REMOVED,
    }
    scale(state, 1, at_ms=21.0)
    assert worker_states(state)[2] == WORKER_REMOVED
    assert worker_states(state)[1] == WORKER_DRAINING


def test_active_workers_drain_from_the_highest_id_and_busy_ones_stay() -> None:
    state = new_world(workers=4)
    occupy(state, 2)
    scale(state, 1, at_ms=5.0)
    assert worker_states(state) == {
        0: WORKER_ACTIVE,
        1: WORKER_REMOVED,
        2: WORKER_DRAINING,
        3: WORKER_REMOVED,
    }
    assert roster(state, ROSTER_LIVE) == [0, 2]


def test_draining_worker_is_removed_once_it_owns_nothing() -> None:
    state = new_world(workers=2)
    occupy(state, 1)
    scale(state, 1, at_ms=5.0)
    assert not settle_drained(state.world, DECODE)
    state.world.clock.now_ms = 9.0
    free(state, 1)
    assert settle_drained(state.world, DECODE)
    assert (state.world.workers[1].state, state.world.workers[1].removed_ms) == (
        WORKER_REMOVED,
        9.0,
    )
    assert not settle_drained(state.world, DECODE)


def test_ids_are_never_used_again() -> None:
    state = new_world(workers=2)
    scale(state, 0, at_ms=1.0)
    scale(state, 2, at_ms=2.0)
    assert worker_states(state) == {
        0: WORKER_REMOVED,
        1: WORKER_REMOVED,
        2: WORKER_ACTIVE,
        3: WORKER_ACTIVE,
    }
    assert [int(rank.scheduler_id) for rank in map(state.world.ranks.__getitem__, range(4))] == [
        0,
        1,
        2,
        3,
    ]


def test_ready_event_of_a_cancelled_worker_does_nothing() -> None:
    state = new_world(workers=1, startup_ms=30.0)
    scale(state, 2, at_ms=10.0)
    scale(state, 1, at_ms=20.0)
    state.world.clock.now_ms = 40.0
    row = pop_due(state.world, EVENT_WORKER_READY)
    assert not settle_ready(state.world, row)
    assert worker_states(state)[1] == WORKER_REMOVED


def test_ready_event_makes_a_starting_worker_active() -> None:
    state = new_world(workers=1, startup_ms=30.0)
    scale(state, 2, at_ms=10.0)
    state.world.clock.now_ms = 40.0
    assert settle_ready(state.world, pop_due(state.world, EVENT_WORKER_READY))
    assert roster(state, ROSTER_ACTIVE) == [0, 1]
    assert state.world.workers[1].ready_ms == 40.0


def test_targets_of_both_pools_are_independent() -> None:
    state = new_world(prefill=2, decode=1)
    scale(state, decode=3, prefill=1)
    assert worker_states(state, PREFILL) == {0: WORKER_ACTIVE, 1: WORKER_REMOVED}
    assert worker_states(state, DECODE) == dict.fromkeys(range(3), WORKER_ACTIVE)


def test_prefill_target_of_an_aggregated_fleet_is_ignored() -> None:
    state = new_world(workers=1)
    scale(state, decode=None, prefill=5)
    assert worker_states(state) == {0: WORKER_ACTIVE}
    assert worker_states(state, PREFILL) == {}


def test_worker_with_a_pass_in_flight_is_neither_drained_nor_startable() -> None:
    state = new_world(workers=1)
    assert is_drained(state.world, 0)
    assert not is_startable(state.world, 0)
    state.world.workers[0].is_busy = True
    assert not is_drained(state.world, 0)
    assert not is_startable(state.world, 0)


def test_draining_worker_is_out_of_placement_but_still_alive() -> None:
    state = new_world(workers=2)
    begin_drain(state.world, 0, 0)
    assert roster(state, ROSTER_ACTIVE) == [1]
    assert roster(state, ROSTER_LIVE) == [0, 1]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.sets(st.integers(0, 20), max_size=4)), max_size=12),
    st.sampled_from([None, 25.0]),
)
def test_pool_counts_agree_with_the_states_of_its_workers(
    steps: list[tuple[int, set[int]]], startup_ms: float | None
) -> None:
    """A step occupies some workers, applies a target, then frees them again."""
    state = new_world(workers=2, startup_ms=startup_ms)
    for tick, (target, busy) in enumerate(steps):
        known = busy & worker_states(state).keys()
        occupy(state, *known)
        scale(state, target, at_ms=10.0 * tick)
        free(state, *known)
        settle_drained(state.world, DECODE)
        states = list(worker_states(state).values())
        pool = state.world.pools[DECODE]
        assert states.count(WORKER_ACTIVE) == pool.active_count
        assert states.count(WORKER_STARTING) == pool.starting_count
        assert states.count(WORKER_DRAINING) == pool.draining_count == 0
        assert pool.active_count + pool.starting_count == pool.live_count == target
        assert roster(state, ROSTER_LIVE) == [
            worker for worker, now in worker_states(state).items() if now != WORKER_REMOVED
        ]

"""Round-robin placement (replay-runtime.md §9.2, §9.3)."""

from fleet.worlds import new_world, scale
from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.fleet.placement import place_aggregated, place_in_pool
from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.fleet.world_state import WorldState


def placed(state: WorldState, count: int) -> list[int]:
    """Return the scheduler ids of the next placements in an aggregated fleet."""
    return [
        int(state.world.ranks[place_aggregated(state.world)].scheduler_id) for _ in range(count)
    ]


def placed_in_pool(state: WorldState, pool_id: int, count: int) -> list[int]:
    ranks = [place_in_pool(state.world, pool_id) for _ in range(count)]
    return [int(state.world.ranks[rank].scheduler_id) for rank in ranks]


def test_aggregated_workers_alternate_and_their_ranks_rotate() -> None:
    assert placed(new_world(workers=2, dp_size=2), 7) == [0, 2, 1, 3, 0, 2, 1]


def test_pool_goes_through_all_ranks_worker_by_worker() -> None:
    state = new_world(prefill=2, decode=2, dp_size=2)
    assert placed_in_pool(state, PREFILL, 5) == [0, 1, 2, 3, 0]
    assert placed_in_pool(state, DECODE, 2) == [0, 1]


def test_aggregated_pointer_is_reduced_when_the_fleet_shrinks() -> None:
    state = new_world(workers=3)
    assert placed(state, 2) == [0, 1]
    scale(state, 2)
    assert placed(state, 3) == [0, 1, 0]


def test_added_worker_joins_at_its_place_with_its_first_rank() -> None:
    state = new_world(workers=2, dp_size=2)
    assert placed(state, 3) == [0, 2, 1]
    scale(state, 3)
    assert placed(state, 4) == [3, 4, 0, 2]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6)), max_size=8))
def test_requests_spread_evenly_over_workers_that_stay(steps: list[tuple[int, int]]) -> None:
    """Between two changes of the fleet no worker gets two requests more than another."""
    state = new_world(workers=1)
    for workers, count in steps:
        scale(state, workers)
        chosen = placed(state, count)
        shares = [chosen.count(scheduler) for scheduler in set(chosen)]
        assert max(shares) - min(shares) <= 1
        assert len(shares) == min(workers, count)

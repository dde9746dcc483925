"""Round-robin placement, one variant per topology (replay-runtime.md §9.2, §9.3)."""

from aisim_gym.fleet.tables import DECODE, ROSTER_ACTIVE
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel


@kernel
def place_aggregated(w: World) -> int:
    """Return the rank row for the next request, round robin over workers, then over their ranks.

    The pool must have an active worker.
    """
    pool = w.pools[DECODE]
    at = pool.next_candidate % pool.active_count
    worker = w.workers[w.rosters[ROSTER_ACTIVE + DECODE, at]]
    dp_rank = worker.next_rank % w.engines[DECODE].dp_size
    pool.next_candidate = at + 1
    worker.next_rank = dp_rank + 1
    return int(worker.first_rank + dp_rank)


@kernel
def place_in_pool(w: World, pool_id: int) -> int:
    """Return the rank row for the next request, round robin over all ranks in worker order.

    The pool must have an active worker.
    """
    pool = w.pools[pool_id]
    dp_size = w.engines[pool_id].dp_size
    at = pool.next_candidate % (pool.active_count * dp_size)
    pool.next_candidate = at + 1
    worker = w.workers[w.rosters[ROSTER_ACTIVE + pool_id, at // dp_size]]
    return int(worker.first_rank + at % dp_size)

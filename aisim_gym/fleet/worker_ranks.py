"""Rows of workers and of their data-parallel ranks, which are consecutive."""

from aisim_gym.fleet.tables import PoolRow, WorkerRow
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel


@kernel
def ranks_of(worker: WorkerRow) -> range:
    """Return the rows of the ranks of a worker."""
    return range(worker.first_rank, worker.first_rank + worker.num_ranks)


@kernel
def next_rows(w: World) -> tuple[int, int]:
    """Return the rows of the next worker and of its first rank; rows are never reused."""
    prefill, decode = w.pools[0], w.pools[1]
    return (
        int(prefill.num_workers + decode.num_workers),
        int(prefill.num_ranks + decode.num_ranks),
    )


@kernel
def non_draining(pool: PoolRow) -> int:
    """Return the active and starting workers of a pool: what a target is compared with."""
    return int(pool.active_count + pool.starting_count)

"""The data-parallel ranks of a worker: consecutive rows of the rank tables."""

from aisim_gym.fleet.tables import WorkerRow
from aisim_gym.kernel import kernel


@kernel
def ranks_of(worker: WorkerRow) -> range:
    """Return the rows of the ranks of a worker."""
    return range(worker.first_rank, worker.first_rank + worker.num_ranks)

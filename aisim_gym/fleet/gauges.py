"""Telemetry gauges of a rank, updated by commands and pass ends but not by pass starts.

Rules: replay-runtime.md §16.3, engine-vllm-trtllm.md §8.2.
"""

from aisim_gym.engine.backend import gauge_blocks
from aisim_gym.engine.seq_queue import queue_of
from aisim_gym.engine.tables import PENDING, PREBUILT, RUNNING, WAITING
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel


@kernel
def commit_gauges(w: World, rank_id: int) -> None:
    """Update the gauges of a rank to its current state."""
    if not w.telemetry.is_on:
        return
    rank = w.ranks[rank_id]
    gauge = w.gauges[rank_id]
    active, inactive = gauge_blocks(w, w.engines[w.workers[rank.worker].pool], rank)
    gauge.active_blocks = active
    gauge.inactive_blocks = inactive
    gauge.running = w.queues[queue_of(rank_id, RUNNING)].count
    gauge.waiting = (
        w.queues[queue_of(rank_id, WAITING)].count
        + w.queues[queue_of(rank_id, PREBUILT)].count
        + w.queues[queue_of(rank_id, PENDING)].count
        + rank.reserved_seqs
    )
    pool = w.pools[w.workers[rank.worker].pool]
    pool.sample_preemptions += rank.preemptions - gauge.preemptions
    gauge.preemptions = rank.preemptions

"""GPU time: the seconds for which the workers of a pool are paid (replay-runtime.md §7.6)."""

from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel


@kernel
def pool_worker_seconds(w: World, pool_id: int) -> float:
    """Return the worker-seconds of a pool up to now, including starting and draining workers."""
    pool = w.pools[pool_id]
    unpaid_ms = w.clock.now_ms - pool.paid_until_ms
    return pool.worker_seconds + float(pool.live_count) * unpaid_ms / 1000.0

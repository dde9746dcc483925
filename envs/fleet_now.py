"""What every step needs to know about the fleet, in one compiled call."""

from typing import NamedTuple

from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.fleet.world import World
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.replay.paid_time import pool_worker_seconds


class FleetNow(NamedTuple):
    """The fleet at a tick or at the end; an aggregated fleet has nothing in its prefill pool.

    Attributes:
        now_ms: Simulated time.
        prefill: Active and starting prefill workers: what a target is compared with.
        decode: The same of the decode or aggregated pool.
        prefill_s: Worker-seconds paid for so far.
        decode_s: The same of the decode or aggregated pool.
    """

    now_ms: float
    prefill: int
    decode: int
    prefill_s: float
    decode_s: float


@entry_point
def read_fleet(w: World) -> tuple[float, int, int, float, float]:
    """Return the fields of a :class:`FleetNow`."""
    return (
        float(w.clock.now_ms),
        _non_draining(w, PREFILL),
        _non_draining(w, DECODE),
        float(pool_worker_seconds(w, PREFILL)),
        float(pool_worker_seconds(w, DECODE)),
    )


@kernel
def _non_draining(w: World, pool_id: int) -> int:
    return int(w.pools[pool_id].active_count + w.pools[pool_id].starting_count)

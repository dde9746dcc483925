"""How hard a fleet works at a tick: latencies since the last one, use of memory and passes."""

from typing import NamedTuple

from aisim_gym.envs.metrics_entries import read_load
from aisim_gym.envs.pool_scales import pool_scales, scale_table
from aisim_gym.fleet.world import World
from aisim_gym.replay import FleetDescription


class Load(NamedTuple):
    """Load of a fleet at a tick, or at the end of an episode.

    Attributes:
        ttft_ms: Mean time to the first token of the requests that completed since the last tick,
            0 without any.
        itl_ms: Mean of their mean gaps between tokens, likewise.
        kv_frac: Share of the KV capacity that the latest passes held, 0..1; mean over pools.
        batch_frac: Prompt tokens of the latest passes as a share of the token budget, likewise.
    """

    ttft_ms: float
    itl_ms: float
    kv_frac: float
    batch_frac: float


NO_LOAD = Load(0.0, 0.0, 0.0, 0.0)
"""Load of a fleet that nobody has used yet."""


class LoadReader:
    """Reads the load from the tables of a replay."""

    def __init__(self, fleet: FleetDescription) -> None:
        """Remember the capacities of a fleet."""
        self._scales = scale_table(pool_scales(fleet))

    def read(self, world: World) -> Load:
        """Return the load now."""
        return Load(*read_load(world, self._scales))

"""Counts of scale events (policies.md §18.3)."""

from typing import NamedTuple, Self

import numpy as np

from aisim_gym.replay import Replay
from aisim_gym.spec import AggregatedFleet


class ScaleEvents(NamedTuple):
    """Numbers of workers that scaling started, cancelled during startup, and drained."""

    started: int
    cancelled: int
    drained: int

    @classmethod
    def of(cls, replay: Replay) -> Self:
        """Count the scale events of both pools so far."""
        fleet, state = replay.spec.fleet, replay.state
        if isinstance(fleet, AggregatedFleet):
            initial = fleet.num_workers
        else:
            initial = fleet.num_prefill_workers + fleet.num_decode_workers
        workers = np.asarray(state.world.workers)[: int(state.world.pools["num_workers"].sum())]
        is_draining = workers["draining_ms"] >= 0.0
        return cls(
            started=len(workers) - initial,
            cancelled=int(((workers["removed_ms"] >= 0.0) & ~is_draining).sum()),
            drained=int(is_draining.sum()),
        )

    @property
    def total(self) -> int:
        """Total number of scale events."""
        return self.started + self.cancelled + self.drained

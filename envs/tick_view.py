"""The view of a tick, or of the end of an episode, for observation, action and reward objects."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aisim_gym.envs.step_outcome import StepOutcome
from aisim_gym.envs.targets import Targets
from aisim_gym.fleet.readings import read_load
from aisim_gym.fleet.world import World
from aisim_gym.replay import Replay, ScalingSnapshot
from aisim_gym.replay.snapshot import take_snapshot


class Load(NamedTuple):
    """Load of a fleet at a tick, or at the end of an episode.

    Attributes:
        ttft_ms: Mean time to the first token of the requests that completed since the last tick, 0
            if none.
        itl_ms: Mean of their mean gaps between tokens, likewise.
        kv_frac: Share of the KV capacity used by the latest passes, 0..1; mean over pools.
        batch_frac: Prompt tokens of the latest passes as a share of the token budget, likewise.
    """

    ttft_ms: float
    itl_ms: float
    kv_frac: float
    batch_frac: float


class TickView:
    """The state of an episode at one time; valid until the episode advances.

    Snapshot and load are computed on first access.

    Attributes:
        replay: The run, read-only.
        now_ms: Simulated time.
        horizon_ms: Time at which the episode is truncated.
        targets: Active and starting workers, the targets that change nothing.
        step: Outcome since the previous view; :data:`NOTHING` at the start of an episode.
    """

    __slots__ = (
        "_load",
        "_scales",
        "_snapshot",
        "horizon_ms",
        "now_ms",
        "replay",
        "step",
        "targets",
    )

    def __init__(
        self,
        replay: Replay,
        now_ms: float,
        horizon_ms: float,
        targets: Targets,
        step: StepOutcome,
        scales: NDArray[np.float64],
    ) -> None:
        """Create the view of a replay that waits at a tick or has ended.

        Args:
            replay: See the class, like the next four.
            now_ms: Of the replay.
            horizon_ms: Of the episode.
            targets: Of the fleet.
            step: Of the episode.
            scales: Scales of the load, see ``pool_scales.scale_table``.
        """
        self.replay = replay
        self.now_ms = now_ms
        self.horizon_ms = horizon_ms
        self.targets = targets
        self.step = step
        self._scales = scales
        self._snapshot: ScalingSnapshot | None = None
        self._load: Load | None = None

    @property
    def world(self) -> World:
        """The tables of the replay, for compiled code."""
        return self.replay.state.world

    @property
    def time_frac(self) -> float:
        """Simulated time as a share of the horizon, 0..1."""
        return self.now_ms / self.horizon_ms

    @property
    def in_flight(self) -> int:
        """Requests that have arrived but not ended."""
        return int(self.replay.state.world.clock.in_flight)

    @property
    def snapshot(self) -> ScalingSnapshot:
        """Snapshot for planners; after the episode, the final fleet."""
        if self._snapshot is None:
            self._snapshot = self.replay.snapshot or take_snapshot(self.replay.state)
        return self._snapshot

    @property
    def load(self) -> Load:
        """Latencies and utilisation."""
        if self._load is None:
            self._load = Load(*read_load(self.world, self._scales))
        return self._load

    def of_fork(self, replay: Replay) -> "TickView":
        """Return the same view of a fork of the replay."""
        return TickView(replay, self.now_ms, self.horizon_ms, self.targets, self.step, self._scales)

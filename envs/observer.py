"""The named observations, and how an environment reads one the quickest way its object offers."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from aisim_gym.envs.history import make_history
from aisim_gym.envs.metrics_entries import EpisodeNow
from aisim_gym.envs.named_part import has_direct_form
from aisim_gym.envs.observation import (
    Observation,
    SummaryObservation,
    WorldObservation,
    begin_episode,
    fit_to_space,
)
from aisim_gym.envs.per_rank import PerRankObservation
from aisim_gym.envs.step_outcome import StepOutcome
from aisim_gym.replay import Replay
from aisim_gym.replay.snapshot import take_snapshot

OBSERVATIONS: Mapping[str, Callable[..., Observation]] = {
    "summary": SummaryObservation,
    "per_rank": PerRankObservation,
    "history": make_history,
}
"""Builder of each named observation; it is given the description of the fleet."""


class Observer:
    """Reads an observation object; a copy of it continues on its own.

    Attributes:
        observation: The object.
        space: Its space.
    """

    def __init__(self, observation: Observation) -> None:
        """Look at what the object offers."""
        self.observation = observation
        self.space = observation.space()
        self._reads_world = has_direct_form(observation, "observe", "observe_world")

    def begin_episode(self) -> None:
        """Tell the object that what comes next has nothing to do with what came before."""
        begin_episode(self.observation)

    def observe(self, replay: Replay, horizon_ms: float, step: StepOutcome) -> tuple[Any, int]:
        """Return the observation, and how many of its entries had to be clipped.

        Args:
            replay: A replay that waits at a tick or has ended; only read.
            horizon_ms: Length of the episode.
            step: What happened in the last step.

        Raises:
            ValueError: If the object returns anything that does not fit its space.
        """
        if self._reads_world:
            direct = cast(WorldObservation, self.observation)
            return direct.observe_world(replay.state.world, horizon_ms, step)
        snapshot = replay.snapshot
        if snapshot is None:
            snapshot = take_snapshot(replay.state)
        episode = EpisodeNow(
            snapshot.now_ms / horizon_ms,
            int(replay.state.world.clock.in_flight),
            step.mean_overdue,
            step.bad_frac,
        )
        values = self.observation.observe(snapshot, episode)
        return fit_to_space(values, self.space)

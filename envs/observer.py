"""The named observations, and the wrapper that fits observations to their space."""

from collections.abc import Callable, Mapping
from typing import Any

from aisim_gym.envs.history import HistoryObservation
from aisim_gym.envs.observation import Observation, SummaryObservation, begin_episode
from aisim_gym.envs.per_rank import PerRankObservation
from aisim_gym.envs.spaces_fit import make_fitter
from aisim_gym.envs.tick_view import TickView

OBSERVATIONS: Mapping[str, Callable[..., Observation]] = {
    "summary": SummaryObservation,
    "per_rank": PerRankObservation,
    "history": HistoryObservation,
}
"""Class of each named observation; its first argument is the description of the fleet."""


class Observer:
    """Reads an observation object; copies are independent.

    Attributes:
        observation: The object.
        space: Its space.
    """

    def __init__(self, observation: Observation) -> None:
        """Wrap ``observation``."""
        self.observation = observation
        self.space = observation.space()
        self._fit = make_fitter(self.space)

    def begin_episode(self) -> None:
        """Reset the state of the object for a new episode."""
        begin_episode(self.observation)

    def observe(self, view: TickView) -> tuple[Any, int]:
        """Return the observation and the number of clipped entries.

        Raises:
            ValueError: If the observation does not fit its space.
        """
        return self._fit(self.observation.observe(view))

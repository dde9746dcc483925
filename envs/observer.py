"""The named observations, and what an environment makes of any of them."""

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
"""Class of each named observation; it is given the description of the fleet."""


class Observer:
    """Reads an observation object; a copy of it continues on its own.

    Attributes:
        observation: The object.
        space: Its space.
    """

    def __init__(self, observation: Observation) -> None:
        """Take the object."""
        self.observation = observation
        self.space = observation.space()
        self._fit = make_fitter(self.space)

    def begin_episode(self) -> None:
        """Tell the object that what comes next has nothing to do with what came before."""
        begin_episode(self.observation)

    def observe(self, view: TickView) -> tuple[Any, int]:
        """Return the observation, and how many of its entries had to be clipped.

        Raises:
            ValueError: If the object returns anything that does not fit its space.
        """
        return self._fit(self.observation.observe(view))

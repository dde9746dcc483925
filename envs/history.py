"""Stack the last few observations."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from aisim_gym.envs.component import make_component
from aisim_gym.envs.observation import Observation, SummaryObservation, begin_episode
from aisim_gym.envs.per_rank import PerRankObservation
from aisim_gym.envs.tick_view import TickView
from aisim_gym.replay import FleetDescription
from aisim_gym.spec.argument_checks import check_integer

STACKED: Mapping[str, Callable[..., Observation]] = {
    "summary": SummaryObservation,
    "per_rank": PerRankObservation,
}
"""Names accepted for ``of``; the second raises with a reason."""


class Frame(NamedTuple):
    """One past observation."""

    at_ms: float
    values: NDArray[np.float64]


class HistoryObservation:
    """The last ``length`` observations in one vector, the oldest first.

    At the start of an episode the first observation fills all slots. Observing twice at the same
    time replaces the newest one. ``info["obs_clipped"]`` counts the clipped entries of all slots.
    Only vector observations are supported; ``gymnasium.wrappers.FrameStackObservation`` can stack a
    ``Dict``.

    Attributes:
        of: The observation that is stacked.
        names: Name of each entry: ``<name>_3_ago`` … ``<name>_0_ago``, if the stacked observation
            has names.
        units: Unit of each entry, likewise.
    """

    def __init__(
        self,
        fleet: FleetDescription,
        length: int = 4,
        of: str | Mapping[str, Any] | Observation = "summary",
    ) -> None:
        """Build the observation.

        Args:
            fleet: Fleet for the stacked observation.
            length: Observations to stack, >= 1.
            of: The observation: name, mapping with ``name`` and parameters, or object.

        Raises:
            ValueError: If ``of`` is unknown or is not a vector.
        """
        if check_integer("length", length, ">= 1") < 1:
            raise ValueError(f"length: got {length}, expected >= 1")
        self.of = make_component("of", of, STACKED, fleet, methods=("space", "observe"))
        box = self.of.space()
        if not isinstance(box, spaces.Box) or len(box.shape) != 1:
            raise ValueError(
                f"of: got an observation with the space {box}, expected a one-dimensional Box "
                "(stack others with gymnasium.wrappers.FrameStackObservation)"
            )
        self._box = box
        self._frames: deque[Frame] = deque(maxlen=int(length))
        ages = [f"{age}_ago" for age in reversed(range(int(length)))]
        names, units = (tuple(getattr(self.of, field, ())) for field in ("names", "units"))
        self.names = tuple(f"{name}_{age}" for age in ages for name in names)
        self.units = units * len(ages)

    def space(self) -> spaces.Box:
        """Return the box of the stacked observation, repeated for all slots."""
        length = cast(int, self._frames.maxlen)
        low, high = np.tile(self._box.low, length), np.tile(self._box.high, length)
        return spaces.Box(low, high, dtype=cast(Any, self._box.dtype))

    def begin_episode(self) -> None:
        """Clear the stored observations."""
        self._frames.clear()
        begin_episode(self.of)

    def observe(self, view: TickView) -> NDArray[np.float64]:
        """Return the last observations, including the current one."""
        values = np.array(self.of.observe(view), np.float64)
        if values.shape != self._box.shape:
            raise ValueError(f"of: got shape {values.shape}, expected {self._box.shape}")
        frames, frame = self._frames, Frame(view.now_ms, values)
        if frames and frames[-1].at_ms == frame.at_ms:
            frames.pop()
        elif not frames:
            frames.extend([frame] * (cast(int, frames.maxlen) - 1))
        frames.append(frame)
        return np.concatenate([each.values for each in frames])

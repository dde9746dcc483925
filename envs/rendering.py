"""Render an episode as images, on a screen or as arrays."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from aisim_gym.envs.episode_account import Paid
from aisim_gym.envs.episode_record import EpisodeRecord
from aisim_gym.envs.outcomes import Outcomes
from aisim_gym.envs.render_window import Window
from aisim_gym.envs.targets import Targets
from aisim_gym.replay import FleetDescription, ScalingSnapshot

if TYPE_CHECKING:
    from aisim_gym.envs.render_frame import FramePainter

RENDER_MODES = ("human", "rgb_array", "ansi")
RENDER_FPS = 4
PICTURE_MODES = ("human", "rgb_array")


def checked_mode(render_mode: str | None) -> str | None:
    """Return ``render_mode`` if it is valid.

    Raises:
        ValueError: If the mode does not exist.
    """
    if render_mode is not None and render_mode not in RENDER_MODES:
        allowed = ", ".join(RENDER_MODES)
        raise ValueError(f"render_mode: got {render_mode!r}, expected None or one of: {allowed}")
    return render_mode


def modes_of(render_mode: str | None) -> list[str]:
    """Return the modes that an environment with this mode lists.

    Gymnasium's checker renders in every mode that an environment lists, so modes that may not work
    are omitted: a window, unless the environment already has one, and images without matplotlib.
    The class lists all modes.
    """
    modes = ["ansi"]
    if find_spec("matplotlib") is not None:
        modes.append("rgb_array")
    if render_mode is not None and render_mode not in modes:
        modes.append(render_mode)
    return modes


class Renderer:
    """Keeps the record of the episode and draws it.

    Copies and pickles include the record; they open their own window and draw their own background.
    """

    def __init__(self, mode: str | None, fleet: FleetDescription) -> None:
        """Create a renderer for ``fleet``; without an image mode nothing is recorded."""
        self.mode = mode
        self._fleet = fleet
        self._record: EpisodeRecord | None = None
        self._painter: FramePainter | None = None
        self._window: Window | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without process-local objects."""
        return {**self.__dict__, "_painter": None, "_window": None}

    @property
    def is_recording(self) -> bool:
        """Whether ticks are recorded."""
        return self.mode in PICTURE_MODES

    def begin_episode(self, horizon_s: float) -> None:
        """Start a new record."""
        if self.is_recording:
            self._record = EpisodeRecord(self._fleet, horizon_s)

    def add_tick(
        self,
        snapshot: ScalingSnapshot,
        targets: Targets,
        in_flight: int,
        paid: Paid,
        totals: Outcomes,
    ) -> None:
        """Record a tick (see :meth:`EpisodeRecord.add`) and, in mode "human", show it."""
        assert self._record is not None
        self._record.add(snapshot, targets, in_flight, paid, totals)
        if self.mode == "human":
            self.render()

    def render(self) -> NDArray[np.uint8] | None:
        """Return a frame, or show it and return None.

        Raises:
            ImportError: If matplotlib or, for a window, pygame is not installed.
            ResetNeeded: Before the first episode and after ``close()``.
            RuntimeError: If a window has no display.
        """
        if self._record is None:
            raise ResetNeeded("render(): call reset() first, there is no episode yet")
        if self._painter is None:
            from aisim_gym.envs.render_frame import FramePainter

            self._painter = FramePainter(self._fleet)
        frame = self._painter.draw(self._record)
        if self.mode == "rgb_array":
            return frame
        if self._window is None:
            self._window = Window(RENDER_FPS)
        self._window.show(frame)
        return None

    def fork(self) -> Self:
        """Return an independent renderer, which has no window but can draw."""
        twin = type(self)("rgb_array" if self.mode == "human" else self.mode, self._fleet)
        twin._record = None if self._record is None else self._record.copy()
        return twin

    def close(self) -> None:
        """Close the window and discard the record."""
        if self._window is not None:
            self._window.close()
        self._record = self._painter = self._window = None

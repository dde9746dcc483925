"""Show frames in a window; needs the extra ``human``."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

TITLE = "aisim-gym"

INVISIBLE_DRIVERS = ("dummy", "offscreen")
"""SDL drivers that draw without a display."""


class Window:
    """A window that opens with the first frame.

    pygame has one window per process, which environments share.
    """

    def __init__(self, fps: float) -> None:
        """Create a window that shows at most ``fps`` frames per second."""
        self._fps = fps
        self._screen: Any = None
        self._clock: Any = None

    def show(self, frame: NDArray[np.uint8]) -> None:
        """Show a frame of shape (height, width, 3), and wait until the next one is due.

        Raises:
            ImportError: If pygame is not installed.
            RuntimeError: If there is no display.
        """
        try:
            import pygame
        except ImportError as error:
            raise ImportError(
                "render_mode 'human' needs pygame, which is not installed: "
                "pip install 'aisim-gym[human]'"
            ) from error
        columns_first = frame.swapaxes(0, 1)
        if self._screen is None or pygame.display.get_surface() is not self._screen:
            self._screen = _open(pygame, columns_first.shape[:2])
            self._clock = pygame.time.Clock()
        pygame.surfarray.blit_array(self._screen, columns_first)
        pygame.event.pump()
        self._clock.tick(self._fps)
        pygame.display.flip()

    def close(self) -> None:
        """Close the window, if it is open and shows these frames."""
        if self._screen is None:
            return
        import pygame

        if pygame.display.get_surface() is self._screen:
            pygame.display.quit()
        self._screen = self._clock = None


def _open(pygame: Any, size_px: tuple[int, int]) -> Any:
    """Return a new screen surface.

    Without a display SDL silently draws offscreen. This is an error unless the user requests it
    (``SDL_VIDEODRIVER=dummy``).
    """
    try:
        pygame.display.init()
        driver = pygame.display.get_driver()
        if driver in INVISIBLE_DRIVERS and not os.environ.get("SDL_VIDEODRIVER"):
            pygame.display.quit()
            raise pygame.error(f"only its driver {driver!r} works")
        screen = pygame.display.set_mode(size_px)
    except pygame.error as error:
        raise RuntimeError(
            f"render_mode 'human' needs a display, and SDL finds none ({error}); use 'rgb_array' "
            "for images or 'ansi' for text, or set SDL_VIDEODRIVER=dummy to show nothing"
        ) from error
    pygame.display.set_caption(TITLE)
    return screen

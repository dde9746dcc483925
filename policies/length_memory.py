"""Mean request lengths for planners (policies.md §0.2)."""

import math

from aisim_gym.replay import TrafficStatistics

PRESET_INPUT_TOKENS = 1024.0
PRESET_OUTPUT_TOKENS = 128.0


class LengthMemory:
    """Stores the mean lengths of the last window in which a request completed.

    Attributes:
        input_tokens: Mean prompt; 1024 before the first completion.
        output_tokens: Mean output; 128 before the first completion.
    """

    def __init__(self) -> None:
        """Start with the presets."""
        self.input_tokens = PRESET_INPUT_TOKENS
        self.output_tokens = PRESET_OUTPUT_TOKENS

    def update(self, traffic: TrafficStatistics) -> None:
        """Store the means of a window, unless no request completed in it."""
        means = (traffic.avg_isl, traffic.avg_osl)
        if traffic.shape_count > 0 and all(map(math.isfinite, means)):
            self.input_tokens, self.output_tokens = means

"""Time of the first scaling tick (replay-runtime.md §14.4); the policy sets later ones."""

import math

from pydantic import Field, field_validator

from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.scalars import Real


class TickSpec(SpecModel):
    """The first scaling tick."""

    initial_tick_ms: Real | None = Field(
        default=None,
        description="Simulated time of the first tick, ms; null, infinite or NaN = no ticks; "
        "negative = 0",
    )

    @field_validator("initial_tick_ms")
    @classmethod
    def _resolve(cls, initial_tick_ms: float | None) -> float | None:
        if initial_tick_ms is None or not math.isfinite(initial_tick_ms):
            return None
        return max(initial_tick_ms, 0.0)

"""Service levels that a request must meet to count as goodput (replay-runtime.md §15, §19)."""

import math
from typing import Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from aisim_gym.number_text import number_text
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import Real


class SlaSpec(SpecModel):
    """Upper bounds on latencies; either end to end, or first token and gaps."""

    ttft_ms: Real | None = Field(default=None, description="Time to first token, ms, > 0")
    itl_ms: Real | None = Field(default=None, description="Mean gap between tokens, ms, > 0")
    e2e_ms: Real | None = Field(default=None, description="Arrival to last token, ms, > 0")

    @field_validator("ttft_ms", "itl_ms", "e2e_ms")
    @classmethod
    def _check_bound(cls, bound_ms: float | None, info: ValidationInfo) -> float | None:
        if bound_ms is not None and not (math.isfinite(bound_ms) and bound_ms >= 0):
            raise ValueError(
                f"sla_{info.field_name} must be a finite, non-negative value, "
                f"got {number_text(bound_ms)}"
            )
        return bound_ms

    @model_validator(mode="after")
    def _check_combination(self) -> Self:
        if self.e2e_ms is not None and (self.ttft_ms is not None or self.itl_ms is not None):
            raise ValueError(
                "invalid replay spec: sla.e2e_ms is mutually exclusive with sla.ttft_ms/itl_ms"
            )
        for name in ("ttft_ms", "itl_ms", "e2e_ms"):
            if getattr(self, name) == 0:
                raise MisfitError(
                    name, f"invalid replay spec: sla.{name} must be finite and positive, got 0"
                )
        return self

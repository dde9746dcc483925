"""Parameters of generated chat traffic."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from aisim_gym.number_text import number_text
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import F64, U64

DEFAULT_SPIKE_AT_S = 1050.0


class GeneratorSpec(SpecModel):
    """Chat traffic whose rate swings between a base and a peak, with one spike."""

    kind: Literal["chat-wave"] = Field(default="chat-wave", description="Which generator")
    duration_s: F64 = Field(default=1800.0, gt=0, description="Arrivals end here, seconds, > 0")
    base_rate_rps: F64 = Field(default=2.0, gt=0, description="Lowest rate, requests/s, > 0")
    peak_rate_rps: F64 = Field(
        default=14.0, gt=0, description="Highest rate without the spike, requests/s, >= base"
    )
    period_s: F64 = Field(default=900.0, gt=0, description="Length of a wave, seconds, > 0")
    spike_at_s: F64 | None = Field(
        default=DEFAULT_SPIKE_AT_S,
        ge=0,
        description="Start of the spike, seconds, >= 0; null = none; "
        "default 1050, or null where the spike would not end within duration_s",
    )
    spike_duration_s: F64 = Field(default=60.0, gt=0, description="Length, seconds, > 0")
    spike_factor: F64 = Field(default=1.8, gt=0, description="Multiplies the rate, > 0")
    mean_input_tokens: F64 = Field(default=1000.0, gt=0, description="Mean prompt, tokens, > 0")
    mean_output_tokens: F64 = Field(default=200.0, gt=0, description="Mean output, tokens, > 0")
    seed: U64 = Field(default=1, description="Seed of all draws")

    @model_validator(mode="before")
    @classmethod
    def _drop_default_spike(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "spike_at_s" in data:
            return data
        duration_s = data.get("duration_s", 1800.0)
        spike_duration_s = data.get("spike_duration_s", 60.0)
        if not all(isinstance(span, int | float) for span in (duration_s, spike_duration_s)):
            return data
        fits = DEFAULT_SPIKE_AT_S + spike_duration_s <= duration_s
        return {**data, "spike_at_s": DEFAULT_SPIKE_AT_S if fits else None}

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if self.peak_rate_rps < self.base_rate_rps:
            raise MisfitError(
                "peak_rate_rps",
                "peak_rate_rps must be at least base_rate_rps, got "
                f"{number_text(self.peak_rate_rps)} and {number_text(self.base_rate_rps)}",
            )
        if self.spike_at_s is not None:
            spike_end_s = self.spike_at_s + self.spike_duration_s
            if spike_end_s > self.duration_s:
                raise MisfitError(
                    "spike_at_s",
                    "spike_at_s + spike_duration_s must not exceed duration_s, got "
                    f"{number_text(spike_end_s)} and {number_text(self.duration_s)}",
                )
        return self

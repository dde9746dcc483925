"""Timing models: how long a pass takes (engine-vllm-trtllm.md §2.3)."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, field_validator

from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.refusals import UnsupportedSpecError
from aisim_gym.spec.scalars import F64, Refusal, RustType, Text


class _TimingModel(SpecModel):
    """What all timing models share: keys they do not know are dropped, as the reference does."""

    model_config = ConfigDict(extra="ignore")


class PolynomialTiming(_TimingModel):
    """The reference's built-in polynomial in tokens and cached tokens."""

    type: Literal["polynomial"] = Field(default="polynomial", description="Kind of timing model")


class FixedTiming(_TimingModel):
    """Constant durations: one for the prefill part of a pass, one for the decode part."""

    type: Literal["fixed"] = Field(default="fixed", description="Kind of timing model")
    prefill_ms: Annotated[F64, Refusal("fixed prefill latency must be finite and non-negative")] = (
        Field(ge=0, description="Added to a pass that prefills anything, ms, >= 0")
    )
    decode_ms: Annotated[F64, Refusal("fixed decode latency must be finite and non-negative")] = (
        Field(ge=0, description="Added to a pass that decodes anything, ms, >= 0")
    )


class ExternalTiming(_TimingModel):
    """A named provider; the reference's build has none, so every name is refused."""

    type: Literal["external"] = Field(default="external", description="Kind of timing model")
    provider: Text = Field(description="Name of the provider")
    config: JsonValue = Field(default=None, description="Passed to the provider")

    @field_validator("provider")
    @classmethod
    def _check_provider(cls, provider: str) -> str:
        if not provider:
            raise ValueError("timing provider cannot be empty")
        raise UnsupportedSpecError(
            f'unsupported external timing provider "{provider}"; use `polynomial` or `fixed`'
        )


TimingModel = Annotated[
    PolynomialTiming | FixedTiming | ExternalTiming,
    Field(discriminator="type"),
    RustType("internally tagged enum TimingModelConfig", "a table with `type`"),
]

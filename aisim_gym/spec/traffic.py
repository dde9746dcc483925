"""Generated traffic: arrivals, lengths and shared prefixes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from aisim_gym.number_text import number_text
from aisim_gym.spec.arrivals import (
    AnyArrivals,
    ClientsArrivals,
    FlashCrowdArrivals,
    RampArrivals,
)
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.named_lengths import AnyLengths
from aisim_gym.spec.prompts import AnyPrompts, UniquePrompts
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import F64, U64
from aisim_gym.spec.traffic_presets import PRESETS, PresetName
from aisim_gym.spec.wording import closest

LONGEST_DURATION_S = 366 * 86_400.0
"""Maximum duration of traffic: a year."""


class TrafficClass(SpecModel):
    """A class of requests with its own lengths and prompts."""

    if TYPE_CHECKING:  # fields may be mappings or names

        def __init__(self, **data: Any) -> None:
            """Build the model from its fields."""

    share: F64 = Field(gt=0, description="Share of the requests, relative to the others, > 0")
    lengths: AnyLengths = Field(description="Prompt and output lengths")
    prompts: AnyPrompts = Field(default=UniquePrompts(), description="What prompts share")


class TrafficSpec(SpecModel):
    """Traffic made of an arrival process, lengths and prompts, or a preset of all three.

    With a preset, ``arrivals``, ``lengths`` or ``prompts`` without a ``kind`` overrides single
    fields of the preset, and with a ``kind`` replaces its value.

    >>> spec = TrafficSpec(preset="steady", arrivals={"rate_rps": 3.0}, lengths="azure-code")
    >>> spec.arrivals.kind, spec.arrivals.rate_rps, spec.lengths.name
    ('poisson', 3.0, 'azure-code')
    """

    kind: Literal["traffic"] = Field(default="traffic", description="Which generator")
    preset: PresetName | None = Field(
        default=None, description="Fills in arrivals, lengths and prompts; null = all are given"
    )
    duration_s: F64 = Field(
        default=3600.0,
        ge=0.001,
        le=LONGEST_DURATION_S,
        description="Arrivals end here, seconds, 0.001..31622400",
    )
    rate_scale: F64 = Field(
        default=1.0, gt=0, description="Multiplies every rate of the arrivals, > 0"
    )
    seed: U64 = Field(default=1, description="Seed of all draws")
    arrivals: AnyArrivals = Field(description="When requests arrive")
    lengths: AnyLengths | None = Field(
        default=None, description="Prompt and output lengths; null = classes have them"
    )
    prompts: AnyPrompts = Field(default=UniquePrompts(), description="What prompts share")
    classes: tuple[TrafficClass, ...] = Field(
        default=(), description="Instead of lengths and prompts: kinds of requests mixed by share"
    )

    if TYPE_CHECKING:  # a preset fills in fields, which may be mappings or names

        def __init__(self, **data: Any) -> None:
            """Build the model from its fields."""

    @property
    def request_classes(self) -> tuple[TrafficClass, ...]:
        """All classes; a single class of share 1 if the spec has no classes."""
        if self.lengths is None:
            return self.classes
        return (TrafficClass(share=1.0, lengths=self.lengths, prompts=self.prompts),)

    @property
    def block_tokens(self) -> int | None:
        """Tokens per hash id; None without shared prefixes."""
        return next(iter(_block_sizes(self.request_classes)), None)

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or not isinstance(data.get("preset"), str):
            return data
        name = data["preset"]
        preset: Mapping[str, Any] | None = {**PRESETS}.get(name)
        if preset is None:
            raise MisfitError(
                "preset",
                f"got {name!r}, allowed: {', '.join(PRESETS)}{closest(name, PRESETS)}",
            )
        merged = {**preset, **data}
        for part in preset.keys() & data.keys():
            whole, changed = preset[part], data[part]
            if isinstance(whole, str):
                whole = {"kind": "named", "name": whole}
            if isinstance(changed, Mapping) and "kind" not in changed and part != "classes":
                merged[part] = {**whole, **changed}
        return merged

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if (self.lengths is None) == (not self.classes):
            given = "both" if self.classes else "neither"
            raise ValueError(f"exactly one of lengths and classes must be given, got {given}")
        if self.classes and self.prompts != UniquePrompts():
            raise MisfitError("prompts", "prompts and classes exclude one another, got both")
        sizes = _block_sizes(self.request_classes)
        if len(sizes) > 1:
            raise MisfitError(
                "classes",
                f"got prompts with block_tokens {', '.join(map(str, sizes))}, allowed: "
                "one size in all classes",
            )
        return self

    @model_validator(mode="after")
    def _check_clients(self) -> Self:
        if isinstance(self.arrivals, ClientsArrivals):
            return self
        for index, part in enumerate(self.request_classes):
            for name, model in (("lengths", part.lengths), ("prompts", part.prompts)):
                if model.kind == "clients":
                    raise MisfitError(
                        f"classes.{index}.{name}.kind" if self.classes else f"{name}.kind",
                        f"got clients with arrivals of kind {self.arrivals.kind}, allowed: only "
                        "with arrivals of kind clients",
                    )
        return self

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        is_clients = isinstance(self.arrivals, ClientsArrivals)
        rate = self.arrivals.rate if isinstance(self.arrivals, ClientsArrivals) else self.arrivals
        if isinstance(rate, RampArrivals | FlashCrowdArrivals) and rate.at_s >= self.duration_s:
            raise MisfitError(
                "arrivals.rate.at_s" if is_clients else "arrivals.at_s",
                f"at_s must be below duration_s, got {number_text(rate.at_s)} and "
                f"{number_text(self.duration_s)}",
            )
        return self


def _block_sizes(parts: tuple[TrafficClass, ...]) -> list[int]:
    """Return the distinct block sizes, ascending."""
    prompts = [part.prompts for part in parts]
    return sorted({model.block_tokens for model in prompts if not isinstance(model, UniquePrompts)})

"""The workload: the requests and their pacing (workloads.md §1)."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from aisim_gym.number_text import number_text
from aisim_gym.spec.generator import GeneratorSpec
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import F64, U64, Count, Integer, Real, Refusal, RustType
from aisim_gym.spec.synthetic import SyntheticSpec
from aisim_gym.spec.traffic import TrafficSpec
from aisim_gym.spec.wording import known_names

TraceFormat = Literal[
    "mooncake",
    "mooncake-delta",
    "agentic_mooncake",
    "weka",
    "applied_compute_agentic",
    "dynamo",
    "azure",
    "burstgpt",
    "csv",
]
TRACE_FORMAT_ALIASES = {
    "mooncake_delta": "mooncake-delta",
    "agentic-mooncake": "agentic_mooncake",
}
MULTI_FILE_FORMATS = frozenset({"dynamo"})

TimeUnit = Literal["s", "ms"]
TIME_UNIT_OF_FORMAT: dict[str, TimeUnit] = {
    "mooncake": "ms",
    "mooncake-delta": "ms",
    "burstgpt": "s",
}
"""Default unit of formats whose files do not state it; ``time_unit`` overrides it."""

TIME_CHANGES = ("spread_ms", "start_s", "duration_s", "rate_scale")
LENGTH_LIMITS = ("max_input_tokens", "max_total_tokens")

AnyGenerator = Annotated[
    GeneratorSpec | SyntheticSpec | TrafficSpec,
    Field(discriminator="kind"),
    RustType("a table with `kind`", "`chat-wave`, `synthetic` or `traffic`"),
]


_ONLY_TRAFFIC = frozenset(known_names(TrafficSpec)).difference(
    known_names(GeneratorSpec), known_names(SyntheticSpec)
)


def default_kind(fields: Mapping[str, Any]) -> Literal["traffic", "chat-wave"]:
    """Return the default kind of a generator.

    Args:
        fields: Its fields; the kind is ``traffic`` if one of them belongs to no other generator.
    """
    return "traffic" if fields.keys() & _ONLY_TRAFFIC else "chat-wave"


class WorkloadSpec(SpecModel):
    """Requests from trace files or a generator; neither if they are given as arrays."""

    trace_files: Annotated[
        tuple[Annotated[Path, RustType("path string")], ...], RustType("a sequence of paths")
    ] = Field(
        default=(),
        description="Trace files; in a spec file relative to its folder; ~ is the home folder",
    )
    trace_format: Annotated[
        TraceFormat,
        Refusal(
            "trace_format must be 'mooncake', 'mooncake-delta', "
            "'agentic_mooncake'/'agentic-mooncake', 'weka', 'applied_compute_agentic', or 'dynamo'",
            hint="aisim-gym also reads 'azure', 'burstgpt' and 'csv'",
        ),
    ] = Field(default="mooncake", description="Format of the trace files")
    trace_block_size: Annotated[Count, Refusal("trace_block_size must be greater than 0")] = Field(
        default=512, gt=0, description="Tokens per hash id in the trace, > 0"
    )
    arrival_speedup_ratio: Real = Field(
        default=1.0,
        description="Divides arrival times and delays, > 0; ignored with replay_concurrency",
    )
    replay_concurrency: (
        Annotated[Integer, Refusal("replay_concurrency must be at least 1")] | None
    ) = Field(
        default=None,
        ge=1,
        description="Requests or sessions in flight (closed loop), >= 1; null = as authored",
    )
    generator: AnyGenerator | None = Field(
        default=None,
        description="Built-in traffic instead of trace files; without a kind it is chat-wave, or "
        "traffic if a field (preset, arrivals, …) belongs to no other kind",
    )
    time_unit: TimeUnit | None = Field(
        default=None,
        description="Unit of a trace's times, s or ms; null = the default of its format",
    )
    spread_ms: F64 = Field(
        default=0.0,
        ge=0,
        description="The k-th of n arrivals with one stamp moves by spread_ms * k / n, ms, >= 0",
    )
    start_s: F64 = Field(
        default=0.0, ge=0, description="Earlier arrivals are left out, seconds, >= 0; new time 0"
    )
    duration_s: F64 | None = Field(
        default=None,
        gt=0,
        description="Arrivals this long after start_s or later are left out, seconds, > 0",
    )
    rate_scale: F64 = Field(
        default=1.0,
        gt=0,
        description="Multiplies the rate by leaving out or copying requests at random, > 0",
    )
    rate_seed: U64 = Field(default=0, description="Seed of the draws of rate_scale")
    max_input_tokens: Count | None = Field(
        default=None, ge=1, description="Longest prompt, tokens, >= 1; null = no limit"
    )
    max_total_tokens: Count | None = Field(
        default=None,
        ge=2,
        description="Longest prompt and output together, tokens, >= 2; null = no limit",
    )
    overlong: Literal["drop", "clip"] = Field(
        default="drop", description="Handling of longer requests: left out, or cut to length"
    )

    @property
    def is_closed_loop(self) -> bool:
        """Whether the next request or session starts when one ends, not at its authored time."""
        return self.replay_concurrency is not None

    @property
    def is_changed(self) -> bool:
        """Whether requests are changed after reading or generation, apart from the speed-up."""
        return any(map(self._differs_from_default, (*TIME_CHANGES, *LENGTH_LIMITS)))

    def _differs_from_default(self, field: str) -> bool:
        return bool(getattr(self, field) != type(self).model_fields[field].default)

    @field_validator("trace_files")
    @classmethod
    def _resolve_paths(cls, paths: tuple[Path, ...], info: ValidationInfo) -> tuple[Path, ...]:
        folder: Path | None = (info.context or {}).get("folder")
        expanded = (path.expanduser() for path in paths)
        if folder is None:
            return tuple(expanded)
        return tuple(Path(os.path.abspath(folder / path)) for path in expanded)

    @field_validator("trace_format", mode="before")
    @classmethod
    def _resolve_format_alias(cls, trace_format: Any) -> Any:
        if isinstance(trace_format, str):
            return TRACE_FORMAT_ALIASES.get(trace_format, trace_format)
        return trace_format

    @field_validator("generator", mode="before")
    @classmethod
    def _fill_in_default_kind(cls, generator: Any) -> Any:
        if isinstance(generator, Mapping) and "kind" not in generator:
            return {"kind": default_kind(generator), **generator}
        return generator

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        count = len(self.trace_files)
        if count == 0 and "trace_files" in self.model_fields_set:
            raise MisfitError(
                "trace_files",
                "trace replay requires at least one trace file, got none; leave trace_files out "
                "when the requests come from elsewhere",
            )
        if count > 0 and self.generator is not None:
            raise ValueError("trace_files and generator are mutually exclusive, got both")
        if count > 1 and self.trace_format not in MULTI_FILE_FORMATS:
            raise MisfitError(
                "trace_files",
                f"trace_format='{self.trace_format}' requires exactly one trace file, got {count}",
            )
        return self

    @model_validator(mode="after")
    def _check_pace(self) -> Self:
        if isinstance(self.generator, SyntheticSpec):
            paces = {
                "replay_concurrency": self.replay_concurrency,
                "request_rate": self.generator.request_rate,
                "arrival_interval_ms": self.generator.arrival_interval_ms,
            }
            given = [f"{name} {value:g}" for name, value in paces.items() if value is not None]
            if len(given) != 1:
                raise ValueError(
                    "synthetic replay requires exactly one of replay_concurrency, request_rate, or "
                    f"arrival_interval_ms, got {' and '.join(given) or 'none'}"
                )
        ratio = self.arrival_speedup_ratio
        if not self.is_closed_loop and not (math.isfinite(ratio) and ratio > 0):
            raise MisfitError(
                "arrival_speedup_ratio",
                f"arrival_speedup_ratio must be a finite positive number, got {number_text(ratio)}",
            )
        return self

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if self.time_unit is not None and self.trace_format not in TIME_UNIT_OF_FORMAT:
            raise MisfitError(
                "time_unit",
                f"time_unit is for {', '.join(TIME_UNIT_OF_FORMAT)}, got {self.time_unit} for "
                f"trace_format='{self.trace_format}', whose files say the unit themselves",
            )
        if self.is_closed_loop:
            for name in TIME_CHANGES:
                if self._differs_from_default(name):
                    raise MisfitError(
                        name,
                        f"{name} is for requests that arrive as authored, and replay_concurrency "
                        f"{self.replay_concurrency} was given: leave one out",
                    )
        return self

    @model_serializer(mode="wrap")
    def _omit_no_files(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit an empty ``trace_files``, which would be rejected when read back."""
        fields: dict[str, Any] = handler(self)
        if not self.trace_files:
            fields.pop("trace_files", None)
        return fields

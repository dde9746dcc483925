"""Parameters of the reference's synthetic workload (workloads.md §6)."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from aisim_gym.number_text import number_text
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import F64, Count, Real, Refusal

MAX_LENGTH = 2**31 - 1
"""Most tokens of a prompt or an output."""


class SyntheticSpec(SpecModel):
    """Requests or sessions of equal lengths, as the reference's synthetic entry point makes them.

    They form a plain list unless there is more than one turn, a shared prefix, a prefix group or a
    think time; then ``request_count`` counts sessions.
    """

    kind: Literal["synthetic"] = Field(default="synthetic", description="Which generator")
    input_tokens: Annotated[Count, Refusal("input_tokens must be at least 1")] = Field(
        ge=1, le=MAX_LENGTH, description="Prompt of every request, tokens, >= 1"
    )
    output_tokens: Annotated[Count, Refusal("output_tokens must be at least 1")] = Field(
        ge=1, le=MAX_LENGTH, description="Output of every request, tokens, >= 1"
    )
    request_count: Annotated[Count, Refusal("request_count must be at least 1")] = Field(
        ge=1, description="Number of requests or sessions, >= 1"
    )
    request_rate: (
        Annotated[F64, Refusal("request_rate must be a finite positive number")] | None
    ) = Field(default=None, gt=0, description="Poisson arrivals, 1/s, > 0; or …")
    arrival_interval_ms: (
        Annotated[F64, Refusal("arrival_interval_ms must be a finite non-negative number")] | None
    ) = Field(default=None, ge=0, description="Constant gap, ms, >= 0; or replay_concurrency")
    arrival_seed: Count = Field(default=42, description="Seed of Poisson arrivals")
    turns_per_session: Count = Field(default=1, description="Turns of each session, >= 1")
    shared_prefix_ratio: Real = Field(
        default=0.0, description="Part of a prompt that is the prefix of a group, 0..1"
    )
    num_prefix_groups: Count = Field(
        default=0, le=2**32 - 1, description="Number of groups; each session is in one of them"
    )
    inter_turn_delay_ms: Real = Field(default=0.0, description="Think time, ms, >= 0")

    @property
    def has_sessions(self) -> bool:
        """Whether sessions are made, not a plain list."""
        return (
            self.turns_per_session > 1
            or self.shared_prefix_ratio > 0.0
            or self.num_prefix_groups > 0
            or self.inter_turn_delay_ms > 0.0
        )

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        interval_ms = self.arrival_interval_ms
        if interval_ms and not math.isfinite(1000.0 / interval_ms):
            raise MisfitError(
                "arrival_interval_ms",
                "qps must be a finite positive number, got inf (1000 / arrival_interval_ms "
                f"{number_text(interval_ms)})",
            )
        return self

    @model_validator(mode="after")
    def _check_sessions(self) -> Self:
        if not self.has_sessions:
            return self  # the reference does not look at the rest
        delay_ms, ratio = self.inter_turn_delay_ms, self.shared_prefix_ratio
        if self.turns_per_session < 1:
            raise MisfitError(
                "turns_per_session",
                f"turns_per_session must be at least 1, got {self.turns_per_session}",
            )
        if not 0.0 <= delay_ms < math.inf:
            raise MisfitError(
                "inter_turn_delay_ms",
                "inter_turn_delay_ms must be a finite non-negative number, got "
                f"{number_text(delay_ms)}",
            )
        if not 0.0 <= ratio <= 1.0:
            raise MisfitError(
                "shared_prefix_ratio",
                f"shared_prefix_ratio must be between 0.0 and 1.0, got {number_text(ratio)}",
            )
        return self

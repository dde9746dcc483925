"""The fleet: pools of workers and how they are launched (replay-runtime.md §6, §19)."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from aisim_gym.spec.launch import LaunchSpec
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.profiled_launch import with_role
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import Count, Refusal, RustType
from aisim_gym.spec.stages import (
    DetokenizationSpec,
    EncoderSpec,
    TokenizationSpec,
    TransferLinks,
)

MAX_WORKERS = 1_000_000
"""Maximum workers of a pool, initial or as a target: far above any real fleet, and it fits in
memory."""


def _empty_pool(pool: str) -> Refusal:
    return Refusal(f"invalid replay spec: {pool} pool must start with at least one worker")


class AggregatedFleet(SpecModel):
    """One pool whose workers prefill and decode."""

    kind: Literal["agg"] = Field(default="agg", description="Topology")
    num_workers: Annotated[Count, _empty_pool("aggregated")] = Field(
        default=1, gt=0, le=MAX_WORKERS, description="Workers at the start, 1..1000000"
    )
    engine: LaunchSpec = Field(
        default=LaunchSpec(), description="Launch config; engine.worker_type is aggregated"
    )

    @property
    def block_size(self) -> int:
        """Tokens per KV block, the unit of the prefix cache."""
        return self.engine.engine.block_size

    @model_validator(mode="after")
    def _check_worker_type(self) -> Self:
        worker_type = self.engine.engine.worker_type
        if worker_type != "aggregated":
            raise MisfitError(
                "engine.engine.worker_type",
                f"offline replay only supports aggregated workers, got {worker_type.capitalize()}; "
                "leave engine.worker_type out, or use a fleet of kind `disagg`",
            )
        return self


class DisaggregatedFleet(SpecModel):
    """A pool of prefill workers that hand their requests to a pool of decode workers."""

    kind: Literal["disagg"] = Field(default="disagg", description="Topology")
    num_prefill_workers: Annotated[Count, _empty_pool("prefill")] = Field(
        default=1, gt=0, le=MAX_WORKERS, description="Prefill workers at the start, 1..1000000"
    )
    num_decode_workers: Annotated[Count, _empty_pool("decode")] = Field(
        default=1, gt=0, le=MAX_WORKERS, description="Decode workers at the start, 1..1000000"
    )
    prefill: LaunchSpec = Field(description="Launch config; engine.worker_type must be prefill")
    decode: LaunchSpec = Field(description="Launch config; engine.worker_type must be decode")
    encoder: EncoderSpec | None = Field(
        default=None, description="Encoders in front of the fleet; null = requests arrive encoded"
    )
    tokenization: TokenizationSpec | None = Field(
        default=None, description="Tokenizers of prefill workers; null = tokenization takes no time"
    )
    detokenization: DetokenizationSpec | None = Field(
        default=None, description="Detokenizers of decode workers; null = no detokenization time"
    )
    transfer_links: TransferLinks = Field(
        default="fixed",
        description="fixed = KV transfers are independent; shared = they share the links "
        "of their ranks max-min fairly",
    )

    @property
    def block_size(self) -> int:
        """Tokens per KV block, the unit of the prefix cache; the same for both roles."""
        return self.prefill.engine.block_size

    @model_validator(mode="before")
    @classmethod
    def _fill_in_roles(cls, data: Any) -> Any:
        """Set the worker type of each role, so that one profile serves both."""
        if not isinstance(data, Mapping):
            return data
        roles = ("prefill", "decode")
        return {**data, **{role: with_role(data[role], role) for role in roles if role in data}}

    @model_validator(mode="after")
    def _check_roles_fit(self) -> Self:
        prefill, decode = self.prefill.engine, self.decode.engine
        for role, engine in (("prefill", prefill), ("decode", decode)):
            if engine.worker_type != role:
                raise MisfitError(
                    f"{role}.engine.worker_type",
                    f"offline disaggregated replay requires {role}_engine_args.worker_type={role}, "
                    f"got {engine.worker_type.capitalize()}; "
                    f'set {role}.engine.worker_type = "{role}"',
                )
        if prefill.block_size != decode.block_size:
            raise ValueError(
                "offline disaggregated replay requires matching prefill/decode block_size, "
                f"got {prefill.block_size} and {decode.block_size}"
            )
        if prefill.backend != decode.backend:
            raise ValueError(
                "replay invariant violated: offline disaggregated replay requires matching backend "
                f"engine types, got {prefill.backend} and {decode.backend}"
            )
        return self


FleetSpec = Annotated[
    AggregatedFleet | DisaggregatedFleet,
    Field(discriminator="kind"),
    RustType("a table with `kind`", "`agg` or `disagg`"),
]
"""A fleet of either topology, discriminated by ``kind``."""

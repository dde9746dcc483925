"""Optional stages of a disaggregated fleet and the network sharing of its KV transfers.

Rules: replay-runtime.md §11.3, §17. All are off by default: a fleet without these settings behaves
    like the reference's Python entry points.
"""

import math
from typing import Annotated, Literal, Self

from annotated_types import Ge
from pydantic import Field, model_validator

from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import F64, RustType, Usize

MAX_STAGE_WORKERS = 1024
"""Maximum tokenizers or detokenizers of one worker."""

MAX_ENCODER_INSTANCES = 1_000_000

TransferLinks = Literal["fixed", "shared"]
"""Whether KV transfers have fixed durations, or share the links of their ranks max-min fairly."""


class TokenizationSpec(SpecModel):
    """Tokenizers of every prefill worker; a placed prompt passes through one before submission.

    Prompts take the first free tokenizer, first come, first served, and occupy it for ``request_ms
    + input tokens * token_ms``.
    """

    workers: Usize = Field(
        default=1, ge=1, le=MAX_STAGE_WORKERS, description="Tokenizers per worker, 1..1024"
    )
    request_ms: F64 = Field(default=0.0, ge=0, description="Time per prompt, ms, >= 0")
    token_ms: F64 = Field(default=0.0, ge=0, description="Time per prompt token, ms, >= 0")


class DetokenizationSpec(SpecModel):
    """Detokenizers of every decode worker; each output passes through one on its way to the client.

    The tokens that a request emits in one pass are one output. Outputs take the first free
    detokenizer, first come, first served, and occupy it for ``request_ms + its tokens * token_ms``.
    """

    workers: Usize = Field(
        default=1, ge=1, le=MAX_STAGE_WORKERS, description="Detokenizers per worker, 1..1024"
    )
    request_ms: F64 = Field(
        default=0.0, ge=0, description="Time per request and pass it emits in, ms, >= 0"
    )
    token_ms: F64 = Field(default=0.0, ge=0, description="Time per output token, ms, >= 0")


class EncoderSpec(SpecModel):
    """Encoders in front of the fleet; every request passes through one before placement."""

    num_instances: Usize = Field(
        default=1, ge=1, le=MAX_ENCODER_INSTANCES, description="Encoders, 1..1000000"
    )
    gpus_per_instance: Usize = Field(default=1, ge=1, description="GPUs of an encoder, >= 1")
    max_batch: Usize = Field(default=1, ge=1, description="Maximum requests of a batch, >= 1")
    preprocess_ms: F64 = Field(
        default=0.0, ge=0, description="Time per request of a batch before its pass, ms, >= 0"
    )
    forward_ms: Annotated[tuple[Annotated[F64, Ge(0)], ...], RustType("a sequence of numbers")] = (
        Field(description="Duration of a pass by batch size 1, 2, ... max_batch, ms, >= 0")
    )
    transfer_bytes: Usize = Field(description="Embeddings of a request, bytes, >= 0")
    bandwidth_gb_s: F64 = Field(
        gt=0, description="Bandwidth to the fleet, decimal GB/s per request, > 0"
    )

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if len(self.forward_ms) != self.max_batch:
            raise MisfitError(
                "forward_ms",
                f"forward_ms must have max_batch = {self.max_batch} entries, "
                f"got {len(self.forward_ms)}",
            )
        if not math.isfinite(self.transfer_ms):
            raise MisfitError(
                "bandwidth_gb_s",
                f"bandwidth_gb_s is too small to transfer {self.transfer_bytes} bytes, "
                f"got {self.bandwidth_gb_s!r}",
            )
        return self

    @property
    def num_gpus(self) -> int:
        """GPUs of all encoders, which are paid for during the whole run."""
        return self.num_instances * self.gpus_per_instance

    @property
    def transfer_ms(self) -> float:
        """Time from the end of a batch until its embeddings reach the fleet."""
        bytes_per_s = self.bandwidth_gb_s * 1e9
        return self.transfer_bytes / bytes_per_s * 1000.0 if bytes_per_s > 0 else math.inf

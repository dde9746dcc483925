"""The ``engine`` object: scheduler, KV cache and timing of one rank.

Names, defaults and checks are those of the reference (engine-vllm-trtllm.md §1 and
engine-sglang.md §1). Fields are declared in the order of the reference's messages.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AliasChoices,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from aisim_gym.number_text import number_text
from aisim_gym.spec.accept_rates import normalize_accept_rates
from aisim_gym.spec.model import ConfigStruct
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import F64, U64, Flag, Text, Usize
from aisim_gym.spec.timing import PolynomialTiming, TimingModel
from aisim_gym.spec.wording import Wording

Backend = Literal["vllm", "sglang", "trtllm"]
WorkerType = Literal["aggregated", "prefill", "decode"]

DEFAULT_BLOCK_SIZE: Mapping[str, int] = {"vllm": 64, "sglang": 1, "trtllm": 32}

Unsupported = Annotated[None, Field(exclude=True, description="Not supported; only null")]


class SglangSpec(ConfigStruct):
    """Settings of the SGLang scheduler; other backends do not check them."""

    wording: ClassVar[Wording] = Wording("struct SglangConfig")

    schedule_policy: Literal["fifo", "lpm"] = Field(
        default="fifo", description="Order of the waiting queue; lpm = longest prefix match first"
    )
    max_prefill_tokens: Usize = Field(
        default=16384, description="Prefill budget of a pass, page-rounded tokens, > 0"
    )
    chunked_prefill_size: Usize = Field(
        default=8192, description="Chunk budget of a pass, tokens, > 0, a multiple of block_size"
    )
    clip_max_new_tokens: Usize = Field(
        default=4096, description="Cap on the output tokens that admission reserves for"
    )
    schedule_conservativeness: F64 = Field(
        default=1.0, description="Scales the output reservation ratio, >= 0"
    )


class TrtllmSpec(ConfigStruct):
    """Settings of the TRT-LLM scheduler."""

    wording: ClassVar[Wording] = Wording("struct TrtllmConfig")

    capacity_scheduler_policy: Literal["guaranteed_no_evict"] = Field(
        default="guaranteed_no_evict", description="Admission reserves the whole generation"
    )


class EngineSpec(ConfigStruct):
    """One rank: backend, KV pool, batching limits, speculative decoding, timing."""

    wording: ClassVar[Wording] = Wording("struct EngineConfigWire")

    backend: Backend = Field(default="vllm", description="Engine whose scheduling rules apply")
    num_gpu_blocks: Usize = Field(default=16384, gt=0, description="KV pool size, blocks, > 0")
    block_size: Usize = Field(
        default=64,
        gt=0,
        description="Tokens per KV block; default 64 (vllm), 32 (trtllm), 1 (sglang); "
        ">= 2 except sglang",
    )
    max_model_len: Usize | None = Field(
        default=None, gt=0, description="Limit on prompt + output, tokens; null = none"
    )
    max_num_seqs: Usize | None = Field(
        default=256, gt=0, description="Limit on running requests of a rank; null = none"
    )
    max_num_batched_tokens: Usize | None = Field(
        default=8192, gt=0, description="Token budget of one pass; null = none"
    )
    prefill_schedule_interval: Usize = Field(
        default=1, gt=0, description="Prefill cadence with dp_size > 1, passes (vllm only)"
    )
    prefill_decode_interval: Usize = Field(
        default=0, description="Decode passes between prefill passes (sglang only)"
    )
    enable_prefix_caching: Flag = Field(default=True, description="Reuse cached prompt blocks")
    enable_chunked_prefill: Flag = Field(
        default=True, description="Split prompts over passes (sglang: always true)"
    )
    speedup_ratio: F64 = Field(
        default=1.0, ge=0, description="Divides pass durations, >= 0; 0 = not scaled"
    )
    decode_speedup_ratio: F64 = Field(
        default=1.0, ge=0, description="Divides decode durations as well, >= 0; 0 = not scaled"
    )
    aic_nextn: Usize | None = Field(
        default=None, ge=1, le=5, description="Draft tokens per decode, 1..5; null = no drafting"
    )
    aic_nextn_accept_rates: Text | None = Field(
        default=None,
        validate_default=True,
        description="Comma-separated list of aic_nextn conditional acceptance rates in [0, 1]; "
        "filled up with zeros; default 0.85,0.3,0,0,0",
    )
    aic_mtp_seed: U64 = Field(default=42, description="Seed of the acceptance draws")
    worker_type: WorkerType = Field(default="aggregated", description="Role in the fleet")
    preemption_mode: Literal["lifo", "fifo"] = Field(
        default="lifo", description="Request that is preempted first: newest or oldest (vllm)"
    )
    emit_kv_events: Flag = Field(default=False, description="Capture KV events")
    emit_kv_token_ids: Flag = Field(
        default=False, description="Put token ids into KV events; needs emit_kv_events"
    )
    kv_transfer_bytes_per_token: Usize | None = Field(
        default=None,
        gt=0,
        validation_alias=AliasChoices("kv_transfer_bytes_per_token", "kv_bytes_per_token"),
        description="KV bytes per token sent from prefill to decode, > 0 (prefill role)",
    )
    kv_cache_bytes_per_token: Usize | None = Field(
        default=None, gt=0, description="KV bytes per token in memory, > 0; not used yet"
    )
    kv_cache_groups: Unsupported = None
    kv_cache_capacity_bytes: Unsupported = None
    native_host_offload: Unsupported = None
    state_cache: Unsupported = None
    prefix_match_unit: Unsupported = None
    g3_offload: Unsupported = None
    kv_transfer_bandwidth: F64 | None = Field(
        default=None, ge=0, description="Transfer bandwidth, decimal GB/s, >= 0 (prefill role)"
    )
    kv_transfer_timing_mode: Literal["full_prompt", "destination_missing"] = Field(
        default="full_prompt", description="Tokens that count for the transfer time (prefill role)"
    )
    timing_model: TimingModel = Field(
        default=PolynomialTiming(), description="How long a pass takes"
    )
    sglang: SglangSpec = Field(default=SglangSpec(), description="Settings of backend sglang")
    trtllm: TrtllmSpec = Field(default=TrtllmSpec(), description="Settings of backend trtllm")

    @model_validator(mode="before")
    @classmethod
    def _choose_block_size(cls, data: Any) -> Any:
        """Fill in the backend's default block size if it is absent or null."""
        if not isinstance(data, Mapping) or data.get("block_size") is not None:
            return data
        backend = str(data.get("backend", "vllm"))  # an unknown backend is rejected later
        return {**data, "block_size": DEFAULT_BLOCK_SIZE.get(backend, 64)}

    @field_validator("aic_nextn_accept_rates")
    @classmethod
    def _normalize_accept_rates(cls, text: str | None, info: ValidationInfo) -> str | None:
        if "aic_nextn" not in info.data:  # aic_nextn itself is invalid
            return text
        count = info.data["aic_nextn"]
        if count is not None:
            return normalize_accept_rates(text or "", count)
        if text is not None:
            raise ValueError(
                f'aic_nextn_accept_rates requires aic_nextn, got rates "{text}" without it'
            )
        return None

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.backend != "sglang":
            self._check_block_backend()
        else:
            self._check_sglang_backend()
        if self.prefill_schedule_interval != 1 and self.backend != "vllm":
            raise MisfitError(
                "prefill_schedule_interval",
                "prefill_schedule_interval is supported only for backend=vllm; use "
                "prefill_decode_interval for backend=sglang, "
                f"got {self.prefill_schedule_interval} with backend={self.backend}",
            )
        if self.aic_nextn is not None and self.decode_speedup_ratio != 1.0:
            raise MisfitError(
                "aic_nextn",
                "aic_nextn requires decode_speedup_ratio=1.0 because MTP output acceleration is "
                f"modeled by burst sampling, got {number_text(self.decode_speedup_ratio)}",
            )
        if self.emit_kv_token_ids and not self.emit_kv_events:
            raise MisfitError(
                "emit_kv_token_ids",
                "emit_kv_token_ids requires emit_kv_events, got emit_kv_events=false",
            )
        return self

    def _check_block_backend(self) -> None:
        if self.block_size < 2:
            raise MisfitError(
                "block_size", f"vLLM/TRT-LLM block_size must be at least two, got {self.block_size}"
            )
        if self.prefill_decode_interval != 0:
            raise MisfitError(
                "prefill_decode_interval",
                "prefill_decode_interval is supported only for backend=sglang, "
                f"got {self.prefill_decode_interval} with backend={self.backend}",
            )

    def _check_sglang_backend(self) -> None:
        if not self.enable_chunked_prefill:
            raise MisfitError(
                "enable_chunked_prefill",
                "enable_chunked_prefill=false is not supported for backend=sglang",
            )
        for name in ("max_prefill_tokens", "chunked_prefill_size"):
            if getattr(self.sglang, name) == 0:
                raise MisfitError(f"sglang.{name}", f"sglang.{name} must be positive, got 0")
        if self.sglang.schedule_conservativeness < 0:
            raise MisfitError(
                "sglang.schedule_conservativeness",
                "sglang.schedule_conservativeness must be finite and non-negative, "
                f"got {number_text(self.sglang.schedule_conservativeness)}",
            )
        if self.sglang.chunked_prefill_size % self.block_size:
            raise MisfitError(
                "sglang.chunked_prefill_size",
                "sglang.chunked_prefill_size must be divisible by block_size, "
                f"got {self.sglang.chunked_prefill_size} and {self.block_size}",
            )

    @model_serializer(mode="wrap")
    def _omit_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit ``kv_cache_bytes_per_token`` when it is null, as the reference does."""
        fields: dict[str, Any] = handler(self)
        if self.kv_cache_bytes_per_token is None:
            fields.pop("kv_cache_bytes_per_token", None)
        return fields

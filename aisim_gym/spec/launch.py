"""The launch config of a worker: its engine, its ranks, its start-up time.

The reference's planners and replays take it as ``*_engine_args`` (engine-vllm-trtllm.md §1).
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from aisim_gym.errors import SpecError
from aisim_gym.spec.engine import EngineSpec
from aisim_gym.spec.json_text import parse_json
from aisim_gym.spec.model import ConfigStruct
from aisim_gym.spec.profiled_launch import fill_in_profile
from aisim_gym.spec.refusals import MisfitError
from aisim_gym.spec.scalars import F64, U16, U32, U64, Flag, Text, Usize
from aisim_gym.spec.wording import Wording

MAX_TENSOR_PARALLEL_SIZE = 2**32 - 1


class ReasoningSpec(ConfigStruct):
    """Thinking tokens of the live mock engine; the replay does not use them."""

    wording: ClassVar[Wording] = Wording("struct ReasoningConfig")

    start_thinking_token_id: U32 = Field(description="Token that begins thinking")
    end_thinking_token_id: U32 = Field(description="Token that ends thinking")
    thinking_ratio: F64 = Field(description="Share of the output that is thinking")


class DynamoSpec(ConfigStruct):
    """Options of the live runtime, kept but not used by the replay."""

    wording: ClassVar[Wording] = Wording("struct MockerRuntimeOptions")

    enable_local_indexer: Flag = Field(default=False, description="Keep a local KV index")
    bootstrap_port: U16 | None = Field(default=None, description="Port of the prefill bootstrap")
    handoff_session_timeout_ms: U64 = Field(
        default=300_000, gt=0, description="Timeout of a handoff, ms, > 0"
    )
    reasoning: ReasoningSpec | None = Field(default=None, description="Thinking tokens")
    response_replay_trace_path: Text | None = Field(
        default=None, description="File with recorded responses"
    )
    zmq_kv_events_port: U16 | None = Field(default=None, description="Port of KV events")
    zmq_replay_port: U16 | None = Field(default=None, description="Port of event replay")
    router_queue_policy: Literal["fcfs", "lcfs", "wspt"] | None = Field(
        default=None, description="Order of the router queue"
    )


class LaunchSpec(ConfigStruct):
    """How one worker of a role is launched."""

    wording: ClassVar[Wording] = Wording(
        "a table with `engine`",
        parse_prefix="invalid engine launch config",
        unlisted=frozenset({"dynamo"}),
    )

    engine: EngineSpec = Field(
        default=EngineSpec(), description="Config of every rank, or the name of an engine profile"
    )
    dp_size: U32 = Field(default=1, gt=0, description="Ranks per worker, > 0")
    tensor_parallel_size: Usize = Field(
        default=1, gt=0, description="GPUs per rank, > 0; does not change scheduling"
    )
    startup_time: F64 | None = Field(
        default=None, ge=0, description="Seconds until a new worker is active; null = at once"
    )
    num_gpu_blocks_is_explicit: Flag = Field(
        default=False, description="Whether num_gpu_blocks was given; default: whether it was"
    )
    gpu_memory_utilization: F64 | None = Field(
        default=None, ge=0, le=1, description="vLLM memory share, 0..1; not used by the replay"
    )
    mem_fraction_static: F64 | None = Field(
        default=None, ge=0, le=1, description="SGLang memory share, 0..1; not used by the replay"
    )
    free_gpu_memory_fraction: F64 | None = Field(
        default=None, ge=0, le=1, description="TRT-LLM memory share, 0..1; not used by the replay"
    )
    cuda_graph_reserved_bytes: U64 | None = Field(
        default=None, description="Memory of CUDA graphs, bytes; not used by the replay"
    )
    dynamo: DynamoSpec = Field(default=DynamoSpec(), description="Options of the live runtime")

    @model_validator(mode="before")
    @classmethod
    def _fill_in_profile(cls, data: Any, info: ValidationInfo) -> Any:
        """Replace an engine profile by its values, then record which fields were given."""
        data = fill_in_profile(data, (info.context or {}).get("folder"))
        if not isinstance(data, Mapping) or "num_gpu_blocks_is_explicit" in data:
            return data
        engine = data.get("engine")
        given = engine.model_fields_set if isinstance(engine, EngineSpec) else engine
        is_explicit = isinstance(given, Mapping | set) and "num_gpu_blocks" in given
        return {**data, "num_gpu_blocks_is_explicit": is_explicit}

    @model_validator(mode="after")
    def _check_chunk_per_rank(self) -> Self:
        chunk_tokens = self.engine.sglang.chunked_prefill_size
        if self.engine.backend == "sglang" and chunk_tokens < self.dp_size:
            raise MisfitError(
                "engine.sglang.chunked_prefill_size",
                f"SGLang attention DP size {self.dp_size} reduces "
                f"chunked_prefill_size={chunk_tokens} to zero",
            )
        return self

    @field_validator("tensor_parallel_size")
    @classmethod
    def _check_tensor_parallel_size(cls, size: int) -> int:
        if size > MAX_TENSOR_PARALLEL_SIZE:
            raise ValueError(
                f"tensor_parallel_size exceeds the engine contract, got {size}; "
                f"expected at most {MAX_TENSOR_PARALLEL_SIZE}"
            )
        return size

    @property
    def gpus_per_worker(self) -> int:
        """GPUs of a worker: GPUs per rank times ranks."""
        return self.tensor_parallel_size * self.dp_size

    def normalized(self) -> dict[str, Any]:
        """Return the config with all defaults, as the reference normalises it."""
        return self.model_dump(mode="json")


def parse_launch_config(
    config: Mapping[str, Any] | str | LaunchSpec, *, at: str = ""
) -> LaunchSpec:
    """Read a launch config.

    Args:
        config: A mapping, or a JSON object as text. A LaunchSpec is returned unchanged.
        at: Prefix of the paths in messages.

    Raises:
        SpecError: If it is not valid; the text contains the reference's message.
        TypeError: If it is neither a mapping nor a string.
    """
    if isinstance(config, LaunchSpec):
        return config
    if isinstance(config, str):
        config = parse_json(config, source=at)
        if not isinstance(config, Mapping):
            raise SpecError(f"{at}: " * bool(at) + "Mocker config must be an object")
    if not isinstance(config, Mapping):
        raise TypeError(
            f"{at}: "
            * bool(at)
            + f"{type(config).__name__!r} object cannot be converted to 'Mapping'; "
            "expected a mapping or a JSON string"
        )
    return LaunchSpec.from_data(config, at=at)

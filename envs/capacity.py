"""Check before an episode that every request of its workload can run.

A request that can never run would end a replay with an error (engine-vllm-trtllm.md §13,
engine-sglang.md §8), or it would be rejected or cut short.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import WorkloadError
from aisim_gym.spec import AggregatedFleet, EngineSpec, FleetSpec, LaunchSpec

Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class Lengths:
    """Lengths of requests, or only the longest possible.

    Attributes:
        input_tokens: Shape (requests,), prompts.
        output_tokens: Shape (requests,), outputs.
        source: Origin of the requests, for messages.
        remedy: Hint for shorter requests, if these are the longest that a generator can produce.
    """

    input_tokens: Tokens
    output_tokens: Tokens
    source: str
    remedy: str | None = None


class _Limit(NamedTuple):
    """A limit that requests may exceed.

    Attributes:
        name: Name of the setting.
        tokens: Maximum tokens.
        needed: Shape (requests,), tokens needed by each request.
        what: Text after "needs n tokens".
    """

    name: str
    tokens: int
    needed: Tokens
    what: str


def check_capacity(fleet: FleetSpec, lengths: Lengths) -> None:
    """Raise if an otherwise idle worker cannot run a request to its last token.

    These are exactly the requests that, alone on new workers, end a replay with an error, are
    rejected, or get fewer tokens than requested. One rule is stricter: it rejects a prompt over the
    token budget of a vLLM decode worker without chunked prefill, which runs only until it is
    preempted. Deadlocks between several requests are not checked.

    Raises:
        WorkloadError: Names the first such request, their number and the limit; for a generator,
            the longest request and a remedy.
    """
    if isinstance(fleet, AggregatedFleet):
        _check_role("an aggregated worker", fleet.engine, lengths, lengths.output_tokens)
        return
    one_token = np.minimum(lengths.output_tokens, 1)
    _check_role("a prefill worker", fleet.prefill, lengths, one_token)
    _check_role("a decode worker", fleet.decode, lengths, lengths.output_tokens)


def _check_role(worker: str, launch: LaunchSpec, lengths: Lengths, output_tokens: Tokens) -> None:
    limits = _sglang_limits if launch.engine.backend == "sglang" else _block_limits
    for limit in limits(launch, lengths.input_tokens, output_tokens):
        too_long = np.flatnonzero(limit.needed > limit.tokens)
        if len(too_long) > 0:
            raise WorkloadError(_message(worker, limit, lengths, too_long))


def _block_limits(launch: LaunchSpec, prompts: Tokens, outputs: Tokens) -> Iterator[_Limit]:
    """Yield the limits of vLLM and TensorRT-LLM (engine-vllm-trtllm.md §4, §5.2, §7, §10).

    Every rank has a whole KV pool, regardless of the number of ranks per worker.
    """
    engine = launch.engine
    kept = outputs
    if engine.backend == "vllm" and engine.aic_nextn is None:
        kept = np.maximum(outputs - 1, 0)  # the last token's KV is never stored
    yield _pool_limit(engine, prompts + kept)
    yield from _context_limits(engine, prompts, outputs)
    computes_prompts = engine.worker_type != "decode" or engine.backend == "vllm"
    if (
        computes_prompts
        and not engine.enable_chunked_prefill
        and engine.max_num_batched_tokens is not None
    ):
        name = "max_num_batched_tokens without chunked prefill"
        yield _Limit(name, engine.max_num_batched_tokens, prompts, "in one pass")


def _sglang_limits(launch: LaunchSpec, prompts: Tokens, outputs: Tokens) -> Iterator[_Limit]:
    """Yield the limits of SGLang (engine-sglang.md §5 to §8).

    Admission rounds the prompt up to pages, adds the clipped output and one more token. A decode
    worker does not check admission: its requests arrive with the KV of their prompt.
    """
    engine, settings = launch.engine, launch.engine.sglang
    size = engine.block_size
    grown = np.where(outputs > 1, outputs, 0)  # a single output token stores no KV
    if engine.worker_type == "decode":
        yield _pool_limit(engine, prompts + outputs)
    else:
        pages = -(-prompts // size) * size
        reserved = np.minimum(outputs, settings.clip_max_new_tokens)
        yield _pool_limit(engine, np.maximum(pages + reserved + 1, prompts + grown))
        chunk = settings.chunked_prefill_size // launch.dp_size // size * size
        name = "sglang.chunked_prefill_size per rank, in whole blocks,"
        yield _Limit(name, chunk, np.full_like(prompts, size), "in one pass")
        first = np.minimum(pages, chunk)
        yield _Limit("sglang.max_prefill_tokens", settings.max_prefill_tokens, first, "in one pass")
    yield from _context_limits(engine, prompts, outputs)


def _pool_limit(engine: EngineSpec, needed: Tokens) -> _Limit:
    pool_tokens = engine.num_gpu_blocks * engine.block_size
    return _Limit("num_gpu_blocks * block_size", pool_tokens, needed, "of KV")


def _context_limits(engine: EngineSpec, prompts: Tokens, outputs: Tokens) -> Iterator[_Limit]:
    if engine.max_model_len is not None:
        # A prompt that fills the limit is rejected, even without output.
        total = prompts + np.maximum(outputs, 1)
        yield _Limit("max_model_len", engine.max_model_len, total, "of context")


def _message(worker: str, limit: _Limit, lengths: Lengths, too_long: NDArray[np.intp]) -> str:
    first = int(too_long[0])
    size = f"{lengths.input_tokens[first]} input and {lengths.output_tokens[first]} output tokens"
    reason = f"it needs {limit.needed[first]} tokens {limit.what}, {limit.name} is {limit.tokens}"
    if lengths.remedy is not None:
        return (
            f"{lengths.source}: the longest request it can produce, {size}, can never run on "
            f"{worker}: {reason}; {lengths.remedy}, or raise that limit of the engine"
        )
    return (
        f"{lengths.source}: {len(too_long)} request(s) can never run on {worker}, the first is "
        f"request {first} with {size}: {reason}"
    )

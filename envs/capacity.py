"""Whether every request of a workload can run, found out before an episode and not in the middle.

A request that can never run would end a replay with an error (engine-vllm-trtllm.md §13).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import WorkloadError
from aisim_gym.spec import AggregatedFleet, FleetSpec, LaunchSpec


@dataclass(frozen=True)
class Lengths:
    """Lengths of requests, or just the longest there can be.

    Attributes:
        input_tokens: Shape (requests,), prompts.
        output_tokens: Shape (requests,), outputs.
        source: Where they come from, for messages.
    """

    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    source: str


def check_capacity(fleet: FleetSpec, lengths: Lengths) -> None:
    """Refuse requests that no worker can ever run.

    Raises:
        WorkloadError: Names the first such request, how many there are, and the limit.
    """
    if isinstance(fleet, AggregatedFleet):
        _check_role("an aggregated worker", fleet.engine, lengths, lengths.output_tokens)
        return
    one_token = np.minimum(lengths.output_tokens, 1)
    _check_role("a prefill worker", fleet.prefill, lengths, one_token)
    _check_role("a decode worker", fleet.decode, lengths, lengths.output_tokens)


def _check_role(
    worker: str, launch: LaunchSpec, lengths: Lengths, output_tokens: NDArray[np.int64]
) -> None:
    engine = launch.engine
    prompts = lengths.input_tokens
    pool_tokens = engine.num_gpu_blocks * engine.block_size
    # The last token's KV is never stored.
    stored = prompts + np.maximum(output_tokens - 1, 0)
    _refuse(worker, "num_gpu_blocks * block_size", pool_tokens, stored, lengths)
    if engine.max_model_len is not None:
        # A prompt that fills the limit is rejected, even without output.
        total = prompts + np.maximum(output_tokens, 1)
        _refuse(worker, "max_model_len", engine.max_model_len, total, lengths)
    if not engine.enable_chunked_prefill and engine.max_num_batched_tokens is not None:
        limit = "max_num_batched_tokens without chunked prefill"
        _refuse(worker, limit, engine.max_num_batched_tokens, prompts, lengths)


def _refuse(
    worker: str, limit_name: str, limit: int, tokens: NDArray[np.int64], lengths: Lengths
) -> None:
    too_long = np.flatnonzero(tokens > limit)
    if len(too_long) > 0:
        first = int(too_long[0])
        raise WorkloadError(
            f"{lengths.source}: {len(too_long)} request(s) can never run on {worker}, the "
            f"first is request {first} with {lengths.input_tokens[first]} input and "
            f"{lengths.output_tokens[first]} output tokens: {limit_name} is {limit}"
        )

"""Workers, passes and prompts of the examples of block engines (engine-vllm-trtllm.md §15)."""

from typing import Any

from support.fleets import small_fleet
from support.pass_log import Row, Span

from aisim_gym.spec import ReplaySpec


def fixed_worker(dp_size: int = 1, **engine: Any) -> ReplaySpec:
    """A worker with 16 blocks of 4 tokens; a pass takes 10 ms to prefill, 4 ms to decode."""
    engine = {"num_gpu_blocks": 16, **engine}
    return small_fleet(workers=1, decode_ms=4.0, dp_size=dp_size, engine=engine)


def decodes(first_ms: float, last_ms: float, kv: int, *queued: float) -> list[Span]:
    """Return passes of 4 ms that decode one request whose KV grows from ``kv``."""
    spans: list[Span] = []
    start = first_ms
    while start < last_ms:
        spans.append((start, start + 4.0, [0, 0, 0, 0, 1, kv, 0, *queued]))
        start, kv = start + 4.0, kv + 1
    return spans


def times(*ranges: tuple[float, float]) -> list[float]:
    """Return token times 4 ms apart, from first to last of each range."""
    return [
        first + 4.0 * step
        for first, last in ranges
        for step in range(round((last - first) / 4.0) + 1)
    ]


def long_prompt(input_tokens: int, output_tokens: int) -> Row:
    """Return a request at time 0 that shares nothing."""
    return (0.0, input_tokens, output_tokens, range(100, 100 + -(-input_tokens // 4)))

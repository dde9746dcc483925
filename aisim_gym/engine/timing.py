"""Timing models: how long the prefill and the decode part of a pass take.

Rules: engine-vllm-trtllm.md §2.2, §2.3. Both parts of a pass are added, never overlapped.
"""

from aisim_gym.engine.duration import phase_ms
from aisim_gym.engine.tables import TIMING_FIXED, EngineRow
from aisim_gym.kernel import kernel


@kernel
def prefill_ms(engine: EngineRow, count: int, prompt_ends: int, prefix_tokens: int) -> float:
    """Return the prefill time of a pass in ms; 0 if the floored means leave no new token.

    Args:
        engine: Role of the rank.
        count: Requests with prompt tokens in the pass.
        prompt_ends: Sum of their prompt tokens known after the pass.
        prefix_tokens: Sum of their prompt tokens known before it.
    """
    if count == 0:
        return 0.0
    new_tokens = prompt_ends // count - prefix_tokens // count
    if new_tokens <= 0:
        return 0.0
    if engine.timing == TIMING_FIXED:
        raw_ms = engine.fixed_prefill_ms
    else:
        x = float(count * new_tokens)
        raw_ms = 4.209989e-07 * (x * x) + 1.518344e-02 * x + 1.650142e01
    return phase_ms(raw_ms, engine.prefill_speedup)


@kernel
def decode_ms(engine: EngineRow, count: int, active_tokens: int) -> float:
    """Return the decode time of a pass in ms; 0 if nothing decodes.

    Args:
        engine: Role of the rank.
        count: Requests a decode step is charged for.
        active_tokens: Sum of their lengths before the step.
    """
    if count == 0:
        return 0.0
    if engine.timing == TIMING_FIXED:
        raw_ms = engine.fixed_decode_ms
    else:
        used_frac = min(active_tokens / (engine.num_blocks * engine.block_size), 1.0)
        raw_ms = max(-25.74 * (used_frac * used_frac) + 54.01 * used_frac + 5.74, 1.0)
    return phase_ms(raw_ms, engine.decode_speedup)

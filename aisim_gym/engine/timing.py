"""Timing models for the prefill and decode time of a pass.

Rules: engine-vllm-trtllm.md §2.2, §2.3. The two times of a pass are added, never overlapped.
"""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.duration import phase_ms
from aisim_gym.engine.tables import TIMING_FIXED, TIMING_POLYNOMIAL, TIMING_TABLE, EngineRow
from aisim_gym.engine.timing_table import table_decode_ms, table_prefill_ms
from aisim_gym.kernel import kernel


@kernel
def cached_prefill_ms(
    engine: EngineRow,
    grids: NDArray[np.float64],
    times_ms: NDArray[np.float64],
    count: int,
    prompt_ends: int,
    prefix_tokens: int,
) -> float:
    """Return :func:`prefill_ms`, cached if it is a polynomial.

    Args:
        engine: Role of the rank.
        grids: Timing tables of all roles.
        times_ms: Cache indexed by the product that the polynomial depends on; see
            :func:`cached_decode_ms`.
        count: As for :func:`prefill_ms`, as are the next two.
        prompt_ends: Sum of their prompt tokens with KV after the pass.
        prefix_tokens: Sum of their prompt tokens with KV before the pass.
    """
    if count == 0:
        return 0.0
    at = count * (prompt_ends // count - prefix_tokens // count)
    is_kept = 0 < at < len(times_ms) and engine.timing == TIMING_POLYNOMIAL
    if is_kept and times_ms[at] != 0.0:
        return float(times_ms[at])
    ms = prefill_ms(engine, grids, count, prompt_ends, prefix_tokens)
    if is_kept:
        times_ms[at] = ms
    return ms


@kernel
def prefill_ms(
    engine: EngineRow,
    grids: NDArray[np.float64],
    count: int,
    prompt_ends: int,
    prefix_tokens: int,
) -> float:
    """Return the prefill time of a pass in ms; 0 if the floored means leave no new token.

    Args:
        engine: Role of the rank.
        grids: Timing tables of all roles.
        count: Requests with prompt tokens in the pass.
        prompt_ends: Sum of their prompt tokens with KV after the pass.
        prefix_tokens: Sum of their prompt tokens with KV before the pass.
    """
    if count == 0:
        return 0.0
    new_tokens = prompt_ends // count - prefix_tokens // count
    if new_tokens <= 0:
        return 0.0
    if engine.timing == TIMING_FIXED:
        raw_ms = engine.fixed_prefill_ms
    elif engine.timing == TIMING_TABLE:
        raw_ms = table_prefill_ms(engine, grids, count * new_tokens, prefix_tokens // count)
    else:
        x = float(count * new_tokens)
        raw_ms = 4.209989e-07 * (x * x) + 1.518344e-02 * x + 1.650142e01
    return phase_ms(raw_ms, engine.prefill_speedup)


@kernel
def most_table_tokens(engine: EngineRow) -> int:
    """Return the active tokens beyond which a decode time without table is constant."""
    return 0 if engine.timing == TIMING_FIXED else engine.num_blocks * engine.block_size


@kernel
def cached_decode_ms(
    engine: EngineRow,
    grids: NDArray[np.float64],
    times_ms: NDArray[np.float64],
    count: int,
    active_tokens: int,
) -> float:
    """Return :func:`decode_ms` for ``count`` >= 1, cached unless it is from a timing table.

    Args:
        engine: Role of the rank.
        grids: Timing tables of all roles.
        times_ms: Cache indexed by active tokens, up to its length; 0 marks missing values. Engines
            with equal timing share it. Threads may fill it concurrently, writing equal values.
        count: As for :func:`decode_ms`, as is the next.
        active_tokens: Sum of their lengths before the step.
    """
    at = min(active_tokens, most_table_tokens(engine))
    is_kept = at < len(times_ms) and engine.timing != TIMING_TABLE
    if is_kept and times_ms[at] != 0.0:
        return float(times_ms[at])
    ms = decode_ms(engine, grids, count, active_tokens)
    if is_kept:
        times_ms[at] = ms
    return ms


@kernel
def decode_ms(
    engine: EngineRow, grids: NDArray[np.float64], count: int, active_tokens: int
) -> float:
    """Return the decode time of a pass in ms; 0 if nothing decodes.

    Args:
        engine: Role of the rank.
        grids: Timing tables of all roles.
        count: Requests charged for a decode step.
        active_tokens: Sum of their lengths before the step.
    """
    if count == 0:
        return 0.0
    if engine.timing == TIMING_FIXED:
        raw_ms = engine.fixed_decode_ms
    elif engine.timing == TIMING_TABLE:
        raw_ms = table_decode_ms(engine, grids, count, active_tokens)
    else:
        used_frac = min(active_tokens / (engine.num_blocks * engine.block_size), 1.0)
        raw_ms = max(-25.74 * (used_frac * used_frac) + 54.01 * used_frac + 5.74, 1.0)
    return phase_ms(raw_ms, engine.decode_speedup)

"""Speculative decoding: accepted draft tokens per step, from the reference's random stream.

Rules: engine-vllm-trtllm.md §7, engine-sglang.md §12. Every rank has a ChaCha generator with 12
rounds, a 64-bit block counter from 0 and a key expanded from its seed by a PCG32. Its last block is
stored in the rank's row of ``draws``: 16 words, two per number drawn.

64-bit numbers are stored as 32-bit halves. Compiled code drops the bits of a sum or product beyond
64, plain Python keeps them; the masks make both results equal.
"""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.tables import EngineRow, RankRow
from aisim_gym.kernel import kernel

WORDS_PER_BLOCK = 16
_DRAWS_PER_BLOCK = 8
_MASK_32 = (1 << 32) - 1
_FACTOR_LOW, _FACTOR_HIGH = 0x4C957F2D, 0x5851F42D
_INCREMENT_LOW, _INCREMENT_HIGH = 0x6FBE17F3, 0xA17654E4
_TWO_32 = 4294967296.0


@kernel
def draw_accepted(engine: EngineRow, rank: RankRow, draws: NDArray[np.int64]) -> int:
    """Return the number of tokens of a decode step, >= 1: the sampled one and accepted drafts.

    Args:
        engine: Role of the rank; ``accept_rate_k`` is the probability of accepting draft k if the
            first k - 1 are accepted.
        rank: Its counter of drawn numbers is advanced.
        draws: Shape (ranks, 16), the words of each rank's current block.
    """
    accepted = 1
    for k in range(engine.draft_tokens):
        rate = _accept_rate(engine, k)
        if rate < 1.0 and not _draw_below(engine, rank, draws[rank.id], rate):
            break
        accepted += 1
    return accepted


@kernel
def _accept_rate(engine: EngineRow, k: int) -> float:
    if k == 0:
        return engine.accept_rate_1
    if k == 1:
        return engine.accept_rate_2
    if k == 2:
        return engine.accept_rate_3
    if k == 3:
        return engine.accept_rate_4
    return engine.accept_rate_5


@kernel
def _draw_below(engine: EngineRow, rank: RankRow, words: NDArray[np.int64], rate: float) -> bool:
    """Draw a 64-bit number and return whether it is below ``int(rate * 2**64)``, 0 <= rate < 1."""
    at = rank.num_draws % _DRAWS_PER_BLOCK
    if at == 0:
        seed = int(engine.draft_seed_low) + int(rank.scheduler_id)
        _fill_block(
            words,
            seed & _MASK_32,
            (int(engine.draft_seed_high) + (seed >> 32)) & _MASK_32,
            rank.num_draws // _DRAWS_PER_BLOCK,
        )
    rank.num_draws += 1
    high_limit = int(rate * _TWO_32)
    low_limit = int((rate * _TWO_32 - high_limit) * _TWO_32)
    high = words[2 * at + 1]
    return bool(high < high_limit or (high == high_limit and words[2 * at] < low_limit))


@kernel
def _fill_block(words: NDArray[np.int64], seed_low: int, seed_high: int, counter: int) -> None:
    """Write the 16 output words of a block."""
    _fill_input(words, seed_low, seed_high, counter, 0)
    for _ in range(6):
        _quarter_round(words, 0, 4, 8, 12)
        _quarter_round(words, 1, 5, 9, 13)
        _quarter_round(words, 2, 6, 10, 14)
        _quarter_round(words, 3, 7, 11, 15)
        _quarter_round(words, 0, 5, 10, 15)
        _quarter_round(words, 1, 6, 11, 12)
        _quarter_round(words, 2, 7, 8, 13)
        _quarter_round(words, 3, 4, 9, 14)
    _fill_input(words, seed_low, seed_high, counter, 1)


@kernel
def _fill_input(
    words: NDArray[np.int64], seed_low: int, seed_high: int, counter: int, keep: int
) -> None:
    """Write the input words of a block, or add them to the words (``keep`` 1), modulo 2**32."""
    _put(words, 0, 0x61707865, keep)
    _put(words, 1, 0x3320646E, keep)
    _put(words, 2, 0x79622D32, keep)
    _put(words, 3, 0x6B206574, keep)
    low, high = seed_low, seed_high
    for i in range(8):
        low, high = _next_state(low, high)
        _put(words, 4 + i, _permuted(low, high), keep)
    _put(words, 12, counter & _MASK_32, keep)
    _put(words, 13, counter >> 32, keep)
    _put(words, 14, 0, keep)
    _put(words, 15, 0, keep)


@kernel
def _next_state(low: int, high: int) -> tuple[int, int]:
    """Return the PCG32's next state, a linear congruence modulo 2**64."""
    product = low * _FACTOR_LOW + _INCREMENT_LOW
    high = low * _FACTOR_HIGH + high * _FACTOR_LOW + _INCREMENT_HIGH + (product >> 32 & _MASK_32)
    return product & _MASK_32, high & _MASK_32


@kernel
def _permuted(low: int, high: int) -> int:
    """Return the PCG32's output for a state: its bits 27 to 58, mixed and rotated."""
    mixed_low = (low >> 18 | high << 14 & _MASK_32) ^ low
    mixed_high = high >> 18 ^ high
    word = mixed_low >> 27 | mixed_high << 5 & _MASK_32
    turn = high >> 27
    return (word >> turn | word << (32 - turn)) & _MASK_32


@kernel
def _put(words: NDArray[np.int64], at: int, value: int, keep: int) -> None:
    words[at] = (words[at] * keep + value) & _MASK_32


@kernel
def _quarter_round(words: NDArray[np.int64], a: int, b: int, c: int, d: int) -> None:
    words[a] = (words[a] + words[b]) & _MASK_32
    words[d] = _rotate_left(words[d] ^ words[a], 16)
    words[c] = (words[c] + words[d]) & _MASK_32
    words[b] = _rotate_left(words[b] ^ words[c], 12)
    words[a] = (words[a] + words[b]) & _MASK_32
    words[d] = _rotate_left(words[d] ^ words[a], 8)
    words[c] = (words[c] + words[d]) & _MASK_32
    words[b] = _rotate_left(words[b] ^ words[c], 7)


@kernel
def _rotate_left(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (32 - bits))) & _MASK_32

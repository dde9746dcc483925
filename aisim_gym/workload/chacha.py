"""The reference's random stream: ChaCha with 12 rounds, keyed by a 64-bit seed (workloads.md §6.5).

A PCG32 expands the seed to the key; the 64-bit counter starts at 0.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

WORDS_PER_BLOCK = 16

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_QUARTERS = (
    *((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)),
    *((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)),
)
_DOUBLE_ROUNDS = 6
_MASK_32 = 2**32 - 1
_MASK_64 = 2**64 - 1
_BLOCKS_AT_ONCE = 256


class ChaChaStream:
    """The reference's random numbers in its order of draws."""

    def __init__(self, seed: int) -> None:
        """Create the stream of a seed in 0 .. 2**64 - 1."""
        self._key = tuple(_expand_key(seed))
        self._next_block = 0

    def doubles(self, count: int) -> NDArray[np.float64]:
        """Return the next ``count`` numbers, each from two words, uniform in [0, 1).

        The rest of the last block is discarded, so draw all numbers in one call.
        """
        words = self._blocks(-(-2 * count // WORDS_PER_BLOCK)).ravel()[: 2 * count]
        low, high = words[::2].astype(np.uint64), words[1::2].astype(np.uint64)
        return ((low | high << np.uint64(32)) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def words(self) -> Iterator[int]:
        """Yield an endless stream of words, starting with the next block."""
        while True:
            yield from self._blocks(_BLOCKS_AT_ONCE).ravel().tolist()

    def _blocks(self, count: int) -> NDArray[np.uint32]:
        """Return the next blocks, shape (count, 16)."""
        counters = np.arange(self._next_block, self._next_block + count, dtype=np.uint64)
        self._next_block += count
        start = np.zeros((WORDS_PER_BLOCK, count), np.uint32)
        start[:12] = np.array((*_CONSTANTS, *self._key), np.uint32)[:, np.newaxis]
        start[12] = counters & np.uint64(_MASK_32)
        start[13] = counters >> np.uint64(32)
        words = start.copy()
        for _ in range(_DOUBLE_ROUNDS):
            for a, b, c, d in _QUARTERS:
                _mix(words, a, b, d, 16)
                _mix(words, c, d, b, 12)
                _mix(words, a, b, d, 8)
                _mix(words, c, d, b, 7)
        return (words + start).T


def draw_below(words: Iterator[int], limit: int) -> int:
    """Return a number 0 .. limit - 1 from one word, rarely two (workloads.md §6.6)."""
    product = next(words) * limit
    high, low = product >> 32, product & _MASK_32
    if low > 2**32 - limit:
        high += (low + (next(words) * limit >> 32)) >> 32
    return high


def _expand_key(seed: int) -> Iterator[int]:
    state = seed
    for _ in range(8):
        state = (state * 6364136223846793005 + 11634580027462260723) & _MASK_64
        mixed = (((state >> 18) ^ state) >> 27) & _MASK_32
        turn = state >> 59
        yield (mixed >> turn | mixed << (32 - turn)) & _MASK_32


def _mix(words: NDArray[np.uint32], a: int, b: int, d: int, bits: int) -> None:
    """Add word b to word a, xor the sum into word d and rotate that left, in place."""
    words[a] += words[b]
    mixed = words[d] ^ words[a]
    words[d] = mixed << np.uint32(bits) | mixed >> np.uint32(32 - bits)

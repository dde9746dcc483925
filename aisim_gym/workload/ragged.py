"""Ragged columns: the items of all rows in one flat array, and the start of each row."""

from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Ragged(NamedTuple):
    """A column with any number of integers per row.

    Attributes:
        flat: Items of all rows, one row after the other, int64.
        starts: Shape (rows + 1,), int64: row i has ``flat[starts[i]:starts[i + 1]]``.
    """

    flat: NDArray[np.int64]
    starts: NDArray[np.int64]

    @classmethod
    def empty(cls, rows: int) -> "Ragged":
        """Return a column without items."""
        return cls(np.empty(0, np.int64), np.zeros(rows + 1, np.int64))

    def take(self, rows: NDArray[np.int64]) -> "Ragged":
        """Return the given rows, in the given order."""
        lengths = np.diff(self.starts)[rows]
        starts = offsets_of(lengths)
        shift = np.repeat(self.starts[:-1][rows] - starts[:-1], lengths)
        return Ragged(self.flat[np.arange(starts[-1]) + shift], starts)


def offsets_of(counts: NDArray[np.integer | np.bool_]) -> NDArray[np.int64]:
    """Return the start offsets of rows with the given numbers of items, and the end of the last."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


class RaggedBuilder:
    """Collects a ragged column row by row."""

    def __init__(self) -> None:
        """Create an empty column."""
        self._flat = array("q")
        self._starts = array("q", [0])

    def append(self, items: Iterable[int]) -> None:
        """Add the next row."""
        self._flat.extend(items)
        self._starts.append(len(self._flat))

    def build(self) -> Ragged:
        """Return the rows so far."""
        return Ragged(np.array(self._flat, np.int64), np.array(self._starts, np.int64))

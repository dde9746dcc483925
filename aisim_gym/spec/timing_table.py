"""Timing tables as numbers: what a timing model hands to the replay.

Between the points of a grid durations are bilinear in the raw coordinates; beyond them the
outermost cells go on as planes. The arithmetic is that of the reference's ``dynamo_profile``
provider, operation by operation, so that both come to the same nanosecond.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LEAST_MS = 0.001
"""A part of a pass never takes less in a table of ours: zero would stop the clock."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Durations at the crossings of two axes.

    Attributes:
        rows: Shape (n,), strictly increasing, n >= 2.
        columns: Shape (m,), strictly increasing, m >= 1; with one column, columns do not matter.
        ms: Shape (n, m), durations in ms.
    """

    rows: Floats
    columns: Floats
    ms: Floats

    def at(self, row: ArrayLike, column: ArrayLike = 0.0) -> Floats:
        """Return the durations at places given by row and column, in ms, before any floor.

        Args:
            row: Positions on the axis of the rows, any shape.
            column: Positions on the other axis, broadcast against ``row``.
        """
        x, y = np.broadcast_arrays(np.asarray(row, float), np.asarray(column, float))
        i, j = _cells(self.rows, x), _cells(self.columns, y)
        ends = self.rows[i], self.rows[i + 1]
        left = _on_line(*ends, self.ms[i, j], self.ms[i + 1, j], x)
        if len(self.columns) == 1:
            return left
        right = _on_line(*ends, self.ms[i, j + 1], self.ms[i + 1, j + 1], x)
        return _on_line(self.columns[j], self.columns[j + 1], left, right, y)


@dataclass(frozen=True, eq=False)
class TimingTable:
    """What the durations of passes are looked up in.

    Attributes:
        prefill: By new tokens of the pass and mean prefix tokens of its requests.
        decode: By ``rows_are_sequences`` or active tokens, and mean context of a sequence.
        rows_are_sequences: Rows of ``decode`` are numbers of sequences, not of active tokens.
        clamps: Beyond the grids their edges count.
        prefill_floor_ms: What the prefill part of a pass takes at least.
        decode_floor_ms: Likewise for the decode part.
    """

    prefill: Grid
    decode: Grid
    rows_are_sequences: bool
    clamps: bool
    prefill_floor_ms: float
    decode_floor_ms: float

    @cached_property
    def flat(self) -> Floats:
        """All numbers in one array: rows, columns, durations; of ``prefill``, of ``decode``."""
        parts = [
            part.ravel()
            for grid in (self.prefill, self.decode)
            for part in (grid.rows, grid.columns, grid.ms)
        ]
        return np.concatenate(parts)


def _cells(axis: Floats, x: Floats) -> NDArray[np.intp]:
    """Return the cell of each place: the last one that begins at or before it, or an outermost."""
    return np.clip(np.searchsorted(axis, x, side="right") - 1, 0, max(len(axis) - 2, 0))


def _on_line(x1: Floats, x2: Floats, y1: Floats, y2: Floats, x: Floats) -> Floats:
    with np.errstate(invalid="ignore", over="ignore"):  # the reference accepts NaN
        return np.asarray((y2 - y1) / (x2 - x1) * (x - x1) + y1)

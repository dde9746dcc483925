"""Timing tables as arrays, which a timing model passes to the replay.

Durations are interpolated bilinearly in the raw coordinates; beyond the grid the outermost cells
are extrapolated. The arithmetic is that of the reference's ``dynamo_profile`` provider, operation
by operation, so that both give the same nanosecond.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LEAST_MS = 0.001
"""Minimum duration of the prefill or decode part in our tables: zero would stop the clock."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Durations on the grid of two axes.

    Attributes:
        rows: Shape (n,), strictly increasing, n >= 2.
        columns: Shape (m,), strictly increasing, m >= 1; a single column is independent of this
            axis.
        ms: Shape (n, m), durations in ms.
    """

    rows: Floats
    columns: Floats
    ms: Floats

    def at(self, row: ArrayLike, column: ArrayLike = 0.0) -> Floats:
        """Return interpolated durations in ms, before any floor.

        Args:
            row: Positions on the row axis, any shape.
            column: Positions on the column axis, broadcast against ``row``.
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
    """Lookup tables of pass durations.

    Attributes:
        prefill: By new tokens of the pass and mean prefix tokens of its requests.
        decode: By ``rows_are_sequences`` or active tokens, and mean context of a sequence.
        rows_are_sequences: Whether rows of ``decode`` are numbers of sequences, not of active
            tokens.
        clamps: Whether positions beyond the grids use the edge values.
        prefill_floor_ms: Minimum duration of the prefill part of a pass.
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
    """Return the cell index of each position: the last cell starting at or before it, clipped."""
    return np.clip(np.searchsorted(axis, x, side="right") - 1, 0, max(len(axis) - 2, 0))


def _on_line(x1: Floats, x2: Floats, y1: Floats, y2: Floats, x: Floats) -> Floats:
    with np.errstate(invalid="ignore", over="ignore"):  # the reference accepts NaN
        return np.asarray((y2 - y1) / (x2 - x1) * (x - x1) + y1)

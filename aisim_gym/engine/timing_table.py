"""Durations from grids: bilinear interpolation, with the operations of the reference.

``grids`` holds, for each grid of a role, its row axis, its column axis and the durations at their
crossings in row-major order. The engine row stores the start of each grid.
``aisim_gym.spec.timing`` describes the axes and the values beyond them.
"""

import math

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.tables import EngineRow
from aisim_gym.kernel import kernel

LONGEST_MS = 9e9
"""Cap on table durations, 104 days: up to here a double resolves whole nanoseconds."""


@kernel
def table_prefill_ms(
    engine: EngineRow, grids: NDArray[np.float64], new_tokens: int, prefix_tokens: int
) -> float:
    """Return the unrounded prefill time of a pass in ms.

    Args:
        engine: Role of the rank.
        grids: Timing tables of all roles.
        new_tokens: New tokens of the whole pass, > 0.
        prefix_tokens: Mean prefix tokens of its requests.
    """
    rows, columns = int(engine.prefill_rows), int(engine.prefill_columns)
    start = int(engine.prefill_grid)
    x, y = float(new_tokens), float(prefix_tokens)
    if engine.table_clamps:
        x, y = clamped(grids, start, rows, x), clamped(grids, start + rows, columns, y)
    raw_ms = _surface_ms(grids, start, rows, columns, x, y)
    return bounded_ms(raw_ms, engine.prefill_floor_ms)


@kernel
def table_decode_ms(
    engine: EngineRow, grids: NDArray[np.float64], count: int, active_tokens: int
) -> float:
    """Return the unrounded decode time of a pass in ms.

    Args:
        engine: Role of the rank.
        grids: Timing tables of all roles.
        count: Decoding sequences, > 0.
        active_tokens: Sum of their context tokens.
    """
    rows, columns = int(engine.decode_rows), int(engine.decode_columns)
    start = int(engine.decode_grid)
    x = float(count if engine.table_rows_are_seqs else active_tokens)
    y = float(active_tokens // count)
    if engine.table_clamps:
        x, y = clamped(grids, start, rows, x), clamped(grids, start + rows, columns, y)
    raw_ms = _surface_ms(grids, start, rows, columns, x, y)
    return bounded_ms(raw_ms, engine.decode_floor_ms)


@kernel
def cell_at(grids: NDArray[np.float64], start: int, size: int, x: float) -> int:
    """Return the cell of an axis that contains ``x``: the last one that starts at or before it.

    Values before the axis belong to the first cell, values beyond it to the last.
    """
    low, high = 0, max(size - 2, 0)
    while low < high:
        middle = (low + high + 1) // 2
        if grids[start + middle] <= x:
            low = middle
        else:
            high = middle - 1
    return low


@kernel
def cell_end(grids: NDArray[np.float64], start: int, size: int, cell: int) -> float:
    """Return where the next cell starts; the last cell has no end."""
    return float(grids[start + cell + 1]) if cell < size - 2 else math.inf


@kernel
def cell_edges(
    grids: NDArray[np.float64], start: int, rows: int, columns: int, i: int, j: int
) -> tuple[float, float, float, float, float, float, float]:
    """Return the lines along both sides of cell (i, j), as :func:`between_edges_ms` takes them."""
    column = start + rows
    x1, x2 = grids[start + i], grids[start + i + 1]
    left = column + columns + i * columns + j
    left_ms, left_slope = grids[left], (grids[left + columns] - grids[left]) / (x2 - x1)
    if columns == 1:
        return x1, 0.0, 1.0, left_ms, left_slope, left_ms, left_slope
    right = left + 1
    right_ms, right_slope = grids[right], (grids[right + columns] - grids[right]) / (x2 - x1)
    y1, y2 = grids[column + j], grids[column + j + 1]
    return x1, y1, y2 - y1, left_ms, left_slope, right_ms, right_slope


@kernel
def between_edges_ms(
    edges: tuple[float, float, float, float, float, float, float], x: float, y: float
) -> float:
    """Return the duration at (x, y), interpolated between two edges or extrapolated."""
    x1, y1, width, left_ms, left_slope, right_ms, right_slope = edges
    left = left_slope * (x - x1) + left_ms
    right = right_slope * (x - x1) + right_ms
    return (right - left) / width * (y - y1) + left


@kernel
def clamped(grids: NDArray[np.float64], start: int, size: int, x: float) -> float:
    """Return ``x`` clamped to the range of an axis."""
    return float(min(max(x, grids[start]), grids[start + size - 1]))


@kernel
def bounded_ms(raw_ms: float, floor_ms: float) -> float:
    """Return a duration of at least ``floor_ms``, which also replaces NaN."""
    return min(raw_ms, LONGEST_MS) if raw_ms > floor_ms else floor_ms


@kernel
def _surface_ms(
    grids: NDArray[np.float64], start: int, rows: int, columns: int, x: float, y: float
) -> float:
    i, j = cell_at(grids, start, rows, x), cell_at(grids, start + rows, columns, y)
    return between_edges_ms(cell_edges(grids, start, rows, columns, i, j), x, y)

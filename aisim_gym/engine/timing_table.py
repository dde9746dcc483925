"""Durations from grids: bilinear between their points, with the operations of the reference.

``grids`` holds, for each grid of a role, its rows, its columns and the durations at their
crossings, row by row; the engine says where it begins. What the axes are and what lies beyond them
is told where the tables come from (``aisim_gym.spec.timing``).
"""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.tables import EngineRow
from aisim_gym.kernel import kernel

LONGEST_MS = 9e9
"""104 days: a double tells whole nanoseconds apart up to here, where steep tables end."""


@kernel
def table_prefill_ms(
    engine: EngineRow, grids: NDArray[np.float64], new_tokens: int, prefix_tokens: int
) -> float:
    """Return the prefill time of a pass in ms, not rounded yet.

    Args:
        engine: Role of the rank.
        grids: Of all roles.
        new_tokens: Of the whole pass, > 0.
        prefix_tokens: Mean over its requests.
    """
    rows, columns = int(engine.prefill_rows), int(engine.prefill_columns)
    start = int(engine.prefill_grid)
    x, y = float(new_tokens), float(prefix_tokens)
    i, j = cell_at(grids, start, rows, x), cell_at(grids, start + rows, columns, y)
    raw_ms = cell_ms(grids, start, rows, columns, i, j, x, y, engine.table_clamps == 1)
    return bounded_ms(raw_ms, engine.prefill_floor_ms)


@kernel
def table_decode_ms(
    engine: EngineRow, grids: NDArray[np.float64], count: int, active_tokens: int
) -> float:
    """Return the decode time of a pass in ms, not rounded yet.

    Args:
        engine: Role of the rank.
        grids: Of all roles.
        count: Sequences that decode, > 0.
        active_tokens: Sum of their context tokens.
    """
    rows, columns = int(engine.decode_rows), int(engine.decode_columns)
    start = int(engine.decode_grid)
    x = float(count if engine.table_rows_are_seqs == 1 else active_tokens)
    y = float(active_tokens // count)
    i, j = cell_at(grids, start, rows, x), cell_at(grids, start + rows, columns, y)
    raw_ms = cell_ms(grids, start, rows, columns, i, j, x, y, engine.table_clamps == 1)
    return bounded_ms(raw_ms, engine.decode_floor_ms)


@kernel
def cell_at(grids: NDArray[np.float64], start: int, size: int, x: float) -> int:
    """Return the cell of an axis that holds ``x``: the last that begins at or before it.

    Before the axis it is the first cell, beyond it the last one.
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
def next_cell(grids: NDArray[np.float64], start: int, size: int, cell: int, x: float) -> int:
    """Return :func:`cell_at` for an ``x`` that lies in ``cell`` or beyond it."""
    while cell < size - 2 and grids[start + cell + 1] <= x:
        cell += 1
    return cell


@kernel
def cell_ms(
    grids: NDArray[np.float64],
    start: int,
    rows: int,
    columns: int,
    i: int,
    j: int,
    x: float,
    y: float,
    clamps: bool,
) -> float:
    """Return the duration at (x, y) on the surface over cell (i, j), which may lie elsewhere."""
    column = start + rows
    if clamps:
        x = min(max(x, grids[start]), grids[column - 1])
        y = min(max(y, grids[column]), grids[column + columns - 1])
    at = column + columns + i * columns + j
    x1, x2 = grids[start + i], grids[start + i + 1]
    left = _on_line(x1, x2, grids[at], grids[at + columns], x)
    if columns == 1:
        return left
    right = _on_line(x1, x2, grids[at + 1], grids[at + columns + 1], x)
    return _on_line(grids[column + j], grids[column + j + 1], left, right, y)


@kernel
def bounded_ms(raw_ms: float, floor_ms: float) -> float:
    """Return a duration that is at least ``floor_ms``, which also stands for NaN."""
    return min(raw_ms, LONGEST_MS) if raw_ms > floor_ms else floor_ms


@kernel
def _on_line(x1: float, x2: float, y1: float, y2: float, x: float) -> float:
    return (y2 - y1) / (x2 - x1) * (x - x1) + y1

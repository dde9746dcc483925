"""Durations from grids (engine-vllm-trtllm.md §2.3, and the tables beyond the reference)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rank_tables import make_engine
from support.timing_tables import timing_tables

from aisim_gym.engine.duration import phase_ms
from aisim_gym.engine.tables import EngineRow
from aisim_gym.engine.timing import decode_ms, prefill_ms
from aisim_gym.engine.timing_table import LONGEST_MS, bounded_ms, cell_at, cell_end
from aisim_gym.replay.build import fill_table_timing
from aisim_gym.spec import TableTiming
from aisim_gym.spec.timing_table import LEAST_MS, Floats, Grid, TimingTable

AXES = st.lists(st.integers(0, 60), min_size=2, max_size=6, unique=True).map(sorted)


def engine_of(table: TimingTable) -> tuple[EngineRow, Floats]:
    """Return an engine with a timing table that is not the first one in its grids."""
    engine, grids = make_engine(), [np.full(5, np.nan)]
    fill_table_timing(engine, table, grids)
    return engine, np.concatenate(grids)


@given(timing_tables(), st.integers(1, 8), st.integers(1, 3000), st.integers(0, 3000))
def test_a_pass_takes_what_the_surface_says(
    data: dict[str, object], count: int, tokens: int, prefix_tokens: int
) -> None:
    table = TableTiming.from_data(data).table
    engine, grids = engine_of(table)
    tokens += count
    new, prefix = count * (tokens // count), prefix_tokens // count
    ends = tokens + prefix * count
    expected = _surface_ms(table.prefill, new, prefix, clamps=table.clamps)
    assert prefill_ms(engine, grids, count, ends, prefix * count) == expected
    row = count if table.rows_are_sequences else tokens
    expected = _surface_ms(table.decode, row, tokens // count, clamps=table.clamps)
    assert decode_ms(engine, grids, count, tokens) == expected


def _surface_ms(grid: Grid, row: float, column: float, *, clamps: bool) -> float:
    if clamps:
        row = min(max(row, grid.rows[0]), grid.rows[-1])
        column = min(max(column, grid.columns[0]), grid.columns[-1])
    return phase_ms(max(float(grid.at(row, column)), LEAST_MS), 0.0)


@pytest.mark.parametrize(
    ("row", "column", "ms"),
    [(0, 0, 1.0), (10, 0, 3.0), (5, 50, 4.0), (20, 0, 5.0), (0, 200, 9.0), (10, 100, 7.0)],
)
def test_surface_is_bilinear_and_goes_on_outside(row: float, column: float, ms: float) -> None:
    grid = Grid(np.array([0.0, 10.0]), np.array([0.0, 100.0]), np.array([[1.0, 5.0], [3.0, 7.0]]))
    assert grid.at(row, column) == ms


@given(AXES, st.integers(-5, 70))
def test_cell_is_the_last_that_begins_at_or_before(axis: list[int], x: int) -> None:
    grids = np.array([math.nan, *axis, math.nan])
    last = len(axis) - 2
    begun = [cell for cell in range(last + 1) if axis[cell] <= x]
    assert cell_at(grids, 1, len(axis), float(x)) == (begun[-1] if begun else 0)


@given(AXES, st.integers(-5, 70), st.integers(0, 70))
def test_cell_holds_until_its_end(axis: list[int], x: int, step: int) -> None:
    grids = np.array(axis, float)
    cell = cell_at(grids, 0, len(axis), float(x))
    is_left = x + step >= cell_end(grids, 0, len(axis), cell)
    assert is_left == (cell_at(grids, 0, len(axis), float(x + step)) != cell)


def test_axis_of_one_point_is_one_cell_without_end() -> None:
    grids = np.array([7.0])
    assert cell_at(grids, 0, 1, 9.0) == 0
    assert cell_end(grids, 0, 1, 0) == math.inf


@pytest.mark.parametrize("raw_ms", [-1.0, 0.5, -math.inf, math.nan])
def test_floor_stands_for_less_and_for_nan(raw_ms: float) -> None:
    assert bounded_ms(raw_ms, 1.0) == 1.0


@pytest.mark.parametrize("raw_ms", [1e300, math.inf])
def test_no_pass_takes_longer_than_nanoseconds_are_told_apart(raw_ms: float) -> None:
    assert bounded_ms(raw_ms, 0.0) == LONGEST_MS


@pytest.mark.parametrize("block_size", [1, 16, 64, 512])
def test_block_size_does_not_change_pass_times(block_size: int) -> None:
    """The same tokens take the same time however KV memory is cut (F56)."""
    num_blocks = 131_072 // block_size
    polynomial = make_engine(block_size=block_size, num_blocks=num_blocks)
    assert decode_ms(polynomial, np.zeros(0), 8, 65_536) == pytest.approx(26.31, rel=1e-12)
    columns = np.array([0.0, 10_000.0])
    grid = Grid(np.array([0.0, 10.0]), columns, np.array([[0.0, 0.0], [10.0, 110.0]]))
    table, grids = engine_of(TimingTable(grid, grid, True, False, 0.0, 0.0))
    table.block_size, table.num_blocks = block_size, num_blocks
    assert decode_ms(table, grids, 8, 65_536) == pytest.approx(8 + 8 * 8192 / 1000, rel=1e-12)

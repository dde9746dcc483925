"""Tables of a run: declared once, grown as asked, copied and restored."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest
from fleet.worlds import new_world

from aisim_gym.engine.tables import SeqRow
from aisim_gym.fleet.room import BLOCKS, RANKS, WORKERS, request_rows
from aisim_gym.fleet.tables import NUM_ROSTERS, QUEUE_DEFERRED
from aisim_gym.fleet.world_state import DECLARED, WorldState
from aisim_gym.table_shapes import Growing, Per, declarations
from aisim_gym.tables import Table


def test_every_declared_table_is_made_with_its_type() -> None:
    state = new_world(workers=2)
    assert state.tables.keys() == DECLARED.keys()
    for name, declared in DECLARED.items():
        table = state.tables[name]
        assert table.dtype == declared.dtype, name
        assert table.ndim == len(declared.axes), name
        assert table.flags.c_contiguous, name
        assert declared.is_row == (getattr(state.world, name).shape == () and len(table) == 1), name


def test_tables_of_a_kind_grow_together_and_keep_what_they_hold() -> None:
    state = new_world(workers=2)
    num_workers = len(state.world.workers)
    workers = np.asarray(state.world.workers).copy()
    state.world.rosters[3, 1] = 7
    assert not request_rows(state.world, WORKERS, num_workers + 1)
    state.grow()
    for name, declared in DECLARED.items():
        axis = declared.axis_per("worker")
        if axis is not None:
            per = declared.axes[axis]
            assert isinstance(per, Per)
            assert state.tables[name].shape[axis] == per.length(2 * num_workers), name
    assert state.world.rosters.shape == (NUM_ROSTERS, 2 * num_workers)
    assert state.world.rosters[3, 1] == 7
    assert (np.asarray(state.world.workers)[:num_workers] == workers).all()


def test_tables_that_are_left_out_stay_empty() -> None:
    state = new_world(workers=1)
    num_ranks = len(state.world.ranks)
    request_rows(state.world, RANKS, num_ranks + 1)
    state.grow()
    assert len(state.world.ranks) == 2 * num_ranks
    assert len(state.world.action_queues) == 2 * num_ranks + QUEUE_DEFERRED
    assert (len(state.world.links), state.world.draws.shape) == (0, (0, 16))
    assert (len(state.world.nodes), len(state.world.handoffs)) == (0, 0)


def test_hashed_tables_have_a_power_of_two_rows_and_all_of_them_are_free() -> None:
    state = new_world(workers=1)
    before = len(state.world.blocks)
    request_rows(state.world, BLOCKS, 5000)
    state.grow()
    size = len(state.world.blocks)
    assert size == 1 << (size - 1).bit_length() >= before + 5000
    assert state.world.arena.block_free_count == size


def test_copy_is_independent_and_shares_what_nobody_writes_to() -> None:
    state = new_world(workers=1)
    copied = state.copy()
    copied.world.clock.now_ms = 5.0
    assert state.world.clock.now_ms == 0.0
    assert copied.tables["timing_grids"] is state.tables["timing_grids"]


def test_tables_with_other_columns_are_refused() -> None:
    tables = new_world(workers=1).plain_tables()
    assert WorldState.from_tables(tables).world.workers[0].id == 0
    with pytest.raises(ValueError, match="table seqs: other columns than in this version"):
        WorldState.from_tables({**tables, "seqs": tables["ranks"]})


@dataclass
class Tables:
    """One table has a shape, the other has none."""

    seqs: Annotated[Table[SeqRow], 3]
    blocks: Table[SeqRow]


def test_growing_tables_get_at_least_what_was_asked_for() -> None:
    assert Growing(4).grown(10, 3) == 23
    assert Growing(4, is_hashed=True).grown(16, 1) == 32
    assert Growing(4, is_hashed=True).grown(16, 17) == 64
    assert Growing(4).grown(0, 1) == 1


def test_table_without_a_shape_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Tables.blocks: no shape, use Annotated"):
        declarations(Tables)

"""A run whose tables start as small as they can be, so that all of them must grow."""

import numpy as np

from aisim_gym.engine.slices import make_heads
from aisim_gym.fleet.events import EVENTS
from aisim_gym.fleet.tables import OPENING_UNSETTLED
from aisim_gym.fleet.world_state import DECLARED, WorldState
from aisim_gym.table_shapes import Growing, Per
from aisim_gym.tables import make_array


def shrink_tables(state: WorldState) -> None:
    """Give every growing table of a run that has not started a single row, or none.

    Tables with a free list need one to grow from. Those with rows per worker or rank keep what the
    first workers use.
    """
    assert state.world.clock.opening == OPENING_UNSETTLED
    assert state.world.heaps[EVENTS].count == 0
    arena = state.world.arena
    for name in ("seq_free_count", "block_free_count", "node_free_count"):
        setattr(arena, name, 0)
    for name, declared in DECLARED.items():
        growing = declared.axes[0]
        if not isinstance(growing, Growing) or len(state.tables[name]) == 0:
            continue
        table = make_array(declared.dtype, 0 if growing.link is None else 1)
        if growing.link is not None:
            growing.link(table[:0], table, arena)
        state.replace(name, table)
    for name in ("entry_heads", "break_heads"):
        state.tables[name][:] = make_heads()
    _cut(state, "worker", int(sum(state.world.pools["num_workers"])))
    _cut(state, "rank", int(sum(state.world.pools["num_ranks"])))


def _cut(state: WorldState, kind: str, count: int) -> None:
    """Leave only the rows of the first workers, or of their ranks."""
    for name, declared in DECLARED.items():
        axis, table = declared.axis_per(kind), np.asarray(state.tables[name])
        if axis is None:
            continue
        per = declared.axes[axis]
        assert isinstance(per, Per)
        if per.is_optional and table.shape[axis] == 0:
            continue
        shape = list(table.shape)
        shape[axis] = per.length(count)
        cut = make_array(declared.dtype, *shape)
        np.asarray(cut)[...] = table[tuple(map(slice, shape))]
        state.replace(name, cut)

"""A run whose tables start as small as they can be, so that all of them must grow."""

import numpy as np

from aisim_gym.engine.slices import make_heads
from aisim_gym.engine.tables import NONE, BlockRow, NodeRow, SeqRow
from aisim_gym.fleet.tables import EventRow, OperationRow
from aisim_gym.fleet.world_state import WorldState, add_free_seqs
from aisim_gym.metrics.request_times import AdmissionRow
from aisim_gym.metrics.token_log import EntryRow
from aisim_gym.tables import make_table


def shrink_tables(state: WorldState) -> None:
    """Give a run that has not started one sequence, one block row, one node and three events.

    The first tick is armed without asking for room, a pass leaves two events free.
    """
    assert state.clock[0].is_started == state.clock[0].event_count == 0
    arena = state.arena[0]
    state.seqs = make_table(SeqRow, 1)
    arena.seq_free, arena.seq_free_count = NONE, 0
    add_free_seqs(state.seqs, arena, 0)
    state.blocks = make_table(BlockRow, 1)
    for name in ("bucket_first", "bucket_last", "lru_next"):
        state.blocks[name][:] = NONE
    arena.block_free, arena.block_free_count = 0, 1
    if len(state.nodes):
        state.nodes = make_table(NodeRow, 1)
        state.nodes[0].bucket_first = state.nodes[0].parent = NONE
        arena.node_free, arena.node_free_count = 0, 1
    state.entries, state.entry_heads = np.zeros(0, np.int64), make_heads()
    state.breaks, state.break_heads = np.zeros(0, np.float64), make_heads()
    state.log_entries = make_table(EntryRow, 0)
    state.events = make_table(EventRow, 3)
    state.admissions = make_table(AdmissionRow, 0)
    state.operations = make_table(OperationRow, 0)

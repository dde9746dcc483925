"""Room in the tables: compiled code asks before it acts, Python grows them between calls.

A check that fails leaves kind and amount in the clock; the step that needs the room is then
entered again. So no table has a fixed limit and nothing is done halfway.
"""

from aisim_gym.engine.backend import list_size
from aisim_gym.engine.seq_rows import seq_fits
from aisim_gym.fleet.tables import ClockRow
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel

ROOM_SEQS, ROOM_BLOCKS, ROOM_EVENTS, ROOM_ADMISSIONS, ROOM_OPERATIONS = 1, 2, 3, 4, 5
ROOM_BREAKS, ROOM_NODES, ROOM_LOG = 6, 7, 8


@kernel
def needs_room(clock: ClockRow, kind: int, amount: int) -> bool:
    """Ask for ``amount`` more elements of a table; always False, for the caller to return."""
    clock.room_kind = kind
    clock.room_amount = amount
    return False


@kernel
def has_room_for_seq(w: World, pool_id: int, tokens: int) -> bool:
    """Return whether a sequence of ``tokens`` (prompt + output) can be created."""
    size = list_size(w, w.engines[pool_id], tokens)
    return seq_fits(w.arena, w.entries, w.entry_heads, size) or needs_room(w.clock, ROOM_SEQS, size)


@kernel
def has_room_in_cache(w: World, block_rows: int, node_rows: int) -> bool:
    """Return whether so many rows of the block table and of the node table are free."""
    if w.arena.block_free_count < block_rows:
        return needs_room(w.clock, ROOM_BLOCKS, block_rows)
    if w.arena.node_free_count < node_rows:
        return needs_room(w.clock, ROOM_NODES, node_rows)
    return True


@kernel
def has_room_for_operations(w: World, count: int) -> bool:
    """Return whether ``count`` lifecycle operations can be recorded."""
    if w.clock.operation_count + count <= len(w.operations):
        return True
    return needs_room(w.clock, ROOM_OPERATIONS, count)

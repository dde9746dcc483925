"""Room in the tables: compiled code asks before it acts, Python grows them between calls.

A check that fails leaves kind and amount in the clock; the step that needs the room is then
entered again. So no table has a fixed limit and nothing is done halfway.
"""

from aisim_gym.engine.commands import seq_fits
from aisim_gym.fleet.tables import ClockRow
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel

ROOM_SEQS, ROOM_BLOCKS, ROOM_EVENTS, ROOM_ADMISSIONS, ROOM_OPERATIONS, ROOM_GAPS = 1, 2, 3, 4, 5, 6


@kernel
def needs_room(clock: ClockRow, kind: int, amount: int) -> bool:
    """Ask for ``amount`` more elements of a table; always False, for the caller to return."""
    clock.room_kind = kind
    clock.room_amount = amount
    return False


@kernel
def has_room_for_seq(w: World, pool_id: int, tokens: int) -> bool:
    """Return whether a sequence of ``tokens`` (prompt + output) can be created."""
    engine = w.engines[pool_id]
    if seq_fits(engine, w.arena, w.entries, w.entry_heads, tokens):
        return True
    return needs_room(w.clock, ROOM_SEQS, min(tokens // engine.block_size, engine.num_blocks) + 1)


@kernel
def has_room_for_operations(w: World, count: int) -> bool:
    """Return whether ``count`` lifecycle operations can be recorded."""
    if w.clock.operation_count + count <= len(w.operations):
        return True
    return needs_room(w.clock, ROOM_OPERATIONS, count)

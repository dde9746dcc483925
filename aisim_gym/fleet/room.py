"""Room in the tables: compiled code requests it before it acts, Python grows tables between calls.

A failed request records the table and the number of rows; after growth, the step that needs the
room runs again from its start. So no table has a fixed limit and no step is left half done. The
request and the allocation use the same functions: for sequences
:func:`~aisim_gym.fleet.request_seq.seq_needs`, for blocks and nodes the demand of the scheduler,
which a checked build enforces row by row (``arena.block_grant``).
"""

from aisim_gym.engine.slices import slice_fits
from aisim_gym.fleet.events import EVENTS
from aisim_gym.fleet.worker_ranks import next_rows
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel
from aisim_gym.table_shapes import declarations
from aisim_gym.tables import IS_CHECKED

_NUMBERS = {name: declared.number for name, declared in declarations(World).items()}

SEQS, ENTRIES, BLOCKS, NODES, EVENT_ROWS, ADMISSIONS, OPERATIONS, BREAKS, LOG_ENTRIES = (
    _NUMBERS[name]
    for name in (
        "seqs",
        "entries",
        "blocks",
        "nodes",
        "events",
        "admissions",
        "operations",
        "breaks",
        "log_entries",
    )
)
WORKERS, RANKS = _NUMBERS["workers"], _NUMBERS["ranks"]
"""Identifiers of the tables that grow."""


@kernel
def request_rows(w: World, table: int, amount: int) -> bool:
    """Record a growth request and return False.

    Args:
        w: Modified in place.
        table: Identifier of the table.
        amount: Additional rows needed; for ``WORKERS`` and ``RANKS``, the total number needed.
    """
    w.resume.room_table = table
    w.resume.room_amount = amount
    return False


@kernel
def request_room_for_list(w: World, list_size: int) -> bool:
    """Return whether a sequence with a block list of ``list_size`` can be created."""
    if w.arena.seq_free_count == 0:
        return request_rows(w, SEQS, 1)
    return slice_fits(w.entries, w.entry_heads, list_size) or request_rows(
        w, ENTRIES, 2 * list_size
    )


@kernel
def request_room_in_cache(w: World, block_rows: int, node_rows: int) -> bool:
    """Return whether the block table and the node table have this many free rows.

    The next step may take at most this many.
    """
    if w.arena.block_free_count < block_rows:
        return request_rows(w, BLOCKS, block_rows - w.arena.block_free_count)
    if w.arena.node_free_count < node_rows:
        return request_rows(w, NODES, node_rows - w.arena.node_free_count)
    if IS_CHECKED:
        w.arena.block_grant = block_rows
        w.arena.node_grant = node_rows
    return True


@kernel
def request_room_for_operations(w: World, count: int) -> bool:
    """Return whether ``count`` lifecycle operations can be recorded."""
    if not w.options.captures_operations or w.clock.operation_count + count <= len(w.operations):
        return True
    return request_rows(w, OPERATIONS, count)


@kernel
def request_room_for_events(w: World, count: int) -> bool:
    """Return whether ``count`` more events can be added."""
    if w.heaps[EVENTS].count + count <= len(w.events):
        return True
    return request_rows(w, EVENT_ROWS, count)


@kernel
def request_room_for_admissions(w: World, count: int) -> bool:
    """Return whether ``count`` more admissions can be recorded."""
    if not w.options.captures_requests or w.clock.admission_count + count <= len(w.admissions):
        return True
    return request_rows(w, ADMISSIONS, count)


@kernel
def request_room_for_workers(w: World, prefill: int, decode: int) -> bool:
    """Return whether this many more workers of each pool, and their ranks, can be created."""
    worker_row, rank_row = next_rows(w)
    num_workers = worker_row + prefill + decode
    if num_workers > len(w.workers):
        return request_rows(w, WORKERS, num_workers)
    num_ranks = rank_row + prefill * w.engines[0].dp_size + decode * w.engines[1].dp_size
    if num_ranks > len(w.ranks):
        return request_rows(w, RANKS, num_ranks)
    return True

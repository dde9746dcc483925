"""Rows of sequences: creation and deletion of requests on a rank."""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.slices import give_back_slice, take_slice
from aisim_gym.engine.tables import (
    END_NONE,
    NONE,
    SEQ_WAITING,
    ArenaRow,
    RankRow,
    SeqRow,
)
from aisim_gym.errors import TableFullError
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table


@kernel
def create_seq(
    rank: RankRow,
    seqs: Table[SeqRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    entry_heads: NDArray[np.int64],
    list_size: int,
    request: int,
    prompt_tokens: int,
    max_output_tokens: int,
    content_start: int,
    shared_blocks: int,
    private_base: int,
) -> int:
    """Return a new sequence of ``request`` on a rank, in no queue yet."""
    s = arena.seq_free
    if s == NONE:
        raise TableFullError("seqs")
    seq = seqs[s]
    arena.seq_free = seq.next
    arena.seq_free_count -= 1
    seq.request = request
    seq.rank = rank.id
    seq.status = SEQ_WAITING
    seq.prompt_tokens = prompt_tokens
    seq.max_output_tokens = max_output_tokens
    seq.generated_tokens = 0
    seq.computed_tokens = 0
    seq.covered_tokens = 0
    seq.order = rank.arrivals
    seq.is_source = False
    seq.is_destination = False
    seq.was_admitted = False
    seq.resident_blocks = 0
    seq.listed_blocks = 0
    seq.private_blocks = 0
    seq.reserved_blocks = 0
    seq.entry_start = take_slice(entries, entry_heads, list_size)
    seq.entry_size = list_size
    seq.content_start = content_start
    seq.shared_blocks = shared_blocks
    seq.private_base = private_base
    seq.node = NONE
    seq.previous = NONE
    seq.next = NONE
    seq.stamp = NONE
    seq.reused_tokens = 0
    seq.signal_tokens = 0
    seq.signal_end = END_NONE
    seq.oldest_entry = NONE
    seq.first_entry = NONE
    seq.last_entry = NONE
    rank.arrivals += 1
    rank.owned_seqs += 1
    return s


@kernel
def delete_seq(
    rank: RankRow,
    seqs: Table[SeqRow],
    arena: ArenaRow,
    entries: NDArray[np.int64],
    entry_heads: NDArray[np.int64],
    s: int,
) -> None:
    """Free the row of a sequence that has left the rank and holds no blocks."""
    seq = seqs[s]
    give_back_slice(entries, entry_heads, seq.entry_start, seq.entry_size)
    seq.request = NONE
    seq.next = arena.seq_free
    arena.seq_free = s
    arena.seq_free_count += 1
    rank.owned_seqs -= 1


def free_new_seqs(old: Table[SeqRow], seqs: Table[SeqRow], arena: ArenaRow) -> None:
    """Add the new rows of a table grown from ``old`` to the front of the free list."""
    first, count = len(old), len(seqs)
    if first == count:
        return
    seqs["request"][first:] = NONE
    seqs["next"][first:] = np.arange(first + 1, count + 1)
    seqs[count - 1].next = arena.seq_free if arena.seq_free_count > 0 else NONE
    arena.seq_free = first
    arena.seq_free_count += count - first

"""SGLang's ``lpm`` policy: requests with the longest cached prefix run first.

Rules: engine-sglang.md §11. Of several requests that share an uncached prefix, the first computes
it; the others move behind all other requests.
"""

from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.emission import seq_length
from aisim_gym.engine.kv_pool import block_content, blocks_for
from aisim_gym.engine.radix_pool import cached_pages
from aisim_gym.engine.seq_queue import insert_before, queue_of, unlink
from aisim_gym.engine.tables import (
    NONE,
    UNLIMITED,
    WAITING,
    EngineRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table

MOST_WAITING = 128
"""Queues with more requests are not sorted."""

SHARED_PREFIX_TOKENS = 32


@kernel
def sort_waiting(t: RankTables, engine: EngineRow, rank: RankRow) -> None:
    """Sort the waiting queue into admission order."""
    waiting = t.queues[queue_of(rank.id, WAITING)]
    if waiting.count < 2 or waiting.count > MOST_WAITING or not engine.prefix_caching:
        return
    s = waiting.first
    while s != NONE:
        _set_sort_key(t, engine, rank, waiting, s)
        s = t.seqs[s].next
    s = t.seqs[waiting.first].next
    while s != NONE:
        following = t.seqs[s].next
        _sift_forward(waiting, t.seqs, s)
        s = following


@kernel
def _set_sort_key(
    t: RankTables, engine: EngineRow, rank: RankRow, waiting: QueueRow, s: int
) -> None:
    """Set the sort key of a sequence: its cached pages, or negative if it is moved back."""
    seq = t.seqs[s]
    complete = seq_length(seq) // engine.block_size
    seq.sort_key = cached_pages(t, engine, rank, seq, complete)
    seq.shared_prefix = NONE
    prefix_pages = blocks_for(SHARED_PREFIX_TOKENS, engine.block_size)
    if seq.sort_key * engine.block_size > SHARED_PREFIX_TOKENS or complete < prefix_pages:
        return
    if prefix_pages > seq.shared_blocks:
        return  # tokens of its own match no other request
    prefix = block_content(seq, t.contents, prefix_pages - 1)
    if _is_ahead(waiting, t.seqs, s, prefix):
        seq.sort_key -= UNLIMITED
    seq.shared_prefix = prefix


@kernel
def _is_ahead(waiting: QueueRow, seqs: Table[SeqRow], s: int, prefix: int) -> bool:
    """Return whether a sequence ahead of ``s`` has the same prefix."""
    at = waiting.first
    while at != s:
        if seqs[at].shared_prefix == prefix:
            return True
        at = seqs[at].next
    return False


@kernel
def _sift_forward(waiting: QueueRow, seqs: Table[SeqRow], s: int) -> None:
    """Move a sequence ahead of smaller keys; the sequences ahead of it are already sorted."""
    successor = NONE
    at = seqs[s].previous
    while at != NONE and seqs[at].sort_key < seqs[s].sort_key:
        successor = at
        at = seqs[at].previous
    if successor != NONE:
        unlink(waiting, seqs, s)
        insert_before(waiting, seqs, successor, s)

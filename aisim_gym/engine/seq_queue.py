"""Queues of sequences: doubly linked lists through the sequence table."""

from aisim_gym.engine.tables import NONE, QUEUES_PER_RANK, QueueRow, SeqRow
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table


@kernel
def queue_of(rank_id: int, kind: int) -> int:
    """Return the index of a rank's queue ``WAITING``, ``RUNNING``, ``PENDING`` or ``PREBUILT``."""
    return QUEUES_PER_RANK * rank_id + kind


@kernel
def push_back(queue: QueueRow, seqs: Table[SeqRow], s: int) -> None:
    """Append sequence ``s``."""
    insert_before(queue, seqs, NONE, s)


@kernel
def push_front(queue: QueueRow, seqs: Table[SeqRow], s: int) -> None:
    """Insert sequence ``s`` at the front."""
    insert_before(queue, seqs, queue.first, s)


@kernel
def insert_before(queue: QueueRow, seqs: Table[SeqRow], successor: int, s: int) -> None:
    """Insert sequence ``s`` before ``successor``, or at the end if that is ``NONE``."""
    previous = queue.last if successor == NONE else seqs[successor].previous
    seqs[s].previous = previous
    seqs[s].next = successor
    if previous == NONE:
        queue.first = s
    else:
        seqs[previous].next = s
    if successor == NONE:
        queue.last = s
    else:
        seqs[successor].previous = s
    queue.count += 1


@kernel
def unlink(queue: QueueRow, seqs: Table[SeqRow], s: int) -> None:
    """Remove sequence ``s`` from its queue."""
    previous = seqs[s].previous
    following = seqs[s].next
    if previous == NONE:
        queue.first = following
    else:
        seqs[previous].next = following
    if following == NONE:
        queue.last = previous
    else:
        seqs[following].previous = previous
    seqs[s].previous = NONE
    seqs[s].next = NONE
    queue.count -= 1

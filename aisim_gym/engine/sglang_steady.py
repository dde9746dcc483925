"""Steady decode of an SGLang rank: passes in which every running request emits one token.

This is the counterpart of :mod:`~aisim_gym.engine.steady_decode`. Complete pages move to the radix
tree during steady decode, in an order that determines what is evicted first.
Several passes are applied at once only if that order is known in advance: while no page begins or
ends, or if pages hold one token and are appended to leaves that no other sequence uses. Other
passes run one by one, but still without events.
"""

from aisim_gym.engine.backend import RankTables
from aisim_gym.engine.emission import seq_length
from aisim_gym.engine.kv_pool import blocks_for
from aisim_gym.engine.radix_pool import (
    commit_pages,
    free_pages,
    make_pages_free,
    missing_pages,
    own_pages,
)
from aisim_gym.engine.seq_queue import queue_of
from aisim_gym.engine.sglang_admission import output_left
from aisim_gym.engine.sglang_decode import decode, finish_complete
from aisim_gym.engine.steady_batch import sum_batch
from aisim_gym.engine.tables import (
    NONE,
    PREBUILT,
    ROLE_PREFILL,
    RUNNING,
    WAITING,
    EngineRow,
    NodeRow,
    PassRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.kernel import kernel
from aisim_gym.tables import Table

_NODES_PER_PASS = 2
"""Maximum number of nodes that a request adds to the tree when a page moves there."""


@kernel
def steady_passes(t: RankTables, engine: EngineRow, rank: RankRow, last_entry: int) -> int:
    """Return the number of steady decode passes that an idle rank is certain to run next.

    The last of them may end requests. The sums of the batch are stored in the rank.
    No request may wait, because every pass would attempt its admission, which modifies the tree.

    Args:
        t: Shared tables.
        engine: Role of the rank.
        rank: The rank.
        last_entry: Last entry of the worker's token log; requests without a token in it are not
            yet in step with the others.
    """
    running = t.queues[queue_of(rank.id, RUNNING)]
    prebuilt = t.queues[queue_of(rank.id, PREBUILT)]  # these join steady decode
    count = running.count + prebuilt.count
    if engine.role == ROLE_PREFILL or engine.draft_tokens > 0 or count == 0:
        return 0
    if (
        t.queues[queue_of(rank.id, WAITING)].count > 0
        or rank.new_seqs > 0
        or count > engine.max_seqs
    ):
        return 0
    passes, tokens, squares = sum_batch(
        t.seqs, engine, int(running.first), last_entry, _is_in_step, _tokens_left
    )
    joining = sum_batch(t.seqs, engine, int(prebuilt.first), last_entry, _is_new, _tokens_left)
    passes = min(passes, joining[0])
    if passes == 0:
        return 0
    tokens += joining[1]
    squares += joining[2]
    rank.steady_seqs = count
    rank.steady_tokens = tokens
    rank.steady_squares = squares
    available = free_pages(engine, rank) + rank.evictable_blocks
    return int(min(passes, available // count * engine.block_size))


@kernel
def _is_in_step(engine: EngineRow, seq: SeqRow, last_entry: int) -> bool:
    """Return whether a running sequence got a token with the last entry and has all its pages."""
    return bool(seq.computed_tokens == seq_length(seq) and seq.last_entry == last_entry)


@kernel
def _is_new(engine: EngineRow, seq: SeqRow, last_entry: int) -> bool:
    """Return whether an activated destination is at its first token."""
    return bool(seq.computed_tokens == seq_length(seq) and seq.generated_tokens == 0)


@kernel
def _tokens_left(engine: EngineRow, seq: SeqRow) -> int:
    return output_left(seq)


@kernel
def rows_for_decodes(
    t: RankTables, engine: EngineRow, rank: RankRow, num_passes: int
) -> tuple[int, int]:
    """Return the maximum number of block and node rows taken by the passes, including their end.

    The pages already owned by the requests may move to the tree, and one per page of new tokens.
    """
    if not engine.prefix_caching:
        return 0, 0
    count = t.queues[queue_of(rank.id, RUNNING)].count + t.queues[queue_of(rank.id, PREBUILT)].count
    pages = num_passes // engine.block_size + 1
    return (
        int(rank.private_blocks + count * pages),
        int(count * _NODES_PER_PASS * (pages + 1)),
    )


@kernel
def advance_decodes(
    t: RankTables,
    engine: EngineRow,
    rank: RankRow,
    work: PassRow,
    num_passes: int,
    last_entry: int,
) -> None:
    """Run ``num_passes`` passes of steady decode; requests with their last token end.

    Args:
        t: Shared tables.
        engine: Role of the rank.
        rank: The rank.
        work: Receives the signals of ending requests.
        num_passes: >= 0, at most the result of :func:`steady_passes`.
        last_entry: Token-log entry of their last visible token.
    """
    running = t.queues[queue_of(rank.id, RUNNING)]
    if running.count == 0:
        return
    s = running.first
    while s != NONE:
        t.seqs[s].last_entry = last_entry
        s = t.seqs[s].next
    left = num_passes
    while left > 0:
        passes = min(left, _plain_passes(t, engine, running))
        if passes > 0:
            _run_together(t, engine, rank, running, passes)
            _forget_signals(work)
        else:
            passes = 1
            _run_alone(t, engine, rank, work)
        left -= passes
    rank.pause_rounds = max(0, rank.pause_rounds - num_passes)


@kernel
def _plain_passes(t: RankTables, engine: EngineRow, running: QueueRow) -> int:
    """Return the number of passes that can be applied at once."""
    size = engine.block_size
    in_leaves = engine.prefix_caching and size == 1
    passes = engine.num_blocks * size
    s = running.first
    while s != NONE:
        seq = t.seqs[s]
        passes = min(passes, output_left(seq) - 1)  # a pass that ends a request is not plain
        if in_leaves and not _has_own_leaf(t.nodes, seq):
            return 0
        if engine.prefix_caching and size > 1:
            in_page = seq.computed_tokens % size
            passes = min(passes, 0 if in_page == 0 else size - 1 - in_page)
        s = seq.next
    return int(passes)


@kernel
def _has_own_leaf(nodes: Table[NodeRow], seq: SeqRow) -> bool:
    """Return whether the pages of a sequence end in a leaf used by no other sequence."""
    n = seq.node
    if n == NONE or seq.private_blocks > 0:
        return False
    return bool(nodes[n].parent != NONE and nodes[n].num_children == 0 and nodes[n].locks == 1)


@kernel
def _run_together(
    t: RankTables, engine: EngineRow, rank: RankRow, running: QueueRow, num_passes: int
) -> None:
    """Apply several passes at once.

    Each page that moves to the tree is an access to its path, in the order of the passes; the last
    access sets the stamp.
    """
    for _ in range(num_passes):
        if rank.reserve_ratio == engine.min_ratio:
            break
        rank.reserve_ratio = max(rank.reserve_ratio - engine.ratio_decay, engine.min_ratio)
    growth = 0
    s = running.first
    while s != NONE:
        growth += missing_pages(engine, t.seqs[s], seq_length(t.seqs[s]) + num_passes)
        s = t.seqs[s].next
    make_pages_free(t, engine, rank, growth)
    if engine.prefix_caching and engine.block_size == 1:
        rank.stamps += (num_passes - 1) * running.count
    s = running.first
    while s != NONE:
        seq = t.seqs[s]
        own_pages(
            rank,
            seq,
            blocks_for(seq.computed_tokens + num_passes, engine.block_size)
            - blocks_for(seq.computed_tokens, engine.block_size),
        )
        seq.generated_tokens += num_passes
        seq.computed_tokens += num_passes
        commit_pages(t, engine, rank, seq)
        s = seq.next


@kernel
def _run_alone(t: RankTables, engine: EngineRow, rank: RankRow, work: PassRow) -> None:
    """Run the next pass individually; its end is already known."""
    end_ms = work.end_ms
    work.num_decode = 0
    work.decode_tokens = 0
    work.decode_squares = 0
    work.accept_forwards = 0
    work.accepted_tokens = 0
    _forget_signals(work)
    decode(t, engine, rank, work, 0.0, False)
    finish_complete(t, engine, rank, work)
    work.end_ms = end_ms


@kernel
def _forget_signals(work: PassRow) -> None:
    """Discard the signals of a pass before the last one; it ends no request."""
    work.signal_first = NONE
    work.signal_last = NONE
    work.signal_count = 0

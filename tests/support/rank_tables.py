"""Tables of one rank, small enough to look into, for tests of engine kernels."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.acceptance import WORDS_PER_BLOCK
from aisim_gym.engine.block_commands import block_list_size
from aisim_gym.engine.kv_pool import free_new_blocks
from aisim_gym.engine.seq_rows import create_seq, free_new_seqs
from aisim_gym.engine.slices import make_heads
from aisim_gym.engine.tables import (
    NONE,
    QUEUES_PER_RANK,
    UNLIMITED,
    ArenaRow,
    BlockRow,
    EngineRow,
    NodeRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.tables import Table, make_table

BLOCK_SIZE = 4


def make_engine(**fields: Any) -> EngineRow:
    """Return an engine of 4-token blocks without limits, with some fields set."""
    engine = make_table(EngineRow, 1)[0]
    settings = {
        "dp_size": 1,
        "block_size": BLOCK_SIZE,
        "num_blocks": 8,
        "max_seqs": UNLIMITED,
        "max_batched_tokens": UNLIMITED,
        "max_model_len": UNLIMITED,
        "prefill_interval": 1,
        "prefix_caching": 1,
        "chunked_prefill": 1,
        "recomputes_last": 1,
        **fields,
    }
    for name, value in settings.items():
        setattr(engine, name, value)
    return engine


def empty_rank() -> RankRow:
    """Return a rank that has never worked."""
    rank = make_table(RankRow, 1)[0]
    rank.lru_first = NONE
    rank.lru_last = NONE
    rank.tried_seq = NONE
    return rank


def empty_queue() -> QueueRow:
    """Return a queue without sequences."""
    queue = make_table(QueueRow, 1)[0]
    queue.first = NONE
    queue.last = NONE
    return queue


def free_blocks(count: int) -> tuple[Table[BlockRow], ArenaRow]:
    """Return a block table of ``count`` free rows, a power of two, and its arena."""
    blocks = make_table(BlockRow, count)
    arena = make_table(ArenaRow, 1)[0]
    free_new_blocks(make_table(BlockRow, 0), blocks, arena)
    arena.block_grant = UNLIMITED
    return blocks, arena


@dataclass
class BareRank:
    """One rank with its engine, its sequences and its block pool, as kernels take it.

    Attributes:
        contents: Identities that sequences name by position (``content_start``).
    """

    engine: EngineRow = field(default_factory=make_engine)
    contents: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    rank: RankRow = field(default_factory=empty_rank)
    num_rows: int = 64

    def __post_init__(self) -> None:
        """Make the tables."""
        self.blocks, self.arena = free_blocks(self.num_rows)
        self.seqs: Table[SeqRow] = make_table(SeqRow, 32)
        free_new_seqs(make_table(SeqRow, 0), self.seqs, self.arena)
        self.entries = np.zeros(4096, np.int64)
        self.entry_heads = make_heads()
        self.nodes: Table[NodeRow] = make_table(NodeRow, 0)
        self.draws = np.zeros((1, WORDS_PER_BLOCK), np.int64)
        self.timing_grids = np.zeros(0)
        self.decode_times_ms = np.zeros((2, 64))
        self.prefill_times_ms = np.zeros((2, 64))
        self.queues: Table[QueueRow] = make_table(QueueRow, QUEUES_PER_RANK)
        for name in ("first", "last"):
            self.queues[name][:] = NONE

    def new_seq(self, identities: Sequence[int], prompt_tokens: int, output_tokens: int = 0) -> int:
        """Return a sequence whose complete prompt blocks have these identities."""
        start = len(self.contents)
        self.contents = np.concatenate((self.contents, np.array(identities, np.int64)))
        return create_seq(
            self.rank,
            self.seqs,
            self.arena,
            self.entries,
            self.entry_heads,
            block_list_size(self, self.engine, prompt_tokens + output_tokens),
            request=0,
            prompt_tokens=prompt_tokens,
            max_output_tokens=output_tokens,
            content_start=start,
            shared_blocks=len(identities),
            private_base=1_000 * (1_000 + int(self.rank.arrivals)),
        )

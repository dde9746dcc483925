"""One SGLang rank without a fleet: its tables, its commands, and a loop that runs its passes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aisim_gym.engine.acceptance import WORDS_PER_BLOCK
from aisim_gym.engine.fpm import FpmRow, write_fpm
from aisim_gym.engine.kv_pool import free_new_blocks
from aisim_gym.engine.radix_tree import free_new_nodes
from aisim_gym.engine.seq_rows import create_seq, delete_seq, free_new_seqs
from aisim_gym.engine.sglang import SGLANG
from aisim_gym.engine.slices import make_heads
from aisim_gym.engine.tables import (
    END_NONE,
    END_REJECTED,
    NONE,
    PENDING,
    PREBUILT,
    QUEUES_PER_RANK,
    RETRY_COUNTED,
    RETRY_FREE,
    RUNNING,
    SEQ_HELD,
    TIMING_FIXED,
    UNLIMITED,
    WAITING,
    ArenaRow,
    BlockRow,
    EngineRow,
    NodeRow,
    PassRow,
    QueueRow,
    RankRow,
    SeqRow,
)
from aisim_gym.tables import Table, make_table

INIT_RATIO = 0.7
METRICS = (
    "num_prefill_requests",
    "sum_prefill_tokens",
    "var_prefill_length",
    "sum_prefill_kv_tokens",
    "num_decode_requests",
    "sum_decode_kv_tokens",
    "var_decode_kv_tokens",
    "num_queued_prefill",
    "sum_queued_prefill_tokens",
    "var_queued_prefill_length",
    "num_queued_decode",
    "sum_queued_decode_kv_tokens",
    "var_queued_decode_kv_tokens",
)
"""Order of the metrics of a pass."""


def sglang_engine(conservativeness: float = 1.0, **fields: Any) -> EngineRow:
    """Return an engine with 16 pages of 4 tokens; 10 ms to prefill, 3 ms to decode."""
    engine = make_table(EngineRow, 1)[0]
    ratio = INIT_RATIO * conservativeness
    settings = {
        "dp_size": 1,
        "block_size": 4,
        "num_blocks": 16,
        "max_seqs": 256,
        "max_batched_tokens": UNLIMITED,
        "max_model_len": UNLIMITED,
        "prefix_caching": 1,
        "timing": TIMING_FIXED,
        "fixed_prefill_ms": 10.0,
        "fixed_decode_ms": 3.0,
        "max_prefill_tokens": 16384,
        "chunk_tokens": 8192,
        "clip_tokens": 4096,
        "init_ratio": ratio,
        "min_ratio": ratio * 0.14,
        "ratio_decay": (ratio - ratio * 0.14) / 600.0,
        "draft_seed_low": 42,
        **fields,
    }
    for name, value in settings.items():
        setattr(engine, name, value)
    return engine


class SglangTables(NamedTuple):
    """The tables that the kernels use."""

    queues: Table[QueueRow]
    seqs: Table[SeqRow]
    blocks: Table[BlockRow]
    nodes: Table[NodeRow]
    arena: ArenaRow
    entries: NDArray[np.int64]
    entry_heads: NDArray[np.int64]
    contents: NDArray[np.int64]
    draws: NDArray[np.int64]
    timing_grids: NDArray[np.float64]


def make_tables(num_rows: int = 1024, num_seqs: int = 64) -> SglangTables:
    """Return tables of one rank, all rows free; ``num_rows`` is a power of two."""
    queues = make_table(QueueRow, QUEUES_PER_RANK)
    for name in ("first", "last"):
        queues[name][:] = NONE
    seqs, blocks = make_table(SeqRow, num_seqs), make_table(BlockRow, num_rows)
    nodes = make_table(NodeRow, num_rows)
    arena = make_table(ArenaRow, 1)[0]
    free_new_seqs(make_table(SeqRow, 0), seqs, arena)
    free_new_blocks(make_table(BlockRow, 0), blocks, arena)
    free_new_nodes(make_table(NodeRow, 0), nodes, arena)
    arena.block_grant = arena.node_grant = UNLIMITED
    return SglangTables(
        queues,
        seqs,
        blocks,
        nodes,
        arena,
        np.zeros(4096, np.int64),
        make_heads(),
        np.zeros(0, np.int64),
        np.zeros((1, WORDS_PER_BLOCK), np.int64),
        np.zeros(0),
    )


@dataclass
class SglangRank:
    """A rank that receives commands and runs passes.

    Attributes:
        engine: Its settings.
        t: Its tables.
    """

    engine: EngineRow = field(default_factory=sglang_engine)
    t: SglangTables = field(default_factory=make_tables)

    def __post_init__(self) -> None:
        """Start without sequences."""
        self.ranks = make_table(RankRow, 1)
        self.rank = self.ranks[0]
        self.rank.root = self.rank.tried_seq = NONE
        self.rank.reserve_ratio = self.engine.init_ratio
        self.passes = make_table(PassRow, 1)
        self.work = self.passes[0]
        self._identities: dict[tuple[int, ...], int] = {}

    def new_seq(self, prompt: Sequence[int], output_tokens: int = 0) -> int:
        """Return a sequence with these prompt tokens, in no queue yet."""
        size, start = self.engine.block_size, len(self.t.contents)
        pages = [
            self._identities.setdefault(tuple(prompt[:end]), len(self._identities))
            for end in range(size, len(prompt) + 1, size)
        ]
        self.t = self.t._replace(contents=np.append(self.t.contents, np.array(pages, np.int64)))
        return create_seq(
            self.rank,
            self.t.seqs,
            self.t.arena,
            self.t.entries,
            self.t.entry_heads,
            SGLANG.list_size(self.t, self.engine, len(prompt)),
            request=0,
            prompt_tokens=len(prompt),
            max_output_tokens=SGLANG.output_limit(self.t, self.engine, len(prompt), output_tokens),
            content_start=start,
            shared_blocks=len(pages),
            private_base=1_000 * (1_000 + int(self.rank.arrivals)),
        )

    def submit(self, prompt: Sequence[int], output_tokens: int, is_source: int = 0) -> int:
        """Queue a request; return its sequence."""
        s = self.new_seq(prompt, output_tokens)
        self.t.seqs[s].is_source = bool(is_source)
        SGLANG.submit(self.t, self.rank, s)
        return s

    def accept(self, prompt: Sequence[int], output_tokens: int = 1) -> int:
        """Queue a destination; return its sequence, or ``NONE`` if it can never run."""
        s = self.new_seq(prompt, output_tokens)
        return s if SGLANG.accept_destination(self.t, self.engine, self.rank, s) else NONE

    def reserve(self) -> int:
        """Try to reserve pages for the first destination; return it, or ``NONE``."""
        return int(SGLANG.reserve_destination(self.t, self.engine, self.rank))

    def activate(self, s: int) -> None:
        """Let the KV of a destination arrive."""
        SGLANG.activate_destination(self.t, self.engine, self.rank, s)

    def cancel(self, s: int) -> None:
        """Take a sequence off the rank and delete it."""
        SGLANG.cancel(self.t, self.engine, self.rank, s)
        self.delete(s)

    def release(self, s: int) -> None:
        """Let go of a held source and delete it."""
        SGLANG.release_source(self.t, self.engine, self.rank, s)
        self.delete(s)

    def delete(self, s: int) -> None:
        """Free the row of a sequence."""
        t = self.t
        delete_seq(self.rank, t.seqs, t.arena, t.entries, t.entry_heads, s)

    def run_pass(self, now_ms: float = 0.0) -> PassRow:
        """Run a pass, within the demands it announced; return its sums."""
        arena = self.t.arena
        rows_before = np.array([arena.block_free_count, arena.node_free_count])
        demand = np.array(
            [
                SGLANG.block_demand(self.t, self.engine, self.rank),
                SGLANG.node_demand(self.t, self.engine, self.rank),
            ]
        )
        SGLANG.run_pass(self.t, self.engine, self.rank, self.work, now_ms, 0)
        SGLANG.finish_group(self.t, self.engine, self.ranks, self.passes, 0)
        assert (rows_before - [arena.block_free_count, arena.node_free_count] <= demand).all()
        return self.work

    def queued(self, kind: int) -> list[int]:
        """Return the sequences in a queue."""
        return self._chain(int(self.t.queues[kind].first), "next")

    def admitted(self) -> list[int]:
        """Return the sequences that the last pass admitted."""
        return self._chain(int(self.work.admit_first), "admit_next")

    def signals(self) -> list[int]:
        """Return the sequences that emit or end at the end of the last pass."""
        found = self._chain(int(self.work.signal_first), "signal_next")
        assert len(found) == self.work.signal_count
        return found

    def used_pages(self) -> int:
        """Return pages that are not free."""
        return int(SGLANG.gauge_blocks(self.t, self.engine, self.rank)[0])

    def is_empty(self) -> bool:
        """Return whether no request waits or runs."""
        return not any(self.t.queues[kind].count for kind in (WAITING, RUNNING, PREBUILT, PENDING))

    def _chain(self, s: int, link: str) -> list[int]:
        found: list[int] = []
        while s != NONE:
            assert s not in found
            found.append(s)
            s = int(getattr(self.t.seqs[s], link))
        return found


class Request(NamedTuple):
    """Arrival in ms, prompt tokens, output tokens."""

    at_ms: float
    prompt: Sequence[int]
    output_tokens: int


class Span(NamedTuple):
    """A pass with its metrics, in the order of ``METRICS``, without trailing zeros."""

    start_ms: float
    end_ms: float
    metrics: list[float]


@dataclass
class RankLog:
    """What a rank did with a list of requests.

    Attributes:
        spans: Its passes with effects.
        admissions: (time, reused tokens) of each admission, per request.
        tokens: Time of each token, per request.
        ends: When each request completed or was rejected.
        rejected: The requests that were.
        error: ``stuck`` or ``livelocked`` if it could not go on.
        accepted: Decode forwards, and the tokens they accepted.
        cache: Prompt tokens found in the cache, and looked at.
    """

    spans: list[Span]
    admissions: list[list[tuple[float, int]]]
    tokens: list[list[float]]
    ends: list[float]
    rejected: list[int] = field(default_factory=list)
    error: str = ""
    accepted: tuple[int, int] = (0, 0)
    cache: tuple[int, int] = (0, 0)


def run_requests(
    requests: Sequence[Request],
    engine: EngineRow | None = None,
    check: Callable[[SglangRank], None] = lambda _: None,
) -> RankLog:
    """Run requests on a rank until all have ended or it can not go on.

    Args:
        requests: In order of arrival.
        engine: Settings of the rank.
        check: Called after each pass.
    """
    rank = SglangRank(sglang_engine() if engine is None else engine)
    count = len(requests)
    log = RankLog([], [[] for _ in requests], [[] for _ in requests], [0.0] * count)
    rows: dict[int, int] = {}
    now_ms, retries, arrived = 0.0, 0, 0
    while True:
        if rank.is_empty() and rank.rank.pause_rounds == 0:
            if arrived == count:
                return log
            now_ms = max(now_ms, requests[arrived].at_ms)
        while arrived < count and requests[arrived].at_ms <= now_ms:
            rows[rank.submit(*requests[arrived][1:])] = arrived
            arrived += 1
        work = rank.run_pass(now_ms)
        check(rank)
        for s in rank.admitted():
            log.admissions[rows[s]].append((now_ms, int(rank.t.seqs[s].reused_tokens)))
        has_effects = bool(work.start_effects + work.signal_count + work.ran_model)
        if work.is_undone:
            log.error = "livelocked"
            return log
        if not has_effects and work.end_ms == now_ms:
            retries += work.retry == RETRY_COUNTED
            if retries < 1024 and work.retry in (RETRY_FREE, RETRY_COUNTED):
                continue
            if rank.is_empty():
                continue
            log.error = "stuck"
            return log
        retries = 0
        log.spans.append(_span(work, now_ms))
        log.accepted = _added(log.accepted, work.accept_forwards, work.accepted_tokens)
        log.cache = _added(log.cache, work.cache_hit_tokens, work.cache_total_tokens)
        now_ms = float(work.end_ms)
        for s in rank.signals():
            seq, row = rank.t.seqs[s], rows[s]
            log.tokens[row] += [now_ms] * int(seq.signal_tokens)
            if seq.signal_end != END_NONE:
                log.ends[row] = now_ms
                if seq.signal_end == END_REJECTED:
                    log.rejected.append(row)
                assert seq.status != SEQ_HELD
                rank.delete(s)
                del rows[s]


def _added(sums: tuple[int, int], first: int, second: int) -> tuple[int, int]:
    return sums[0] + int(first), sums[1] + int(second)


def _span(work: PassRow, start_ms: float) -> Span:
    fpm = make_table(FpmRow, 1)[0]
    write_fpm(fpm, work, work.end_ms - start_ms)
    metrics = [float(getattr(fpm, name)) for name in METRICS]
    while metrics and metrics[-1] == 0.0:
        metrics.pop()
    return Span(start_ms, float(work.end_ms), metrics)

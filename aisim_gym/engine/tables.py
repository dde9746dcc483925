"""Tables of the engines: configuration per role, ranks, sequences, KV blocks, passes.

Times are ms of simulated time, lengths are tokens. Rules: reference/engine-vllm-trtllm.md.
"""

from typing import Protocol

from aisim_gym.tables import B1, F8, I4, I8

NONE = -1
"""No row: an empty link, or an id not yet known."""

UNLIMITED = 1 << 60
"""Value of a limit that is not set."""

ROLE_AGGREGATED, ROLE_PREFILL, ROLE_DECODE = 0, 1, 2
TIMING_POLYNOMIAL, TIMING_FIXED, TIMING_TABLE = 0, 1, 2

SEQ_WAITING, SEQ_RUNNING, SEQ_PENDING, SEQ_RESERVED, SEQ_HELD, SEQ_ENDED = 0, 1, 2, 3, 4, 5
SEQ_PREBUILT = 6
"""Status of a sequence: queued; running; destination waiting for blocks; destination with blocks;
finished prefill with KV held for its transfer; finished with its last signal pending; activated
destination in a separate queue (SGLang)."""

WAITING, RUNNING, PENDING, PREBUILT = 0, 1, 2, 3
QUEUES_PER_RANK = 4
"""Queues of a rank, as in ``queues[queue_of(rank.id, WAITING)]``."""

PREEMPT_LAST, PREEMPT_FIRST, PREEMPT_NONE = 0, 1, 2
"""Preemption victim: the running sequence admitted last (lifo), first (fifo), or none."""

END_NONE, END_COMPLETED, END_REJECTED = 0, 1, 2

RETRY_LATER, RETRY_FREE, RETRY_COUNTED, RETRY_EXHAUSTED = 0, 1, 2, 3
"""Retry after a pass with neither duration nor effect: wait for another event; run the next pass
immediately; run it immediately a limited number of times; never, the pass cannot progress."""

MAX_DRAFT_TOKENS = 5


class EngineRow(Protocol):
    """Scheduler configuration of one role, identical for all its workers."""

    role: I8
    dp_size: I8  # ranks per worker
    block_size: I8  # tokens
    num_blocks: I8  # KV blocks per rank
    max_seqs: I8  # running requests per rank, or UNLIMITED
    max_batched_tokens: I8  # token budget of a pass, or UNLIMITED
    max_model_len: I8  # prompt + output, or UNLIMITED
    prefill_interval: I8  # passes between prefills with dp_size > 1
    prefix_caching: B1
    chunked_prefill: B1
    preemption: I8  # PREEMPT_...
    recomputes_last: B1  # a fully cached prompt is recomputed from its last block
    timing: I8  # TIMING_...
    fixed_prefill_ms: F8
    fixed_decode_ms: F8
    prefill_speedup: F8  # 0: no scaling
    decode_speedup: F8  # product of both ratios; 0: no scaling
    max_prefill_tokens: I8  # page-rounded budget of a prefill pass (SGLang, as are the next seven)
    chunk_tokens: I8  # chunk budget of a pass, per rank
    clip_tokens: I8  # maximum output tokens reserved at admission
    init_ratio: F8  # initial fraction of them that is reserved
    min_ratio: F8
    ratio_decay: F8  # per decode pass
    sorts_by_prefix: B1  # lpm, otherwise fifo
    prefill_pause: I8  # decode rounds between prefill passes, prefill_decode_interval
    draft_tokens: I8  # speculative decoding: drafts per step, 0: none
    accept_rate_1: F8  # probability of accepting the first draft;
    accept_rate_2: F8  # the second if the first is accepted; ...
    accept_rate_3: F8
    accept_rate_4: F8
    accept_rate_5: F8
    draft_seed_low: I8  # seed of worker 0, rank 0: lower 32 bits
    draft_seed_high: I8
    startup_ms: F8  # 0: a new worker is active immediately
    transfer_is_timed: B1  # otherwise a transfer takes no time
    transfer_bytes_per_token: F8
    transfer_gb_s: F8  # decimal gigabytes per second
    transfers_missing_only: B1  # transfers only blocks the destination lacks, otherwise all
    table_clamps: B1  # clamps beyond a timing table, otherwise extrapolates its edge cells
    table_rows_are_seqs: B1  # rows of the decode table: sequences, otherwise active tokens
    prefill_floor_ms: F8  # minimum duration from a table
    decode_floor_ms: F8
    prefill_grid: I8  # start of rows, columns and durations in the timing grids
    prefill_rows: I8
    prefill_columns: I8
    decode_grid: I8  # likewise for decode
    decode_rows: I8
    decode_columns: I8


class RankRow(Protocol):
    """One data-parallel rank: its KV pool and scheduler state."""

    id: I8  # its own row
    worker: I8  # row of its worker
    dp_rank: I8
    scheduler_id: I8  # creation order in its pool
    owned_seqs: I8  # sequences that keep the rank from being drained
    reserved_seqs: I8  # destinations with blocks, not yet activated
    arrivals: I8  # commands received so far; order of the waiting queue
    is_capacity_bound: B1  # the latest undeferred pass left requests waiting
    capacity_generation: I8  # incremented when blocks may have become free
    tried_seq: I8  # last pending destination attempted,
    tried_generation: I8  # and its capacity generation
    resident_blocks: I8  # blocks with identity (referenced or evictable)
    evictable_blocks: I8  # unreferenced resident blocks
    private_blocks: I8  # held by a single sequence, without identity
    reserved_blocks: I8  # promised to destinations
    lru_first: I8  # evicted first
    lru_last: I8
    queued_new: I8  # waiting, never admitted: count, sum and sum of squares of prompt tokens
    queued_new_tokens: I8
    queued_new_squares: I8
    queued_decode: I8  # preempted or handed over: count, sum, sum of squares of KV tokens
    queued_decode_tokens: I8
    queued_decode_squares: I8
    promised_blocks: I8  # to the last tokens, except reserved destinations (TRT-LLM)
    reserve_ratio: F8  # reserved fraction of output tokens (SGLang, as are the next five)
    pause_rounds: I8  # prefill-free rounds left
    stamps: I8  # clock of the radix tree
    root: I8  # node row of the tree, or NONE
    new_seqs: I8  # submitted since the last pass, including cancelled ones
    steady_seqs: I8  # steady decode: its batch,
    steady_tokens: I8  # sum of lengths and of squared lengths at its first pass
    steady_squares: I8
    steady_is_summed: B1  # the next three fields are valid
    steady_next_tokens: I8  # sums at the next pass if it is steady,
    steady_next_squares: I8
    steady_next_passes: I8  # and passes until a request ends
    num_draws: I8  # numbers drawn for speculative decoding
    preemptions: I8
    passes: I8  # passes run by this rank; stamps the sequences scheduled in the current pass


class QueueRow(Protocol):
    """First and last sequence of a doubly linked list."""

    first: I8
    last: I8
    count: I8


class SeqRow(Protocol):
    """A request on one rank. Rows are reused after the request has left.

    Fields read by every pass come first, so that they share a cache line.
    """

    next: I4  # neighbours in its queue; also links free rows
    previous: I4
    request: I4
    prompt_tokens: I4
    max_output_tokens: I4
    generated_tokens: I4
    computed_tokens: I4  # tokens with existing KV
    covered_tokens: I4  # tokens with allocated blocks
    resident_blocks: I4  # leading blocks with identity
    private_blocks: I4  # blocks after the resident ones
    last_entry: I8  # token-log entry of the last token, NONE if not in the log
    first_entry: I8  # start of the unbroken stream up to last_entry
    oldest_entry: I8  # oldest entry that the request still needs, or NONE
    stamp: I8  # rank.passes of its last scheduled pass
    pass_tokens: I4  # tokens computed by that pass
    pass_prompt_tokens: I4  # prompt tokens among them
    pass_prefix_tokens: I4  # prompt tokens with KV before the pass
    signal_tokens: I4  # tokens that the pass in flight emits
    signal_next: I4  # next signal of the pass
    signal_end: I4  # END_...
    rank: I4
    status: I4
    listed_blocks: I4  # leading resident blocks with their own row, listed in entries
    shared_blocks: I4  # leading blocks shared with others; identities in contents
    content_start: I8
    private_base: I8  # identity of the first block after the shared ones
    reserved_blocks: I4  # reserved while status is SEQ_RESERVED
    order: I4  # arrival ordinal on the rank
    is_source: B1  # KV is kept after completion until released
    is_destination: B1  # KV comes from a prefill worker
    was_admitted: B1
    reused_tokens: I4  # found in the prefix cache at the last admission
    admit_next: I4  # next admission of the pass
    entry_size: I4  # slice size in the entries array
    entry_start: I8
    node: I4  # deepest locked radix-tree node, or NONE (SGLang, as are the next two)
    shared_prefix: I8  # identity of the first tokens, for comparison with others, or NONE (lpm)
    sort_key: I8  # waiting sequences are in descending order (lpm)


class BlockRow(Protocol):
    """A resident KV block, or several evictable blocks without identity.

    Free rows are linked through ``lru_next``.
    """

    content: I8  # identity of all tokens up to its end; NONE for several blocks
    rank: I4
    refs: I4  # sequences that use it; 0: evictable
    num_blocks: I4  # number of blocks in this row (block pools)
    lru_previous: I4
    lru_next: I4
    chain_next: I4  # next in its hash bucket, oldest first
    bucket_first: I4  # first row of the hash bucket with this row's index
    bucket_last: I4


class NodeRow(Protocol):
    """A node of a radix tree; its edge is a chain of block rows, linked through their LRU fields.

    Free rows are linked through ``parent``.
    """

    rank: I4
    parent: I4
    num_children: I4
    locks: I4  # sequences using it or a descendant
    first_block: I4  # first block of its edge
    last_block: I4
    num_blocks: I4
    heap_child: I4  # eviction heap of the rank
    heap_next: I4
    is_queued: B1  # in the eviction heap
    chain_next: I4  # next in its hash bucket of (parent, identity of the first block)
    bucket_first: I4  # first row of the hash bucket with this row's index
    content: I8  # identity of the first block
    stamp: I8  # last access
    queued_stamp: I8  # stamp on entering the heap


class ArenaRow(Protocol):
    """Free lists of the shared tables: first row and count.

    Rows reserved by steady decode are in the lists but not counted. In a checked build, a step may
    take at most the rows granted by its room request.
    """

    seq_free: I8
    seq_free_count: I8
    block_free: I8
    block_free_count: I8
    block_grant: I8
    node_free: I8
    node_free_count: I8
    node_grant: I8


class PassRow(Protocol):
    """Work of one rank in the pass in flight, as exact integer sums."""

    budget: I8  # tokens left
    preempted: B1  # no further admissions
    num_prefill: I8  # scheduled with prompt tokens
    prefill_tokens: I8  # all tokens they compute
    prefill_lengths: I8  # sum of their prompt lengths and of the squares
    prefill_squares: I8
    prefix_tokens: I8  # prompt tokens with KV before the pass
    prompt_ends: I8  # sum of prompt tokens with KV after the pass
    num_decode: I8  # scheduled without prompt tokens
    decode_tokens: I8  # sum of their lengths and of the squares
    decode_squares: I8
    timed_decodes: I8  # requests charged for a decode step
    timed_tokens: I8  # sum of their lengths
    accept_forwards: I8  # decode requests that emit
    accepted_tokens: I8
    start_effects: I8  # admissions and preemptions
    num_complete: I8  # scheduled requests with no token to generate
    admit_first: I8
    admit_last: I8
    signal_first: I8
    signal_last: I8
    signal_count: I8
    queued_new: I8  # queue load after the state changes of the pass
    queued_new_tokens: I8
    queued_new_squares: I8
    queued_decode: I8
    queued_decode_tokens: I8
    queued_decode_squares: I8
    cache_hit_tokens: I8  # prefix-cache hits of the admitted requests, in tokens
    cache_total_tokens: I8  # prompt tokens looked up by them
    retry: I8  # RETRY_..., used after a pass with neither duration nor effect
    is_undone: B1  # no token was emitted; its preemptions or failed growth will recur
    ran_prefill: B1  # prompt tokens were computed
    ran_model: B1  # any token was computed
    end_ms: F8

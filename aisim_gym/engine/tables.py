"""Tables of the engines: configuration per role, ranks, sequences, KV blocks, one pass's work.

Times are ms of simulated time, lengths are tokens. Rules: reference/engine-vllm-trtllm.md.
"""

from typing import Protocol

from aisim_gym.tables import B1, F8, I4, I8

NONE = -1
"""No row: an empty link or an id that is not known yet."""

UNLIMITED = 1 << 60
"""Stands for a limit that is not set."""

ROLE_AGGREGATED, ROLE_PREFILL, ROLE_DECODE = 0, 1, 2
TIMING_POLYNOMIAL, TIMING_FIXED, TIMING_TABLE = 0, 1, 2

SEQ_WAITING, SEQ_RUNNING, SEQ_PENDING, SEQ_RESERVED, SEQ_HELD, SEQ_ENDED = 0, 1, 2, 3, 4, 5
SEQ_PREBUILT = 6
"""A sequence is queued; running; a destination that waits for blocks; a destination that has
them; a finished prefill whose KV waits for its transfer; over, its last signal not yet seen; an
activated destination in a queue of its own (SGLang)."""

WAITING, RUNNING, PENDING, PREBUILT = 0, 1, 2, 3
QUEUES_PER_RANK = 4
"""``queues[queue_of(rank.id, WAITING)]`` and so on."""

PREEMPT_LAST, PREEMPT_FIRST, PREEMPT_NONE = 0, 1, 2
"""Which running sequence gives up its blocks: the one admitted last (lifo), first (fifo), none."""

END_NONE, END_COMPLETED, END_REJECTED = 0, 1, 2

RETRY_LATER, RETRY_FREE, RETRY_COUNTED, RETRY_EXHAUSTED = 0, 1, 2, 3
"""What to do after a pass without duration or effect: wait for something else to happen; run the
next one at once; the same, but only so many times; it will never do anything by itself."""

MAX_DRAFT_TOKENS = 5


class EngineRow(Protocol):
    """Scheduler configuration of one role; the same for all its workers."""

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
    recomputes_last: B1  # a prompt found whole in the cache is computed again from its last block
    timing: I8  # TIMING_...
    fixed_prefill_ms: F8
    fixed_decode_ms: F8
    prefill_speedup: F8  # 0: not scaled
    decode_speedup: F8  # product of both ratios; 0: not scaled
    max_prefill_tokens: I8  # page-rounded budget of a prefill pass (SGLang, like the next seven)
    chunk_tokens: I8  # chunk budget of a pass, per rank
    clip_tokens: I8  # most output tokens that admission reserves for
    init_ratio: F8  # share of them reserved at first
    min_ratio: F8
    ratio_decay: F8  # per decode pass
    sorts_by_prefix: B1  # lpm, else fifo
    prefill_pause: I8  # decode rounds between prefill passes, prefill_decode_interval
    draft_tokens: I8  # speculative decoding: drafts per step, 0: none
    accept_rate_1: F8  # probability of accepting the first draft,
    accept_rate_2: F8  # of accepting the second if the first was accepted, ...
    accept_rate_3: F8
    accept_rate_4: F8
    accept_rate_5: F8
    draft_seed_low: I8  # of worker 0, rank 0: its lower 32 bits
    draft_seed_high: I8
    startup_ms: F8  # 0: a new worker is active at once
    transfer_is_timed: B1  # else a handoff takes no time
    transfer_bytes_per_token: F8
    transfer_gb_s: F8  # decimal gigabytes per second
    transfers_missing_only: B1  # only blocks the destination lacks, else the whole prompt
    table_clamps: B1  # beyond a timing table its edge counts, else its outermost cells go on
    table_rows_are_seqs: B1  # rows of the decode table are sequences, else active tokens
    prefill_floor_ms: F8  # least that a table yields
    decode_floor_ms: F8
    prefill_grid: I8  # where rows, columns and durations begin in the timing grids
    prefill_rows: I8
    prefill_columns: I8
    decode_grid: I8  # the same for decodes
    decode_rows: I8
    decode_columns: I8


class RankRow(Protocol):
    """One data-parallel rank: its KV pool and scheduler state."""

    id: I8  # own row
    worker: I8  # row of its worker
    dp_rank: I8
    scheduler_id: I8  # creation order in its pool
    owned_seqs: I8  # sequences that keep the rank from being drained
    reserved_seqs: I8  # destinations with blocks, not yet activated
    arrivals: I8  # commands received so far; orders the waiting queue
    is_capacity_bound: B1  # the last undeferred pass left requests waiting
    capacity_generation: I8  # changes when blocks may have become free
    tried_seq: I8  # pending destination tried last,
    tried_generation: I8  # and at which capacity generation
    resident_blocks: I8  # blocks with identity (referenced or evictable)
    evictable_blocks: I8  # of these, not referenced
    private_blocks: I8  # held by one sequence, without identity
    reserved_blocks: I8  # promised to destinations
    lru_first: I8  # evicted first
    lru_last: I8
    queued_new: I8  # waiting, never admitted: count, sum and sum of squares of prompt tokens
    queued_new_tokens: I8
    queued_new_squares: I8
    queued_decode: I8  # preempted or handed over: count, sum, sum of squares of KV tokens
    queued_decode_tokens: I8
    queued_decode_squares: I8
    promised_blocks: I8  # beyond those of reserved destinations, to their last token (TRT-LLM)
    reserve_ratio: F8  # of output tokens, at admission (SGLang, like the next five)
    pause_rounds: I8  # rounds without prefill that are left
    stamps: I8  # clock of the radix tree
    root: I8  # node row of the tree, or NONE
    new_seqs: I8  # submitted since the last pass, those cancelled again included
    steady_seqs: I8  # steady decode: its batch,
    steady_tokens: I8  # sum of the lengths at its first pass, and of the squares
    steady_squares: I8
    steady_is_summed: B1  # the next three are known
    steady_next_tokens: I8  # the sums at the next pass, if it is one of steady decode,
    steady_next_squares: I8
    steady_next_passes: I8  # and passes until a request ends
    num_draws: I8  # numbers drawn for speculative decoding
    preemptions: I8
    passes: I8  # passes run by this rank, marks who was scheduled in the current one


class QueueRow(Protocol):
    """Ends of a doubly linked list of sequences."""

    first: I8
    last: I8
    count: I8


class SeqRow(Protocol):
    """A request on one rank. Rows are reused after the request has left.

    What every pass looks at comes first, so that it shares a cache line.
    """

    next: I4  # neighbours in the queue it is in; also links free rows
    previous: I4
    request: I4
    prompt_tokens: I4
    max_output_tokens: I4
    generated_tokens: I4
    computed_tokens: I4  # whose KV exists
    covered_tokens: I4  # for which blocks are allocated
    resident_blocks: I4  # leading blocks with identity
    private_blocks: I4  # the ones behind them
    last_entry: I8  # of the worker's token log: last token, NONE if it is not in the log
    first_entry: I8  # where the unbroken stream up to it begins
    oldest_entry: I8  # the oldest one that the request still needs, or NONE
    stamp: I8  # rank.passes of the pass it was scheduled in last
    pass_tokens: I4  # what that pass computes
    pass_prompt_tokens: I4  # of these, prompt
    pass_prefix_tokens: I4  # prompt tokens known before
    signal_tokens: I4  # tokens that the pass in flight emits
    signal_next: I4  # list of this pass's signals
    signal_end: I4  # END_...
    rank: I4
    status: I4
    listed_blocks: I4  # the first of the resident ones, with a row each, listed in entries
    shared_blocks: I4  # leading blocks that others have, too: identities in the contents array
    content_start: I8
    private_base: I8  # identity of the first block behind them
    reserved_blocks: I4  # promised, while status is SEQ_RESERVED
    order: I4  # arrival ordinal on the rank
    is_source: B1  # KV is kept after completion until released
    is_destination: B1  # KV comes from a prefill worker
    was_admitted: B1
    reused_tokens: I4  # found in the prefix cache at the last admission
    admit_next: I4  # list of this pass's admissions
    entry_size: I4  # slice of the entries array
    entry_start: I8
    node: I4  # deepest locked node of the radix tree, or NONE (SGLang, like the next two)
    shared_prefix: I8  # identity of the first tokens, compared with others that wait, or NONE (lpm)
    sort_key: I8  # waiting sequences run in descending order of it (lpm)


class BlockRow(Protocol):
    """A resident KV block, or several that nobody looks for any more.

    Free rows are linked through ``lru_next``.
    """

    content: I8  # identity: the chain of all tokens up to its end; NONE for several
    rank: I4
    refs: I4  # sequences that use it; 0: evictable
    num_blocks: I4  # for which it stands (block pools)
    lru_previous: I4
    lru_next: I4
    chain_next: I4  # next in its hash bucket, oldest first
    bucket_first: I4  # of the hash bucket that has this row's number
    bucket_last: I4


class NodeRow(Protocol):
    """A node of a radix tree; its edge is a chain of block rows, linked through their LRU fields.

    Free rows are linked through ``parent``.
    """

    rank: I4
    parent: I4
    num_children: I4
    locks: I4  # sequences that use it or a node below
    first_block: I4  # of its edge
    last_block: I4
    num_blocks: I4
    heap_child: I4  # eviction heap of the rank
    heap_next: I4
    is_queued: B1  # in the eviction heap
    chain_next: I4  # next in its hash bucket of (parent, identity of the first block)
    bucket_first: I4  # of the hash bucket that has this row's number
    content: I8  # identity of the first block
    stamp: I8  # last access
    queued_stamp: I8  # when it entered the heap


class ArenaRow(Protocol):
    """Free lists of the shared tables: first row and count.

    Rows that steady decode has set aside are in the lists, but not counted. In a checked build, a
    step may take no more rows than it was granted when it asked for room.
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
    """What one rank does in the pass in flight; sums of exact integers."""

    budget: I8  # tokens left
    preempted: B1  # no admissions any more
    num_prefill: I8  # scheduled with prompt tokens
    prefill_tokens: I8  # all tokens they compute
    prefill_lengths: I8  # sum of their prompt lengths, and of the squares
    prefill_squares: I8
    prefix_tokens: I8  # prompt tokens known before
    prompt_ends: I8  # sum of prompt tokens known after
    num_decode: I8  # scheduled without prompt tokens
    decode_tokens: I8  # sum of their lengths, and of the squares
    decode_squares: I8
    timed_decodes: I8  # requests a decode step is charged for
    timed_tokens: I8  # sum of their lengths
    accept_forwards: I8  # decode requests that emit
    accepted_tokens: I8
    start_effects: I8  # admissions and preemptions
    num_complete: I8  # scheduled requests without a token to generate
    admit_first: I8
    admit_last: I8
    signal_first: I8
    signal_last: I8
    signal_count: I8
    queued_new: I8  # queues after the pass's state changes
    queued_new_tokens: I8
    queued_new_squares: I8
    queued_decode: I8
    queued_decode_tokens: I8
    queued_decode_squares: I8
    cache_hit_tokens: I8  # prompt tokens found in the prefix cache by what the pass admitted
    cache_total_tokens: I8  # and all that it looked at
    retry: I8  # RETRY_..., read after a pass without duration or effect
    is_undone: B1  # nobody got a token, and who was preempted or could not grow will be again
    ran_prefill: B1  # it computed prompt tokens
    ran_model: B1  # it computed anything
    end_ms: F8

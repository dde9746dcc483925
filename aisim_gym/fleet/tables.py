"""Tables of the fleet: workers, pools, handoffs, events, the clock.

Rules: replay-runtime.md §2, §6, §7, §10. Times are ms of simulated time.
"""

from typing import Protocol

from aisim_gym.tables import B1, F8, I4, I8

PREFILL, DECODE = 0, 1
"""Index of a pool. An aggregated fleet has only ``DECODE``, as in the reference's reports."""

WORKER_STARTING, WORKER_ACTIVE, WORKER_DRAINING, WORKER_REMOVED = 1, 2, 3, 4

ROSTER_LIVE, ROSTER_ACTIVE, ROSTER_READY, ROSTER_DEFERRED = 0, 2, 4, 6
NUM_ROSTERS = 8
"""``rosters[ROSTER_ACTIVE + pool]``: worker rows of a pool. Live and active ones ascend; ready is a
heap of workers that may start a pass; deferred ones started one without any effect."""

OPENING_UNSETTLED, OPENING_SAMPLED, OPENING_DONE = 0, 1, 2
"""The first instant is to be settled; then comes the first sample, then the first tick is armed."""

CAUSE_PLANNER, CAUSE_READY, CAUSE_DRAINED = 0, 1, 2

ACTION_SUBMIT, ACTION_RESERVE, ACTION_TRANSFER, ACTION_ACTIVATE, ACTION_RELEASE = 1, 2, 3, 4, 5
ACTION_CANCEL_SOURCE, ACTION_CANCEL_DESTINATION, ACTION_COMPLETE = 6, 7, 8

QUEUE_PENDING, QUEUE_NO_WORKER, QUEUE_DEFERRED = 0, 1, 3
"""Action queues: to execute now; ``QUEUE_NO_WORKER + pool``: no active worker there;
``QUEUE_DEFERRED + rank``: until that rank's pass ends."""


NUM_POOLS = 2
NUM_WINDOWS = 2
NUM_HEAPS = 6
"""Rows of ``heaps``, see fleet/events.py."""

TOKENIZING, DETOKENIZING, ENCODING = 0, 1, 2
NUM_STAGES = 3
"""Optional stages that a request leaves by a timer: with its prompt, last output, embeddings."""


class OptionsRow(Protocol):
    """What a run is like, and what it records; it never changes while the run goes on."""

    backend: I8  # world type, an index of fleet/worlds.py
    max_in_flight: I8  # requests, or active sessions, at a time; 0: as they arrive
    is_disaggregated: B1
    reserves_first: B1  # a handoff reserves its destination before it submits the prompt
    has_stages: B1  # any part of fleet/stages.py is on
    is_delta: B1  # a prompt repeats all turns before it
    fast_forwards: B1  # steady decode runs as one event, else pass by pass
    captures_requests: B1  # keep the admission log
    captures_gaps: B1  # keep statistics of the gaps between tokens
    captures_operations: B1  # keep lifecycle operations


class ClockRow(Protocol):
    """Where a run is: simulated time, and counts of what has happened up to now."""

    now_ms: F8
    max_sim_ms: F8  # soft cap, +inf if none
    next_tick_ms: F8  # the tick to arm after the first settle, +inf if none
    instants_left: I8  # to settle before the run pauses for its caller
    opening: I8  # OPENING_...
    tick_ordinal: I8  # ticks shown to the planner so far
    tick_shown: B1  # a tick waits for its decision
    ticks_are_over: B1  # no tick will come any more
    stuck_ticks: I8  # consecutive ticks in a run that nothing can move
    progress: I8  # grows with arrivals, signals, handoff actions, and workers that come or go
    next_arrival: I8  # request or session, see fleet/arrivals.py
    arrived_requests: I8
    sources_left: I8  # requests, or sessions, that still have something to admit
    in_flight: I8  # arrived, not terminal for the client
    handoff_count: I8
    open_handoffs: I8  # handoffs not yet retired
    transfers: I8  # among the events
    committed_prefill_tokens: I8
    admission_count: I8
    operation_count: I8
    log_rows: I8  # rows of token logs ever used


class ResumeRow(Protocol):
    """Where compiled code goes on when it is called again amid an instant."""

    phase: I8  # of the settle iteration
    changed: B1  # this iteration did something
    is_driven: B1  # passes were started at this instant already
    resumes_drive: B1  # starting passes was interrupted by growth
    immediate_effects: B1  # the immediate pass admitted or preempted something
    immediate_worker: I8  # its pass took no time and waits to be completed, or NONE
    livelocked_worker: I8  # seems to repeat its passes for ever, or NONE
    failed_request: I8  # whose action addressed a removed worker
    room_table: I8  # number of the table that must grow,
    room_amount: I8  # and by how many rows at least; of workers and ranks: how many there must be


class TelemetryRow(Protocol):
    """What is measured while the run goes on."""

    is_on: B1  # samples are taken
    collects_fpm: B1  # a planner reads forward-pass metrics
    sample_origin_ms: F8
    sample_interval_ms: F8
    next_sample_ms: F8  # +inf if none is armed
    sample_ordinal: I8  # periodic samples so far


class PoolRow(Protocol):
    """One pool of workers."""

    worker_seconds: F8  # paid up to paid_until_ms: when live_count changed last
    paid_until_ms: F8
    live_count: I8  # starting + active + draining
    active_count: I8
    starting_count: I8
    draining_count: I8
    num_workers: I8  # ever created, the next worker id
    num_ranks: I8  # ever created, the next scheduler id
    next_candidate: I8  # round-robin pointer
    ready_count: I8
    sample_hit_tokens: I8  # since the last telemetry sample: prefix-cache hits,
    sample_total_tokens: I8  # the tokens looked up,
    sample_preemptions: I8  # and preemptions
    deferred_count: I8
    had_deferred: B1  # a worker was deferred when passes were started last
    drain_check: B1  # a draining worker may have become removable


class WorkerRow(Protocol):
    """One worker and its life; times and operations are -1 until they happen."""

    pool: I8
    id: I8  # per pool, in creation order, never reused
    state: I8
    first_rank: I8  # row; its ranks follow, see ranks_of
    num_ranks: I8
    next_rank: I8  # round robin inside the worker
    is_queued_ready: B1
    is_deferred: B1
    is_busy: B1  # a pass is in flight
    steady_stale_rows: B1  # requests were not told of all their visible tokens
    pass_start_ms: F8
    pass_end_ms: F8
    steady_passes: I8  # of steady decode until its event, 0: it runs pass by pass
    steady_start_ms: F8  # start of the first of them
    steady_entry: I8  # their first entry in the token log
    steady_published: I8  # passes whose end is visible
    steady_applied: I8  # passes that sequences and blocks know of
    steady_block_rows: I8  # rows of the block and of the node table that are set aside for them
    steady_node_rows: I8
    steady_block_grant: I8  # of these, rows that its passes may still take (checked build)
    steady_node_grant: I8
    retries: I8  # consecutive passes without duration or effect that were retried
    undone_passes: I8  # passes that were undone since the last progress in the fleet
    progress_seen: I8  # clock.progress at that time
    wave: I8  # group passes since it was last drained
    created_ms: F8
    ready_ms: F8
    draining_ms: F8
    removed_ms: F8
    created_operation: I8
    ready_operation: I8
    draining_operation: I8
    removed_operation: I8


class OperationRow(Protocol):
    """One lifecycle operation: a batch of transitions of a pool (§8)."""

    at_ms: F8
    pool: I8
    cause: I8  # CAUSE_...
    tick_ordinal: I8  # -1 without a tick


class HandoffRow(Protocol):
    """Prefill-to-decode handoff of the request with the same row (§10)."""

    action: I4  # issued and not yet done, or 0
    next: I4  # in its action queue
    prefill_seq: I4
    decode_seq: I4
    prefill_rank: I4  # rank rows, NONE until submitted or accepted
    decode_rank: I4
    transferable_tokens: I4
    id: I4  # handoffs in order of admission
    is_held: B1  # facts and issued actions
    is_reserved: B1
    is_transferred: B1
    is_activated: B1
    submit_issued: B1
    reserve_issued: B1
    transfer_issued: B1
    activate_issued: B1
    release_issued: B1
    source_cleaned: B1
    destination_cleaned: B1
    is_cleaning_up: B1
    is_complete: B1
    is_counted: B1  # its request needs the fleet still
    is_retired: B1


class StageTimesRow(Protocol):
    """When a request left the stages in front of its prefill; NaN until then."""

    encoder_ready_ms: F8
    tokenized_ms: F8


class SessionRow(Protocol):
    """Turns of one user, one after the other: consecutive request rows."""

    first: I8  # request row of the first turn
    next_turn: I8  # of the turn that comes next
    end: I8  # row behind the last turn


class GaugeRow(Protocol):
    """State of a rank as telemetry shows it: after the last command or pass end."""

    active_blocks: I8
    inactive_blocks: I8
    running: I8
    waiting: I8  # destinations without KV included
    preemptions: I8  # ever


class ActionQueueRow(Protocol):
    """Ends of a list of requests whose handoff action waits."""

    first: I8
    last: I8

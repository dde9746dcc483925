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
heap of workers that may start a pass; deferred workers started a pass without effect."""

OPENING_UNSETTLED, OPENING_SAMPLED, OPENING_DONE = 0, 1, 2
"""Opening steps of a run: settle the first instant, take the first sample, arm the first tick."""

CAUSE_PLANNER, CAUSE_READY, CAUSE_DRAINED = 0, 1, 2

ACTION_SUBMIT, ACTION_RESERVE, ACTION_TRANSFER, ACTION_ACTIVATE, ACTION_RELEASE = 1, 2, 3, 4, 5
ACTION_CANCEL_SOURCE, ACTION_CANCEL_DESTINATION, ACTION_COMPLETE = 6, 7, 8

QUEUE_PENDING, QUEUE_NO_WORKER, QUEUE_DEFERRED = 0, 1, 3
"""Action queues: to execute now; ``QUEUE_NO_WORKER + pool``: waiting for an active worker of the
pool; ``QUEUE_DEFERRED + rank``: waiting for the end of the rank's pass."""


NUM_POOLS = 2
NUM_WINDOWS = 2
NUM_HEAPS = 6
"""Rows of ``heaps``, see fleet/events.py."""

TOKENIZING, DETOKENIZING, ENCODING = 0, 1, 2
NUM_STAGES = 3
"""Optional stages with timers, for the prompt, the last output and the encoder input."""


class OptionsRow(Protocol):
    """Options of a run: its behaviour and what it records. Constant during the run."""

    backend: I8  # world type, an index of fleet/worlds.py
    max_in_flight: I8  # requests, or active sessions, at a time; 0: as they arrive
    is_disaggregated: B1
    reserves_first: B1  # a handoff reserves its destination before it submits the prompt
    has_stages: B1  # any stage of fleet/stages.py is enabled
    is_delta: B1  # a prompt repeats all previous turns
    fast_forwards: B1  # steady decode runs as one event, otherwise pass by pass
    captures_requests: B1  # keep the admission log
    captures_gaps: B1  # keep statistics of the gaps between tokens
    captures_operations: B1  # keep lifecycle operations


class ClockRow(Protocol):
    """Progress of a run: simulated time, and counts of past and pending work."""

    now_ms: F8
    max_sim_ms: F8  # soft cap, +inf if none
    next_tick_ms: F8  # tick to arm after the first settle, +inf if none
    instants_left: I8  # instants to settle before returning to the caller
    opening: I8  # OPENING_...
    tick_ordinal: I8  # ticks shown to the planner so far
    tick_shown: B1  # a tick awaits its decision
    ticks_are_over: B1  # no further tick is scheduled
    stuck_ticks: I8  # consecutive ticks without possible progress
    progress: I8  # counts arrivals, signals, handoff actions, worker additions and removals
    next_arrival: I8  # request or session, see fleet/arrivals.py
    arrived_requests: I8
    sources_left: I8  # requests, or sessions, with something left to admit
    in_flight: I8  # requests arrived and not terminal for the client
    handoff_count: I8
    open_handoffs: I8  # handoffs not yet retired
    transfers: I8  # transfer ends among the events
    committed_prefill_tokens: I8
    admission_count: I8
    operation_count: I8
    log_rows: I8  # rows of token logs used so far


class ResumeRow(Protocol):
    """Where compiled code resumes when it is called again within an instant."""

    phase: I8  # of the settle iteration
    changed: B1  # this iteration did something
    is_driven: B1  # passes have already started at this instant
    resumes_drive: B1  # table growth interrupted the start of passes
    immediate_effects: B1  # the immediate pass admitted or preempted something
    immediate_worker: I8  # worker whose zero-duration pass is to be completed, or NONE
    livelocked_worker: I8  # worker that repeats its passes forever, or NONE
    failed_request: I8  # request whose action addressed a removed worker
    room_table: I8  # identifier of the table that must grow,
    room_amount: I8  # and minimum additional rows; for workers and ranks: total rows


class TelemetryRow(Protocol):
    """Telemetry and metrics collected during the run."""

    is_on: B1  # periodic samples are taken
    collects_fpm: B1  # a planner reads forward-pass metrics
    sample_origin_ms: F8
    sample_interval_ms: F8
    next_sample_ms: F8  # +inf if none is armed
    sample_ordinal: I8  # periodic samples so far


class PoolRow(Protocol):
    """One pool of workers."""

    worker_seconds: F8  # paid up to paid_until_ms, the last change of live_count
    paid_until_ms: F8
    live_count: I8  # starting + active + draining
    active_count: I8
    starting_count: I8
    draining_count: I8
    num_workers: I8  # created so far, the next worker id
    num_ranks: I8  # created so far, the next scheduler id
    next_candidate: I8  # round-robin pointer
    ready_count: I8
    sample_hit_tokens: I8  # since the last telemetry sample: prefix-cache hits,
    sample_total_tokens: I8  # the tokens looked up,
    sample_preemptions: I8  # and preemptions
    deferred_count: I8
    had_deferred: B1  # a worker was deferred at the last start of passes
    drain_check: B1  # a draining worker may have become removable


class WorkerRow(Protocol):
    """One worker and its lifecycle; times and operations are -1 until they occur."""

    pool: I8
    id: I8  # per pool, in creation order, never reused
    state: I8
    first_rank: I8  # row of its first rank; the others follow, see ranks_of
    num_ranks: I8
    next_rank: I8  # round robin inside the worker
    is_queued_ready: B1
    is_deferred: B1
    is_busy: B1  # a pass is in flight
    steady_stale_rows: B1  # rows of requests lack some visible tokens
    pass_start_ms: F8
    pass_end_ms: F8
    steady_passes: I8  # steady decode passes until its event, 0: runs pass by pass
    steady_start_ms: F8  # start of the first of them
    steady_entry: I8  # their first entry in the token log
    steady_published: I8  # passes whose end is visible
    steady_applied: I8  # passes applied to sequences and blocks
    steady_block_rows: I8  # block and node rows reserved for these passes
    steady_node_rows: I8
    steady_block_grant: I8  # reserved rows not taken yet (checked build)
    steady_node_grant: I8
    retries: I8  # consecutive retried passes with neither duration nor effect
    undone_passes: I8  # passes undone since the last progress in the fleet
    progress_seen: I8  # clock.progress at the last undone pass
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
    tick_ordinal: I8  # -1 if not caused by a tick


class HandoffRow(Protocol):
    """Prefill-to-decode handoff of the request in the same row (§10)."""

    action: I4  # action issued but not executed, or 0
    next: I4  # next request in its action queue
    prefill_seq: I4
    decode_seq: I4
    prefill_rank: I4  # rank rows, NONE until submitted or accepted
    decode_rank: I4
    transferable_tokens: I4
    id: I4  # handoff id, in order of admission
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
    is_counted: B1  # its request still needs the fleet
    is_retired: B1


class StageTimesRow(Protocol):
    """When a request left each stage before prefill; NaN until then."""

    encoder_ready_ms: F8
    tokenized_ms: F8


class SessionRow(Protocol):
    """Sequential turns of one user, in consecutive request rows."""

    first: I8  # request row of the first turn
    next_turn: I8  # request row of the next turn
    end: I8  # request row after the last turn


class GaugeRow(Protocol):
    """State of a rank as shown by telemetry, as of the last command or pass end."""

    active_blocks: I8
    inactive_blocks: I8
    running: I8
    waiting: I8  # including destinations without KV
    preemptions: I8  # total so far


class ActionQueueRow(Protocol):
    """First and last request in a linked list of waiting handoff actions."""

    first: I8
    last: I8

"""Sequences that run requests on ranks, and the end of a request."""

from aisim_gym.engine.backend import list_size, output_limit
from aisim_gym.engine.seq_rows import create_seq, delete_seq
from aisim_gym.errors import TableFullError
from aisim_gym.fleet.arrivals import continue_session
from aisim_gym.fleet.room import request_room_for_list
from aisim_gym.fleet.tables import PREFILL
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel
from aisim_gym.metrics.request_times import (
    POOL_AGGREGATED,
    REQUEST_OPEN,
    record_admission,
    record_terminal,
)


@kernel
def seq_needs(w: World, pool_id: int, request: int) -> tuple[int, int]:
    """Return what a request needs in a pool, for both the room check and the allocation.

    A prefill copy generates at most one token. A request without output generates none there
    either, so it ends before the others of its pass.

    Returns:
        (maximum output tokens of its sequence, length of its block list).
    """
    row = w.requests[request]
    engine = w.engines[pool_id]
    prompt_tokens = int(row.input_tokens)
    output_tokens = int(row.output_tokens)
    if pool_id == PREFILL:
        output_tokens = min(1, output_tokens)
    limit = int(output_limit(w, engine, prompt_tokens, output_tokens))
    return limit, int(list_size(w, engine, prompt_tokens + limit))


@kernel
def request_room_for_seq(w: World, pool_id: int, request: int) -> bool:
    """Return whether the sequence of a request can be created in a pool."""
    _, size = seq_needs(w, pool_id, request)
    return request_room_for_list(w, size)


@kernel
def add_request_seq(w: World, rank_id: int, request: int) -> int:
    """Create the sequence of ``request`` on a rank, in no queue yet; return it."""
    row = w.requests[request]
    rank = w.ranks[rank_id]
    limit, size = seq_needs(w, int(w.workers[rank.worker].pool), request)
    return create_seq(
        rank,
        w.seqs,
        w.arena,
        w.entries,
        w.entry_heads,
        size,
        request,
        int(row.input_tokens),
        limit,
        row.content_start,
        int(row.shared_blocks),
        row.private_base,
    )


@kernel
def drop_request_seq(w: World, s: int) -> None:
    """Free a sequence that has left its queues and holds no blocks."""
    delete_seq(w.ranks[w.seqs[s].rank], w.seqs, w.arena, w.entries, w.entry_heads, s)


@kernel
def record_admission_of(w: World, pool_id: int, s: int) -> None:
    """Record that a rank of a pool starts to process the request of a sequence."""
    seq = w.seqs[s]
    pool = pool_id if w.options.is_disaggregated else POOL_AGGREGATED
    record_admission(w.requests[seq.request], pool, seq.reused_tokens, w.clock.now_ms)
    if w.options.captures_requests:
        if w.clock.admission_count >= len(w.admissions):
            raise TableFullError("admissions")
        admission = w.admissions[w.clock.admission_count]
        admission.request = seq.request
        admission.pool = pool
        admission.at_ms = w.clock.now_ms
        admission.reused_tokens = seq.reused_tokens
        w.clock.admission_count += 1


@kernel
def end_request(w: World, request: int, status: int) -> None:
    """Record the outcome of a request; later outcomes of the same request are ignored."""
    if w.requests[request].status != REQUEST_OPEN:
        return
    record_terminal(
        w.requests[request],
        status,
        w.breaks,
        w.break_heads,
        w.statistics,
        w.buckets,
        w.clock.now_ms,
    )
    continue_session(w, request)


@kernel
def conclude_request(w: World, request: int, status: int) -> None:
    """End a request whose client has its outcome; it is no longer in flight."""
    end_request(w, request, status)
    w.clock.in_flight -= 1

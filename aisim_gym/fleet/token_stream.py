"""Token streams from a worker's requests to the clients, and the worker's token log.

A token is in step if its log entry directly follows the entry of the previous token of its request.
Any other token is a break in the stream of its request (:mod:`~aisim_gym.metrics.request_times`).
"""

import math

from aisim_gym.engine.seq_queue import queue_of
from aisim_gym.engine.tables import NONE, RUNNING, WAITING
from aisim_gym.fleet.room import LOG_ENTRIES, request_rows
from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.fleet.worker_ranks import ranks_of
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel
from aisim_gym.metrics.gap_statistics import GAP, NUM_SAMPLES, RATE
from aisim_gym.metrics.request_times import record_break, weigh_broken_streams
from aisim_gym.metrics.token_log import (
    append_entry,
    drop_entries,
    entry_row,
    free_entries,
    move_log,
    settle_entries,
    weigh_stream,
)

SMALLEST_LOG = 512


@kernel
def request_room_in_log(w: World, row: int, count: int) -> bool:
    """Return whether a worker's log has room for ``count`` entries; settle old ones if needed."""
    log = w.token_logs[row]
    if free_entries(log) >= count:
        return True
    if log.capacity > 0:
        _settle(w, row, _oldest_needed_entry(w, row), False)
    if free_entries(log) >= max(count, log.capacity // 4):
        return True
    size = max(SMALLEST_LOG, 2 * log.capacity)
    while size - (log.next - log.first) - 1 < count:
        size *= 2
    if w.clock.log_rows + size > len(w.log_entries):
        return request_rows(w, LOG_ENTRIES, w.clock.log_rows + size - len(w.log_entries))
    move_log(log, w.log_entries, int(w.clock.log_rows), size)
    w.clock.log_rows += size
    return True


@kernel
def settle_logs(w: World) -> None:
    """Settle all logs completely at the end of a run."""
    for row in range(w.pools[PREFILL].num_workers + w.pools[DECODE].num_workers):
        _settle(w, row, int(w.token_logs[row].next), True)


@kernel
def log_pass(w: World, row: int) -> int:
    """Add a log entry for the pass that ends now if its tokens are in step; return it or ``NONE``.

    The tokens are in step if they continue the streams of the last entry. While a pass for other
    requests stalls these streams, the tokens of that pass are out of step.
    """
    worker = w.workers[row]
    if worker.pool != DECODE or w.server_stages[DECODE].num_servers > 0:
        return NONE
    log = w.token_logs[row]
    has_tokens = False
    for r in ranks_of(worker):
        s = w.passes[r].signal_first
        while s != NONE:
            seq = w.seqs[s]
            if seq.signal_tokens > 0:
                has_tokens = True
                if seq.last_entry != NONE and seq.last_entry >= log.next - 1:
                    return append_entry(log, w.log_entries, w.clock.now_ms)
            s = seq.signal_next
    if not has_tokens or _somebody_streams(w, row):
        return NONE
    return append_entry(log, w.log_entries, w.clock.now_ms)


@kernel
def start_stream(w: World, s: int, entry: int) -> None:
    """Start the stream of a request: its first token comes with a future entry."""
    seq = w.seqs[s]
    seq.oldest_entry = entry
    seq.first_entry = entry
    seq.last_entry = entry - 1


@kernel
def send_tokens(w: World, s: int, entry: int, received_ms: float) -> None:
    """Send the client the tokens that a pass emitted for a sequence, at least one.

    Args:
        w: Modified in place; must have room for a break.
        s: The sequence.
        entry: Log entry of this pass, or ``NONE``.
        received_ms: When the client receives them.
    """
    seq = w.seqs[s]
    request = w.requests[seq.request]
    tokens = seq.signal_tokens
    if seq.generated_tokens == tokens:
        request.first_token_ms = received_ms
        seq.first_entry = entry
        seq.oldest_entry = entry
    elif entry == NONE or seq.last_entry == NONE or seq.last_entry < entry - 1:
        if w.options.captures_gaps:
            _break_stream(w, s, received_ms)
        seq.first_entry = entry
        if seq.oldest_entry == NONE:
            seq.oldest_entry = entry
    seq.last_entry = entry
    if tokens > 1:
        request.zero_gaps += tokens - 1
    if math.isnan(request.second_token_ms) and seq.generated_tokens > 1:
        if seq.generated_tokens - tokens > 1 or math.isnan(request.first_token_ms):
            # These tokens come from steady decode.
            _show_first_tokens(w, s, int(seq.generated_tokens))
        else:
            request.second_token_ms = received_ms
    request.emitted_tokens = seq.generated_tokens
    request.last_token_ms = received_ms


@kernel
def show_tokens(w: World, s: int, tokens: int, entry: int) -> None:
    """Update the times of a request up to its ``tokens``-th token, which came with ``entry``."""
    seq = w.seqs[s]
    request = w.requests[seq.request]
    log = w.token_logs[w.ranks[seq.rank].worker]
    if math.isnan(request.second_token_ms):
        _show_first_tokens(w, s, tokens)
    request.emitted_tokens = tokens
    request.last_token_ms = w.log_entries[entry_row(log, entry)].end_ms


@kernel
def _show_first_tokens(w: World, s: int, tokens: int) -> None:
    """Set the times of the first two of ``tokens`` tokens in an unbroken stream."""
    seq = w.seqs[s]
    request = w.requests[seq.request]
    log = w.token_logs[w.ranks[seq.rank].worker]
    if math.isnan(request.first_token_ms):
        request.first_token_ms = w.log_entries[entry_row(log, seq.first_entry)].end_ms
    if tokens > 1:
        request.second_token_ms = w.log_entries[entry_row(log, seq.first_entry + 1)].end_ms


@kernel
def close_stream(w: World, s: int) -> None:
    """Count the token gaps of a completed request."""
    seq = w.seqs[s]
    if seq.oldest_entry == NONE or not w.options.captures_gaps:
        return
    log = w.token_logs[w.ranks[seq.rank].worker]
    weigh_broken_streams(w.requests[seq.request], w.breaks, log, w.log_entries)
    if seq.first_entry != NONE:
        weigh_stream(log, w.log_entries, int(seq.first_entry), int(seq.last_entry))


@kernel
def _break_stream(w: World, s: int, received_ms: float) -> None:
    seq = w.seqs[s]
    request = w.requests[seq.request]
    record_break(
        request,
        w.breaks,
        w.break_heads,
        int(seq.first_entry),
        int(seq.last_entry),
        received_ms - request.last_token_ms,
    )


@kernel
def _somebody_streams(w: World, row: int) -> bool:
    """Return whether a running request got a token with the last entry of the log."""
    worker = w.workers[row]
    last_entry = w.token_logs[row].next - 1
    for r in ranks_of(worker):
        s = w.queues[queue_of(r, RUNNING)].first
        while s != NONE:
            if w.seqs[s].last_entry != NONE and w.seqs[s].last_entry == last_entry:
                return True
            s = w.seqs[s].next
    return False


@kernel
def _oldest_needed_entry(w: World, row: int) -> int:
    """Return the oldest entry that a request on a worker still needs; the next one if none does."""
    worker = w.workers[row]
    oldest = w.token_logs[row].next
    for r in ranks_of(worker):
        for kind in (RUNNING, WAITING):
            s = w.queues[queue_of(r, kind)].first
            while s != NONE:
                if w.seqs[s].oldest_entry != NONE:
                    oldest = min(oldest, w.seqs[s].oldest_entry)
                s = w.seqs[s].next
    return int(oldest)


@kernel
def _settle(w: World, row: int, before: int, is_final: bool) -> None:
    if not w.options.captures_gaps:
        drop_entries(w.token_logs[row], before)
        return
    settle_entries(
        w.token_logs[row],
        w.log_entries,
        w.statistics[NUM_SAMPLES * (row + 1) + GAP],
        w.statistics[NUM_SAMPLES * (row + 1) + RATE],
        w.buckets,
        before,
        is_final,
    )

"""Optional stages and shared links of a disaggregated fleet, as the settle loop uses them.

Rules: replay-runtime.md §11.3, §17. Each is a separate time source beside the event heap (§2.4)
with its own step in the settle loop (§5). A disabled stage takes no time and is never due.
"""

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.encoder import enter_encoder, next_batch_ms, start_batches
from aisim_gym.fleet.events import (
    FIRST_STAGE,
    next_leaving_ms,
    pop_leaving,
    push_leaving,
)
from aisim_gym.fleet.server_stage import receive_output, serve
from aisim_gym.fleet.tables import DECODE, DETOKENIZING, ENCODING, PREFILL, TOKENIZING
from aisim_gym.fleet.transfer_links import (
    cancel_transfer,
    next_transfer_ms,
    pop_transfer,
    start_transfer,
)
from aisim_gym.fleet.world import World
from aisim_gym.kernel import kernel


@kernel
def tokenize(w: World, request: int, worker: int) -> bool:
    """Send a placed prompt to the tokenizers of its worker; False if it is ready immediately."""
    stage = w.server_stages[PREFILL]
    if stage.num_servers == 0:
        return False
    now_ms, tokens = w.clock.now_ms, int(w.requests[request].input_tokens)
    ready_ms = serve(stage, w.server_free_ms[worker], tokens, now_ms)
    if ready_ms > now_ms:
        push_leaving(w, TOKENIZING, ready_ms, request)
        return True
    w.stage_times[request].tokenized_ms = now_ms
    return False


@kernel
def pop_tokenized(w: World) -> int:
    """Remove and return a request whose prompt is ready now, or ``NONE``."""
    request = pop_leaving(w, TOKENIZING)
    if request != NONE:
        w.stage_times[request].tokenized_ms = w.clock.now_ms
    return request


@kernel
def detokenize(w: World, request: int, worker: int, tokens: int) -> float:
    """Send an output to the detokenizers of its worker; return when the client receives it."""
    stage = w.server_stages[DECODE]
    if stage.num_servers == 0:
        return w.clock.now_ms
    last_ms = w.requests[request].last_token_ms
    return receive_output(stage, w.server_free_ms[worker], tokens, w.clock.now_ms, last_ms)


@kernel
def await_receipt(w: World, request: int, at_ms: float) -> None:
    """Schedule the receipt of a request's last output by the client."""
    push_leaving(w, DETOKENIZING, at_ms, request)


@kernel
def pop_received(w: World) -> int:
    """Remove and return a request whose last output is received now, or ``NONE``."""
    return pop_leaving(w, DETOKENIZING)


@kernel
def encode(w: World, request: int) -> bool:
    """Queue an arriving request for the encoders; False if there are none."""
    if w.encoder.num_instances == 0:
        return False
    enter_encoder(w.encoder, w.encoder_queue, request)
    return True


@kernel
def pop_encoded(w: World) -> int:
    """Start idle encoders; remove and return a request delivered now, or ``NONE``."""
    start_batches(
        w.encoder,
        w.encoder_free_ms,
        w.encoder_forward_ms,
        w.encoder_queue,
        w.heaps[FIRST_STAGE + ENCODING],
        w.stage_timers[ENCODING],
        w.clock.now_ms,
    )
    request = pop_leaving(w, ENCODING)
    if request != NONE:
        w.stage_times[request].encoder_ready_ms = w.clock.now_ms
    return request


@kernel
def share_transfer(w: World, request: int, work_ms: float) -> bool:
    """Start the transfer of a request between its ranks; False if links are not shared."""
    if len(w.links) == 0:
        return False
    handoff = w.handoffs[request]
    start_transfer(
        w.transfer_set,
        w.transfers,
        request,
        int(handoff.id),
        int(handoff.prefill_rank),
        int(handoff.decode_rank),
        work_ms,
        w.clock.now_ms,
    )
    return True


@kernel
def drop_transfer(w: World, request: int) -> None:
    """Cancel the shared transfer of a request, if there is one."""
    cancel_transfer(w.transfer_set, w.transfers, request)


@kernel
def pop_transferred(w: World) -> int:
    """Remove and return a request whose shared transfer ends now, or ``NONE``."""
    return pop_transfer(w.transfer_set, w.transfers, w.links, w.clock.now_ms)


@kernel
def next_stage_ms(w: World) -> float:
    """Return the time of the next stage or transfer event, +inf if there is none."""
    return min(
        next_leaving_ms(w, TOKENIZING),
        next_leaving_ms(w, DETOKENIZING),
        next_leaving_ms(w, ENCODING),
        next_batch_ms(w.encoder, w.encoder_free_ms),
        next_transfer_ms(w.transfer_set),
    )

"""The encoder pool in front of a fleet: batched encoding, then transfer to the fleet.

Rules: replay-runtime.md §17.1. Arriving requests wait in one queue. An idle encoder takes as many
waiting requests as fit in a batch. It is busy for their preprocessing and one forward pass, and can
start the next batch at the instant it finishes. Each request is delivered after a fixed transfer
time. Encoders are identical, so only the time until which each is busy is stored: ``free_ms`` holds
these times as a binary min-heap.

Requests that arrive at one instant share batches: arrival only queues them, and batches start in
the next settle iteration, in the step before arrivals.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aisim_gym.fleet.server_stage import occupy_first
from aisim_gym.fleet.time_heap import TimedRow, TimeHeapRow, push_in_turn
from aisim_gym.kernel import kernel
from aisim_gym.tables import F8, I8, Table


class EncoderRow(Protocol):
    """The encoder pool; all fields are zero if there is none."""

    num_instances: I8
    num_gpus: I8  # of all encoders together
    preprocess_ms: F8  # per request of a batch
    transfer_ms: F8  # from the end of a batch to the fleet
    first_waiting: I8  # request row; only if num_waiting > 0
    last_waiting: I8
    num_waiting: I8


@kernel
def enter_encoder(encoder: EncoderRow, next_waiting: NDArray[np.int64], request: int) -> None:
    """Append a request to the queue; ``next_waiting`` links the queue, by request."""
    if encoder.num_waiting == 0:
        encoder.first_waiting = request
    else:
        next_waiting[encoder.last_waiting] = request
    encoder.last_waiting = request
    encoder.num_waiting += 1


@kernel
def next_batch_ms(encoder: EncoderRow, free_ms: NDArray[np.float64]) -> float:
    """Return when the next batch can start, +inf if no request waits."""
    return float(free_ms[0]) if encoder.num_waiting > 0 else math.inf


@kernel
def start_batches(
    encoder: EncoderRow,
    free_ms: NDArray[np.float64],
    forward_ms: NDArray[np.float64],
    next_waiting: NDArray[np.int64],
    heap: TimeHeapRow,
    deliveries: Table[TimedRow],
    now_ms: float,
) -> None:
    """Start batches of waiting requests on idle encoders.

    Args:
        encoder: Modified in place.
        free_ms: Time until which each encoder is busy, a binary heap; modified in place.
        forward_ms: Forward-pass time by batch size, shape (largest batch,).
        next_waiting: Links of the queue.
        heap: Heap of the deliveries; modified in place.
        deliveries: One timer per request in transfer; must have room for all waiting requests.
        now_ms: Start time of the batches.
    """
    while encoder.num_waiting > 0 and free_ms[0] <= now_ms:
        size = min(encoder.num_waiting, len(forward_ms))
        end_ms = now_ms + size * encoder.preprocess_ms + forward_ms[size - 1]
        occupy_first(free_ms, encoder.num_instances, end_ms)
        for _ in range(size):
            request = encoder.first_waiting
            encoder.first_waiting = next_waiting[request]
            push_in_turn(heap, deliveries, end_ms + encoder.transfer_ms, request)
        encoder.num_waiting -= size

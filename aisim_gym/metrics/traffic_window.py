"""Traffic since the last tick: the demand and latency statistics of a planner.

Rules: replay-runtime.md §12. Sums are added in event order.
"""

from typing import Protocol

from aisim_gym.kernel import kernel
from aisim_gym.metrics.request_times import RequestRow
from aisim_gym.tables import F8, I8

TICK_WINDOW, SAMPLE_WINDOW = 0, 1
"""Row of the traffic window read by ticks."""


class TrafficRow(Protocol):
    """Sums over the current window."""

    window_start_ms: F8
    num_req: I8  # arrivals
    shape_count: I8  # completions
    input_tokens: I8
    output_tokens: I8
    ttft_count: I8
    ttft_sum_ms: F8
    itl_count: I8
    itl_sum_ms: F8
    accept_forwards: I8
    accepted_tokens: I8


@kernel
def record_completion(traffic: TrafficRow, request: RequestRow) -> None:
    """Add a completed request; a time to first token of exactly 0 is not counted (§12)."""
    traffic.shape_count += 1
    traffic.input_tokens += request.input_tokens
    traffic.output_tokens += request.emitted_tokens
    if request.emitted_tokens > 0:
        ttft_ms = request.first_token_ms - request.arrival_ms
        if ttft_ms > 0.0:
            traffic.ttft_count += 1
            traffic.ttft_sum_ms += ttft_ms
    if request.emitted_tokens > 1:
        traffic.itl_count += 1
        traffic.itl_sum_ms += (request.last_token_ms - request.first_token_ms) / (
            request.emitted_tokens - 1
        )


@kernel
def restart_window(traffic: TrafficRow, now_ms: float) -> None:
    """Begin a new window at ``now_ms``."""
    traffic.window_start_ms = now_ms
    traffic.num_req = 0
    traffic.shape_count = 0
    traffic.input_tokens = 0
    traffic.output_tokens = 0
    traffic.ttft_count = 0
    traffic.ttft_sum_ms = 0.0
    traffic.itl_count = 0
    traffic.itl_sum_ms = 0.0
    traffic.accept_forwards = 0
    traffic.accepted_tokens = 0

"""Traffic between two ticks (replay-runtime.md §12)."""

from aisim_gym.metrics.request_times import RequestRow, make_requests
from aisim_gym.metrics.traffic_window import TrafficRow, record_completion, restart_window
from aisim_gym.tables import make_table


def finished(arrival_ms: float, *tokens_ms: float, input_tokens: int = 8) -> RequestRow:
    row = make_requests(1)[0]
    row.arrival_ms = arrival_ms
    row.input_tokens = input_tokens
    row.emitted_tokens = len(tokens_ms)
    if tokens_ms:
        row.first_token_ms, row.last_token_ms = tokens_ms[0], tokens_ms[-1]
    return row


def window(*requests: RequestRow) -> TrafficRow:
    traffic = make_table(TrafficRow, 1)[0]
    for request in requests:
        record_completion(traffic, request)
    return traffic


def test_completions_add_their_lengths_and_latencies() -> None:
    traffic = window(finished(0.0, 10.0, 14.0, 20.0), finished(5.0, 10.0, 11.0, input_tokens=20))
    assert (traffic.shape_count, traffic.input_tokens, traffic.output_tokens) == (2, 28, 5)
    assert (traffic.ttft_count, traffic.ttft_sum_ms) == (2, 15.0)
    assert (traffic.itl_count, traffic.itl_sum_ms) == (2, 5.0 + 1.0)


def test_time_to_first_token_of_zero_is_not_counted() -> None:
    traffic = window(finished(10.0, 10.0))
    assert (traffic.shape_count, traffic.ttft_count) == (1, 0)


def test_gap_of_zero_is_counted_but_one_token_has_none() -> None:
    assert window(finished(0.0, 5.0, 5.0)).itl_count == 1
    assert window(finished(0.0, 5.0)).itl_count == 0


def test_request_without_output_has_a_shape_and_no_latency() -> None:
    traffic = window(finished(0.0))
    assert (traffic.shape_count, traffic.output_tokens) == (1, 0)
    assert (traffic.ttft_count, traffic.itl_count) == (0, 0)


def test_new_window_starts_empty() -> None:
    traffic = window(finished(0.0, 10.0, 14.0))
    traffic.num_req = 3
    restart_window(traffic, 30.0)
    assert traffic.window_start_ms == 30.0
    assert (traffic.num_req, traffic.shape_count, traffic.ttft_sum_ms, traffic.itl_count) == (
        0,
        0,
        0.0,
        0,
    )

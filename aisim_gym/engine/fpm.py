"""Forward-pass metrics: the 14 values a rank reports per pass (engine-vllm-trtllm.md §8.1)."""

from typing import Protocol

from aisim_gym.engine.tables import PassRow
from aisim_gym.kernel import kernel
from aisim_gym.tables import B1, F8, I8


class FpmRow(Protocol):
    """Latest forward-pass metrics of a rank; field names are those of the reference."""

    wall_time: F8  # seconds
    num_prefill_requests: I8
    sum_prefill_tokens: I8
    var_prefill_length: F8  # population variance, tokens squared
    sum_prefill_kv_tokens: I8
    num_decode_requests: I8
    sum_decode_kv_tokens: I8
    var_decode_kv_tokens: F8
    num_queued_prefill: I8
    sum_queued_prefill_tokens: I8
    var_queued_prefill_length: F8
    num_queued_decode: I8
    sum_queued_decode_kv_tokens: I8
    var_queued_decode_kv_tokens: F8
    is_new: B1  # not yet shown to a planner
    published_ms: F8  # time of the latest record; -1: none


@kernel
def write_fpm(fpm: FpmRow, work: PassRow, wall_ms: float) -> None:
    """Store the metrics of a finished pass, overwriting unread ones.

    Args:
        fpm: Modified in place.
        work: Sums of the rank's pass.
        wall_ms: Duration of the group pass.
    """
    fpm.wall_time = max(wall_ms, 0.0) / 1000.0
    fpm.num_prefill_requests = work.num_prefill
    fpm.sum_prefill_tokens = work.prefill_tokens
    fpm.var_prefill_length = variance(work.num_prefill, work.prefill_lengths, work.prefill_squares)
    fpm.sum_prefill_kv_tokens = work.prefix_tokens
    fpm.num_decode_requests = work.num_decode
    fpm.sum_decode_kv_tokens = work.decode_tokens
    fpm.var_decode_kv_tokens = variance(work.num_decode, work.decode_tokens, work.decode_squares)
    fpm.num_queued_prefill = work.queued_new
    fpm.sum_queued_prefill_tokens = work.queued_new_tokens
    fpm.var_queued_prefill_length = variance(
        work.queued_new, work.queued_new_tokens, work.queued_new_squares
    )
    fpm.num_queued_decode = work.queued_decode
    fpm.sum_queued_decode_kv_tokens = work.queued_decode_tokens
    fpm.var_queued_decode_kv_tokens = variance(
        work.queued_decode, work.queued_decode_tokens, work.queued_decode_squares
    )
    fpm.is_new = True


@kernel
def write_idle_fpm(fpm: FpmRow) -> None:
    """Store the all-zero record of an idle rank, overwriting unread ones."""
    fpm.wall_time = 0.0
    fpm.num_prefill_requests = 0
    fpm.sum_prefill_tokens = 0
    fpm.var_prefill_length = 0.0
    fpm.sum_prefill_kv_tokens = 0
    fpm.num_decode_requests = 0
    fpm.sum_decode_kv_tokens = 0
    fpm.var_decode_kv_tokens = 0.0
    fpm.num_queued_prefill = 0
    fpm.sum_queued_prefill_tokens = 0
    fpm.var_queued_prefill_length = 0.0
    fpm.num_queued_decode = 0
    fpm.sum_queued_decode_kv_tokens = 0
    fpm.var_queued_decode_kv_tokens = 0.0
    fpm.is_new = True


@kernel
def variance(count: int, total: int, squares: int) -> float:
    """Return the population variance from exact integer moments; 0 for an empty set."""
    if count == 0:
        return 0.0
    if float(count) * float(squares) < 4e18:
        return (count * squares - total * total) / count / count
    mean = total / count
    return max(squares / count - mean * mean, 0.0)

"""Generate the reference's synthetic workload, bit for bit (workloads.md §6)."""

import math
from itertools import accumulate, repeat
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import WorkloadError
from aisim_gym.number_text import number_text
from aisim_gym.spec.synthetic import SyntheticSpec
from aisim_gym.workload.chacha import ChaChaStream, draw_below
from aisim_gym.workload.ragged import Ragged, offsets_of
from aisim_gym.workload.request_table import DEFAULT_TRACE_BLOCK_SIZE, RequestTable
from aisim_gym.workload.speedup import check_speedup_ratio
from aisim_gym.workload.table_order import table_in_arrival_order, table_in_session_order

GROUP_SEED = 42
"""Seed of the draws of prefix groups, independent of the arrivals' seed."""

_LEAST_POSITIVE = 2.2250738585072014e-308


def generate_synthetic(
    spec: SyntheticSpec,
    arrival_speedup_ratio: float = 1.0,
    engine_block_size: int | None = None,
) -> RequestTable:
    """Return the requests of the reference's synthetic workload.

    Without ``request_rate`` and ``arrival_interval_ms`` the table is for a closed loop: all
    requests of a list arrive at 0, and sessions have no start.

    Args:
        spec: The parameters.
        arrival_speedup_ratio: Divides arrivals and think times, finite and > 0.
        engine_block_size: Tokens per block of the engine that prefills; required if sessions share
            prefixes, and used if it is 1.

    Raises:
        WorkloadError: If an arrival is not finite, or a required block size is missing.
    """
    check_speedup_ratio(arrival_speedup_ratio)
    arrival_ms = _arrivals(spec)
    delay_ms = spec.inter_turn_delay_ms / arrival_speedup_ratio
    if spec.turns_per_session > 1 and not math.isfinite(delay_ms):
        raise WorkloadError(f"session session_0 turn 1 has invalid delay {number_text(delay_ms)}")
    if arrival_ms is not None:
        with np.errstate(over="ignore"):
            arrival_ms /= arrival_speedup_ratio
        _check_arrivals(spec, arrival_ms)
    if spec.has_sessions:
        return _table_of_sessions(spec, arrival_ms, delay_ms, engine_block_size)
    return _list_of_requests(spec, arrival_ms, engine_block_size)


def _list_of_requests(
    spec: SyntheticSpec, arrival_ms: NDArray[np.float64] | None, engine_block_size: int | None
) -> RequestTable:
    count = spec.request_count
    return table_in_arrival_order(
        np.zeros(count) if arrival_ms is None else arrival_ms,
        np.full(count, spec.input_tokens),
        np.full(count, spec.output_tokens),
        _equal_first_tokens(count) if engine_block_size == 1 else None,
        engine_block_size or DEFAULT_TRACE_BLOCK_SIZE,
    )


def _table_of_sessions(
    spec: SyntheticSpec,
    start_ms: NDArray[np.float64] | None,
    delay_ms: float,
    engine_block_size: int | None,
) -> RequestTable:
    num_turns = spec.turns_per_session
    count = spec.request_count * num_turns
    prompts, block_size = _shared_prefixes(spec, engine_block_size)
    if start_ms is None:
        start_ms = np.full(spec.request_count, np.nan)
    return table_in_session_order(
        np.repeat(np.arange(spec.request_count), num_turns),
        [f"session_{index}" for index in range(spec.request_count)],
        np.repeat(start_ms, num_turns),
        np.full(count, delay_ms),
        np.full(count, spec.input_tokens),
        np.full(count, spec.output_tokens),
        prompts,
        block_size,
    )


def _arrivals(spec: SyntheticSpec) -> NDArray[np.float64] | None:
    """Return the arrivals before the speed-up, None in a closed loop."""
    count = spec.request_count
    if spec.request_rate is not None:
        mean_ms = 1000.0 / spec.request_rate
        draws = ChaChaStream(spec.arrival_seed).doubles(count - 1)
        survival = np.maximum(1.0 - draws, _LEAST_POSITIVE).tolist()
        # Not np.log: its vector version rounds some results differently.
        gaps_ms = [-mean_ms * math.log(left) for left in survival]
    elif spec.arrival_interval_ms is not None:
        interval_ms = spec.arrival_interval_ms
        gap_ms = 1000.0 / (1000.0 / interval_ms) if interval_ms > 0.0 else 0.0
        gaps_ms = list(repeat(gap_ms, count - 1))
    else:
        return None
    return np.fromiter(accumulate(gaps_ms, initial=0.0), np.float64, count)


def _check_arrivals(spec: SyntheticSpec, arrival_ms: NDArray[np.float64]) -> None:
    finite = np.isfinite(arrival_ms)
    if finite.all():
        return
    index = int(np.argmin(finite))
    text = number_text(float(arrival_ms[index]))
    if spec.has_sessions:
        raise WorkloadError(
            f"session session_{index} has invalid first_arrival_timestamp_ms {text}"
        )
    raise WorkloadError(
        f"trace replay request {UUID(int=index + 1)} has an unusable arrival timestamp ({text}); "
        "trace-sourced requests must carry a finite authored arrival time"
    )


def _shared_prefixes(
    spec: SyntheticSpec, engine_block_size: int | None
) -> tuple[Ragged | None, int]:
    """Return the shared blocks at the beginning of each prompt, and the tokens per block."""
    if spec.num_prefix_groups == 0 or spec.shared_prefix_ratio == 0.0:
        return None, DEFAULT_TRACE_BLOCK_SIZE
    if engine_block_size is None:
        raise WorkloadError(
            "a synthetic workload shares whole blocks of the engine: got no engine_block_size, "
            "expected ReplaySpec.engine_block_size"
        )
    num_blocks = -(-spec.input_tokens // engine_block_size)
    num_shared = min(num_blocks, _round_half_up(num_blocks * spec.shared_prefix_ratio))
    words = ChaChaStream(GROUP_SEED).words()
    groups = np.array(
        [draw_below(words, spec.num_prefix_groups) for _ in range(spec.request_count)]
    )
    of_requests = np.repeat(groups, spec.turns_per_session)
    block_ids = of_requests[:, np.newaxis] * num_shared + np.arange(num_shared)
    return Ragged(
        block_ids.ravel(), np.arange(of_requests.size + 1) * num_shared
    ), engine_block_size


def _equal_first_tokens(count: int) -> Ragged:
    """Return the first token of each prompt that shares it with another; empty for the others.

    The tokens are pseudo-random numbers of 32 bits: among 100,000 prompts about one pair has the
    same first token. No two prompts ever share two tokens.
    """
    mixed = (np.arange(count, dtype=np.uint64) << np.uint64(32)) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    tokens = np.maximum(mixed & np.uint64(2**32 - 1), np.uint64(1)).astype(np.int64)
    _, inverse, counts = np.unique(tokens, return_inverse=True, return_counts=True)
    is_alike = counts[inverse] > 1
    return Ragged(inverse[is_alike].astype(np.int64), offsets_of(is_alike))


def _round_half_up(value: float) -> int:
    whole = math.floor(value)
    return whole + int(value - whole >= 0.5)  # exact, unlike floor(value + 0.5)

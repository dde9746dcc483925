"""Slices, rates, stamps, lengths and merging of request tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.errors import WorkloadError
from aisim_gym.workload import (
    RequestTable,
    build_prompt_blocks,
    clip_lengths,
    drop_longer_than,
    merge_tables,
    requests_from_arrays,
    requests_from_mooncake_rows,
    scale_rate,
    slice_requests,
    speed_up,
    spread_stamps,
    trace_statistics,
)
from aisim_gym.workload.transforms import COPY_JITTER_MS

BLOCK = 4


def poisson(rate_rps: float, duration_s: float, seed: int = 1) -> RequestTable:
    random = np.random.default_rng(seed)
    arrival_ms = np.sort(random.random(random.poisson(rate_rps * duration_s))) * duration_s * 1e3
    prompts = [[0, 1 + number] for number in range(arrival_ms.size)]
    return requests_from_arrays(arrival_ms, [8] * len(prompts), [2] * len(prompts), prompts, BLOCK)


def sessions(*, is_delta: bool = False) -> RequestTable:
    """Return session ``a`` with prompts of 4, 8 and 6 new tokens, and ``b`` with 7 and 3."""
    rows: list[dict[str, object]] = [
        {"session_id": "a", "timestamp": 0, "input_length": 4, "hash_ids": [1]},
        {"session_id": "b", "timestamp": 500, "input_length": 7, "hash_ids": [1, 3]},
        {"session_id": "a", "delay": 10, "input_length": 8, "hash_ids": [1, 2]},
        {"session_id": "a", "delay": 30, "input_length": 6, "hash_ids": [1, 4]},
        {"session_id": "b", "delay": 20, "input_length": 3, "hash_ids": [5]},
    ]
    return requests_from_mooncake_rows(
        [row | {"output_length": 2} for row in rows], BLOCK, is_delta=is_delta
    )


def test_slice_starts_at_zero_and_keeps_lengths_and_blocks() -> None:
    """F49: a part of a trace, in time since its start."""
    table = requests_from_arrays([0.0, 1000.0, 2500.0, 4000.0], [8, 4, 4, 4], [0, 1, 2, 3])
    part = slice_requests(table, start_s=1.0, duration_s=3.0)
    assert part.arrival_ms.tolist() == [0.0, 1500.0]
    assert part.output_tokens.tolist() == [1, 2]
    assert slice_requests(table, start_s=2.0).arrival_ms.tolist() == [500.0, 2000.0]


def test_slice_takes_whole_sessions() -> None:
    part = slice_requests(sessions(), start_s=0.4)
    assert part.session_ids == ("b",)
    assert part.start_ms.tolist() == [100.0]
    assert part.delay_ms.tolist() == [0.0, 20.0]


@pytest.mark.parametrize(
    ("start_s", "duration_s", "message"),
    [
        (2.0, None, r"nothing arrives from start_s 2 on: the first .* 0 s, the last at 1 s"),
        (0.2, 0.5, r"nothing arrives from start_s 0.2 for duration_s 0.5"),
        (-1.0, None, "start_s: got -1, allowed: finite and >= 0"),
        (float("nan"), None, "start_s: got NaN"),
        (0.0, 0.0, "duration_s: got 0, allowed: > 0"),
        (0.0, float("nan"), "duration_s: got NaN"),
    ],
)
def test_slice_without_requests_is_refused(
    start_s: float, duration_s: float | None, message: str
) -> None:
    table = requests_from_arrays([0.0, 1000.0], [4, 4], [1, 1])
    with pytest.raises(WorkloadError, match=message):
        slice_requests(table, start_s, duration_s)


@given(
    stamps=st.lists(st.integers(0, 5).map(lambda k: 3000.0 * k), min_size=1),
    spread_ms=st.sampled_from([0.0, 1000.0, 3000.0, 7000.0]),
)
def test_spread_moves_the_kth_of_n_equal_stamps(stamps: list[float], spread_ms: float) -> None:
    """rulings.md 9."""
    table = requests_from_arrays(stamps, [1] * len(stamps), [0] * len(stamps))
    spread = spread_stamps(table, spread_ms)
    expected = {
        row: stamp + spread_ms * stamps[:row].count(stamp) / stamps.count(stamp)
        for row, stamp in enumerate(stamps)
    }
    assert dict(zip(spread.row.tolist(), spread.arrival_ms.tolist(), strict=True)) == expected
    assert (np.diff(spread.arrival_ms) >= 0.0).all()


def test_spread_over_the_next_stamp_keeps_rows_with_their_prompts() -> None:
    table = requests_from_arrays([0.0, 0.0, 1.0], [4, 8, 4], [1, 2, 3], [[7], [8, 9], [7]], BLOCK)
    spread = spread_stamps(table, 4.0)
    assert spread.arrival_ms.tolist() == [0.0, 1.0, 2.0]
    assert spread.row.tolist() == [0, 2, 1]
    assert spread.output_tokens.tolist() == [1, 3, 2]
    assert spread.prompt_ids.tolist() == [0, 0, 1, 2]


def test_spread_moves_starts_of_sessions_and_leaves_missing_ones() -> None:
    row = {"input_length": 4, "output_length": 1, "hash_ids": [1]}
    rows = [row | {"timestamp": 5}, row | {"timestamp": 5}, row]
    table = requests_from_mooncake_rows(rows, BLOCK, is_closed_loop=True)
    spread = spread_stamps(table, 8.0)
    assert spread.start_ms[:2].tolist() == [5.0, 9.0]
    assert np.isnan(spread.start_ms[2])


def test_speed_up_divides_arrivals_and_delays() -> None:
    fast = speed_up(sessions(), 10.0)
    assert fast.start_ms.tolist() == [0.0, 50.0]
    assert fast.delay_ms.tolist() == [0.0, 1.0, 3.0, 0.0, 2.0]
    with pytest.raises(WorkloadError, match="arrival_speedup_ratio must be a finite positive"):
        speed_up(sessions(), 0.0)


@pytest.mark.parametrize("factor", [0.25, 0.9, 1.5, 2.0, 3.75])
def test_scaled_rate_has_so_many_requests_in_the_same_time(factor: float) -> None:
    table = poisson(20.0, 500.0)
    scaled = scale_rate(table, factor, seed=3)
    # A binomial number is added to whole copies; five of its standard deviations.
    part = factor % 1.0
    slack = 5.0 * np.sqrt(len(table) * part * (1.0 - part))
    assert abs(len(scaled) - factor * len(table)) <= slack
    assert scaled.arrival_ms[-1] <= table.arrival_ms[-1] + COPY_JITTER_MS
    assert (np.diff(scaled.arrival_ms) >= 0.0).all()


def test_thinned_poisson_arrivals_stay_poisson() -> None:
    thinned = trace_statistics(scale_rate(poisson(40.0, 1000.0), 0.25))
    assert thinned.cv == pytest.approx(1.0, abs=0.05)
    # IDC over n windows scatters like sqrt(2 / n).
    assert thinned.idc_10s == pytest.approx(1.0, abs=5.0 * np.sqrt(2.0 / 100.0))


def test_bursts_and_silences_stay_where_they_are() -> None:
    bursts_ms = np.concatenate([60_000.0 * k + np.arange(50.0) * 20.0 for k in range(5)])
    table = requests_from_arrays(bursts_ms, [4] * 250, [1] * 250)
    scaled = scale_rate(table, 4.0)
    since_burst_ms = scaled.arrival_ms % 60_000.0
    assert len(scaled) == 1000
    assert since_burst_ms.max() < 1000.0 + COPY_JITTER_MS


def test_copies_share_prompts_among_themselves_only() -> None:
    table = poisson(5.0, 100.0)
    scaled = scale_rate(table, 3.0)
    assert np.bincount(scaled.prompt_ids).max() == len(table)
    before, after = trace_statistics(table), trace_statistics(scaled)
    assert before.reusable_frac is not None
    assert after.reusable_frac == pytest.approx(before.reusable_frac, abs=0.01)


def test_scaled_sessions_stay_whole() -> None:
    scaled = scale_rate(sessions(), 2.0)
    assert scaled.session_ids == ("0/a", "0/b", "1/a", "1/b")
    assert scaled.input_tokens.tolist() == sessions().input_tokens.tolist() * 2
    assert (scaled.start_ms[2:] - scaled.start_ms[:2] < COPY_JITTER_MS).all()


def test_scaling_is_a_function_of_the_seed_and_leaves_numpy_alone() -> None:
    """F01: same seed, same result, whatever NumPy's global state."""
    table = poisson(5.0, 100.0)
    state = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    first, second = (scale_rate(table, 1.5, seed=9) for _ in range(2))
    assert np.array_equal(first.arrival_ms, second.arrival_ms)
    assert not np.array_equal(first.arrival_ms, scale_rate(table, 1.5, seed=8).arrival_ms)
    assert np.array_equal(state, np.random.get_state()[1])  # type: ignore[index]  # noqa: NPY002


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_factor_is_refused(factor: float) -> None:
    """F50: a rate of 0 is an error, not an endless loop."""
    with pytest.raises(WorkloadError, match=r"rate_scale: got .*, allowed: finite and > 0"):
        scale_rate(poisson(1.0, 10.0), factor)


def test_scaling_to_nothing_is_refused() -> None:
    with pytest.raises(WorkloadError, match="leaves none of 2 requests"):
        scale_rate(requests_from_arrays([0.0, 1.0], [4, 4], [1, 1]), 1e-9)


def test_merged_lists_are_in_order_and_share_no_prompts() -> None:
    first = requests_from_arrays([0.0, 2.0], [8, 8], [1, 2], [[5, 6], [5, 7]], BLOCK)
    second = requests_from_arrays([2.0, 0.5], [4, 4], [3, 4], [[5], None], BLOCK)
    merged = merge_tables([first, second])
    assert merged.arrival_ms.tolist() == [0.0, 0.5, 2.0, 2.0]
    # Rows of all tables one after the other; a tie goes to the first table.
    assert merged.row.tolist() == [0, 2, 1, 3]
    assert merged.output_tokens.tolist() == [1, 4, 2, 3]
    assert build_prompt_blocks(merged, BLOCK).shared_blocks.tolist() == [1, 0, 1, 0]


def test_merged_sessions_keep_their_turns_and_outputs() -> None:
    row = {"session_id": "a", "output_length": 1, "input_length": 4, "hash_ids": [1]}
    rows = [row | {"timestamp": 3, "output_token_ids": [2**32 - 1]}, row | {"delay": 7}]
    merged = merge_tables([sessions(), requests_from_mooncake_rows(rows, BLOCK)])
    assert merged.session_ids == ("0/a", "0/b", "1/a")
    assert merged.session_starts.tolist() == [0, 3, 5, 7]
    assert merged.delay_ms.tolist() == [0.0, 10.0, 30.0, 0.0, 20.0, 0.0, 7.0]
    assert np.diff(merged.output_starts).tolist() == [0, 0, 0, 0, 0, 1, 0]
    assert set(merged.output_ids.tolist()).isdisjoint(merged.prompt_ids[:-2].tolist())
    # Numbers stay small, so that the table can be written.
    assert merged.output_ids.max() < 10


def test_tables_that_do_not_fit_are_refused() -> None:
    plain = requests_from_arrays([0.0], [4], [1])
    with pytest.raises(WorkloadError, match="merge: has_sessions: got False and True"):
        merge_tables([plain, sessions()])
    with pytest.raises(WorkloadError, match="merge: is_delta: got True and False"):
        merge_tables([sessions(is_delta=True), sessions()])
    with pytest.raises(WorkloadError, match="merge: trace_block_size: got 512 and 4"):
        merge_tables([plain, requests_from_arrays([0.0], [4], [1], trace_block_size=4)])
    with pytest.raises(WorkloadError, match="at least one"):
        merge_tables([])


def test_longer_requests_are_dropped_and_counted() -> None:
    table = requests_from_arrays([0.0, 1.0, 2.0], [4, 9, 8], [9, 1, 2])
    assert drop_longer_than(table, max_input_tokens=8).requests.row.tolist() == [0, 2]
    kept, dropped = drop_longer_than(table, max_total_tokens=10)
    assert (kept.row.tolist(), dropped) == ([1, 2], 1)
    assert drop_longer_than(table).num_changed == 0
    with pytest.raises(WorkloadError, match=r"all 3 requests .*: max_input_tokens 2$"):
        drop_longer_than(table, max_input_tokens=2)
    with pytest.raises(WorkloadError, match="max_total_tokens: got 1, allowed: an integer >= 2"):
        drop_longer_than(table, max_total_tokens=1)


def test_session_ends_before_its_first_turn_that_is_too_long() -> None:
    kept, dropped = drop_longer_than(sessions(), max_input_tokens=7)
    assert kept.session_ids == ("a", "b")
    assert kept.input_tokens.tolist() == [4, 7, 3]
    assert dropped == 2
    assert drop_longer_than(sessions(), max_input_tokens=6).requests.session_ids == ("a",)


def test_clipped_requests_keep_the_beginning_of_their_prompts() -> None:
    prompts = [[1, 2, 3], [1, 2], [1]]
    table = requests_from_arrays([0.0, 1.0, 2.0], [12, 8, 2], [1, 5, 3], prompts, BLOCK)
    clipped, changed = clip_lengths(table, max_input_tokens=7, max_total_tokens=9)
    assert clipped.input_tokens.tolist() == [7, 7, 2]
    assert clipped.output_tokens.tolist() == [1, 2, 3]
    assert clipped.prompt_starts.tolist() == [0, 2, 4, 5]
    assert clipped.prompt_ids.tolist() == [0, 1, 0, 1, 0]
    assert changed == 2
    with pytest.raises(WorkloadError, match="clip: got delta sessions"):
        clip_lengths(sessions(is_delta=True), max_input_tokens=4)


def test_clipped_outputs_lose_the_end_of_their_content() -> None:
    row = {"timestamp": 0, "input_length": 4, "output_length": 3, "hash_ids": [1]}
    table = requests_from_mooncake_rows([row | {"output_token_ids": [7, 8, 9]}, row], BLOCK)
    clipped, _ = clip_lengths(table, max_total_tokens=6)
    assert clipped.output_ids.tolist() == table.output_ids.tolist()[:2]
    assert clipped.output_starts.tolist() == [0, 2, 2]

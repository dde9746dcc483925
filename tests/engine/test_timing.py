"""How long the parts of a pass take (engine-vllm-trtllm.md §2.2, §2.3)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rank_tables import make_engine

from aisim_gym.engine.duration import phase_ms
from aisim_gym.engine.tables import TIMING_FIXED, TIMING_POLYNOMIAL, EngineRow
from aisim_gym.engine.timing import decode_ms, prefill_ms

NO_GRIDS = np.zeros(0)


def polynomial(num_blocks: int = 1024, speedup: float = 1.0) -> EngineRow:
    return make_engine(
        timing=TIMING_POLYNOMIAL,
        num_blocks=num_blocks,
        prefill_speedup=speedup,
        decode_speedup=speedup,
    )


def fixed(prefill: float = 10.0, decode: float = 4.0) -> EngineRow:
    return make_engine(timing=TIMING_FIXED, fixed_prefill_ms=prefill, fixed_decode_ms=decode)


@pytest.mark.parametrize(
    ("tokens", "expected_ms"),
    [(6, 16.592536), (36, 17.048569), (100, 18.023974), (1024, 32.490711999999995)],
)
def test_prefill_takes_the_reference_time(tokens: int, expected_ms: float) -> None:
    assert prefill_ms(polynomial(), NO_GRIDS, 1, tokens, 0) == pytest.approx(expected_ms, rel=1e-15)


@pytest.mark.parametrize(
    ("active_tokens", "capacity", "expected_ms"), [(101, 4096, 7.056139), (1024, 262144, 5.950584)]
)
def test_decode_takes_the_reference_time(
    active_tokens: int, capacity: int, expected_ms: float
) -> None:
    engine = polynomial(num_blocks=capacity // 4)
    assert decode_ms(engine, NO_GRIDS, 1, active_tokens) == pytest.approx(expected_ms, rel=1e-15)


def test_decode_time_grows_with_tokens_up_to_the_capacity_and_not_with_the_batch() -> None:
    engine = polynomial(num_blocks=16)
    assert decode_ms(engine, NO_GRIDS, 1, 32) == decode_ms(engine, NO_GRIDS, 8, 32)
    assert decode_ms(engine, NO_GRIDS, 1, 64) == decode_ms(engine, NO_GRIDS, 1, 1_000_000) == 34.01


@pytest.mark.parametrize("block_size", [1, 16, 64, 512])
def test_times_depend_on_tokens_and_not_on_the_size_of_blocks(block_size: int) -> None:
    """F56."""
    capacity, active = 65_536, 20_000
    engine = make_engine(
        timing=TIMING_POLYNOMIAL,
        block_size=block_size,
        num_blocks=capacity // block_size,
        prefill_speedup=1.0,
        decode_speedup=1.0,
    )
    used = active / capacity
    expected_ms = -25.74 * used**2 + 54.01 * used + 5.74
    assert decode_ms(engine, NO_GRIDS, 4, active) == pytest.approx(expected_ms, abs=1e-6)
    expected_ms = 4.209989e-07 * 2048**2 + 1.518344e-02 * 2048 + 1.650142e01
    assert prefill_ms(engine, NO_GRIDS, 1, 2048, 0) == pytest.approx(expected_ms, abs=1e-6)


def test_prefill_is_timed_with_floored_means() -> None:
    # Three requests with 7 new tokens: 3 * (7 // 3) = 6.
    assert prefill_ms(polynomial(), NO_GRIDS, 3, 7, 0) == prefill_ms(
        polynomial(), NO_GRIDS, 1, 6, 0
    )
    # The means are floored one by one: 2 * (9 // 2 - 3 // 2) = 6.
    assert prefill_ms(polynomial(), NO_GRIDS, 2, 9, 3) == prefill_ms(
        polynomial(), NO_GRIDS, 1, 6, 0
    )


@pytest.mark.parametrize("engine", [polynomial(), fixed()], ids=["polynomial", "fixed"])
def test_prefill_takes_no_time_if_the_means_leave_no_new_token(engine: EngineRow) -> None:
    assert prefill_ms(engine, NO_GRIDS, 0, 0, 0) == 0.0
    assert prefill_ms(engine, NO_GRIDS, 2, 3, 2) == 0.0
    assert prefill_ms(engine, NO_GRIDS, 3, 2, 0) == 0.0


@pytest.mark.parametrize("engine", [polynomial(), fixed()], ids=["polynomial", "fixed"])
def test_pass_without_decodes_has_no_decode_time(engine: EngineRow) -> None:
    assert decode_ms(engine, NO_GRIDS, 0, 0) == 0.0


def test_fixed_times_depend_on_nothing_and_have_no_floor() -> None:
    engine = fixed(prefill=0.25, decode=0.125)
    assert {prefill_ms(engine, NO_GRIDS, 1, tokens, 0) for tokens in (1, 100, 10_000)} == {0.25}
    assert {decode_ms(engine, NO_GRIDS, count, 100 * count) for count in (1, 5)} == {0.125}


@given(st.integers(1, 10_000), st.floats(0.1, 100.0))
def test_speed_up_divides_both_parts(tokens: int, speedup: float) -> None:
    x = float(tokens)
    raw_ms = 4.209989e-07 * (x * x) + 1.518344e-02 * x + 1.650142e01
    assert prefill_ms(polynomial(speedup=speedup), NO_GRIDS, 1, tokens, 0) == phase_ms(
        raw_ms, speedup
    )
    full_ms = decode_ms(polynomial(num_blocks=1, speedup=speedup), NO_GRIDS, 1, tokens + 4)
    assert full_ms == phase_ms(-25.74 + 54.01 + 5.74, speedup)


def test_speed_up_of_zero_leaves_times_as_they_are() -> None:
    still, usual = polynomial(speedup=0.0), polynomial()
    assert prefill_ms(still, NO_GRIDS, 1, 100, 0) == prefill_ms(usual, NO_GRIDS, 1, 100, 0)
    assert decode_ms(still, NO_GRIDS, 1, 100) == decode_ms(usual, NO_GRIDS, 1, 100)

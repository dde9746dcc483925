"""Acceptance rates: engine-vllm-trtllm.md §7."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.spec.accept_rates import normalize_accept_rates, parse_accept_rates


@pytest.mark.parametrize(
    ("text", "count", "normalized"),
    [
        ("", 2, "0.85,0.3"),
        ("  ", 5, "0.85,0.3,0,0,0"),
        ("1.0,0.0,1.0", 3, "1,0,1"),
        ("0.5", 3, "0.5,0,0"),
        ("0.5,0.2", 1, "0.5"),
        ("-0.0", 2, "-0,0"),
        ("0.1234567890123456789", 1, "0.12345678901234568"),
    ],
)
def test_rates_are_cut_or_filled_up(text: str, count: int, normalized: str) -> None:
    assert normalize_accept_rates(text, count) == normalized


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(1, 5))
def test_normalized_rates_read_back_as_the_same_numbers(rates: list[float], count: int) -> None:
    text = normalize_accept_rates(",".join(map(repr, rates)), count)
    assert list(parse_accept_rates(text)) == (rates + [0.0] * count)[:count]
    assert normalize_accept_rates(text, count) == text

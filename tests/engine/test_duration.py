"""Durations are rounded like the reference's (engine-vllm-trtllm.md §2.1)."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aisim_gym.engine.duration import KEPT_NS, nanoseconds, phase_ms, seconds_of

LONGEST_S = 9e6
"""Beyond 2**53 ns, 104 days, a double no longer tells whole nanoseconds apart."""


def exact_nanoseconds(seconds: float) -> int:
    """Nearest integer to the decimal value, ties to even (Python rounds fractions so)."""
    return round(Fraction(seconds) * 10**9)


def exact_seconds(ns: int) -> float:
    return float(ns // 10**9) + (ns % 10**9) / 1e9


def exact_phase_ms(raw_ms: float, ratio: float) -> float:
    """The document's definition, word for word."""
    once = exact_nanoseconds(raw_ms / 1000.0)
    scaled = exact_nanoseconds(exact_seconds(once) / ratio) if ratio > 0 and once > 0 else once
    twice = exact_nanoseconds((exact_seconds(scaled) * 1000.0) / 1000.0)
    return exact_seconds(twice) * 1000.0


@given(st.floats(0.0, LONGEST_S))
def test_nanoseconds_are_the_nearest_integer(seconds: float) -> None:
    assert nanoseconds(seconds) == exact_nanoseconds(seconds)


@given(st.integers(0, 10**15), st.integers(-3, 3))
@example(1, 0)
@example(2, 0)
@example(1_562_500, 0)
def test_nanoseconds_near_a_half_are_decided_by_the_exact_product(ns: int, steps: int) -> None:
    seconds = (ns + 0.5) / 1e9
    seconds += steps * 2.0**-52 * seconds
    assert nanoseconds(seconds) == exact_nanoseconds(seconds)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(2.0**-10, 976_562), (3 * 2.0**-10, 2_929_688), (5 * 2.0**-10, 4_882_812)],
)
def test_exact_half_goes_to_the_even_neighbour(seconds: float, expected: int) -> None:
    assert Fraction(seconds) * 10**9 % 1 == Fraction(1, 2)
    assert nanoseconds(seconds) == expected


@given(st.integers(0, 10**18))
def test_seconds_are_whole_seconds_plus_a_fraction(ns: int) -> None:
    assert seconds_of(ns) == exact_seconds(ns)


@given(
    st.floats(0.0, 1e8),
    st.one_of(st.just(0.0), st.just(1.0), st.floats(0.1, 1e3)),
)
@example(18.023974, 1.0)
@example(5e-7, 1.0)
@example(1.5e-6, 1.0)
@example(0.0, 2.0)
def test_phase_is_rounded_before_and_after_the_speed_up(raw_ms: float, ratio: float) -> None:
    assert phase_ms(raw_ms, ratio) == exact_phase_ms(raw_ms, ratio)


@given(st.floats(0.0, 1e6))
def test_speed_up_of_zero_means_not_scaled(raw_ms: float) -> None:
    assert phase_ms(raw_ms, 0.0) == phase_ms(raw_ms, 1.0)


@given(st.one_of(st.integers(0, KEPT_NS - 1), st.integers(1, 50).map(lambda k: KEPT_NS - k)))
@example(KEPT_NS - 1)
def test_short_durations_come_back_from_seconds_and_from_milliseconds(ns: int) -> None:
    """Why ``phase_ms`` rounds them once: the proof is at ``KEPT_NS``."""
    seconds = seconds_of(ns)
    assert nanoseconds(seconds) == nanoseconds(seconds / 1.0) == ns
    assert nanoseconds((seconds * 1000.0) / 1000.0) == ns


def test_short_durations_come_back_wherever_seconds_or_exponents_change() -> None:
    """The relative error of a double is largest just above a power of two."""
    edges = {2**k + d for k in range(50) for d in range(-40, 41)}
    edges |= {
        s * 10**9 + d for s in (0, 1, 2, 3, 7, 1023, 1024, 1025, 524_288) for d in range(-40, 41)
    }
    edges |= {2**k * 10**9 + d for k in range(20) for d in range(-40, 41)}
    edges |= {KEPT_NS - d for d in range(1, 4001)}
    for ns in edges:
        if 0 <= ns < KEPT_NS:
            assert nanoseconds((seconds_of(ns) * 1000.0) / 1000.0) == ns

"""Metrics of a pass (engine-vllm-trtllm.md §8.1)."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.engine.fpm import FpmRow, variance, write_fpm, write_idle_fpm
from aisim_gym.engine.tables import PassRow
from aisim_gym.tables import make_table


def test_variance_of_nothing_is_zero() -> None:
    assert variance(0, 0, 0) == 0.0


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=300))
def test_variance_is_that_of_the_population(lengths: list[int]) -> None:
    count, total = len(lengths), sum(lengths)
    squares = sum(length * length for length in lengths)
    exact = Fraction(squares, count) - Fraction(total, count) ** 2
    assert variance(count, total, squares) == pytest.approx(float(exact), rel=1e-9)


def test_variance_of_moments_beyond_64_bits_is_close_and_never_negative() -> None:
    count, length = 10_000, 2**25
    assert float(count) * count * float(length) ** 2 > 2.0**63
    assert 0.0 <= variance(count, count * length, count * length**2) <= 1e-6 * length**2


def test_wall_time_is_in_seconds_and_never_negative() -> None:
    fpm, work = make_table(FpmRow, 1)[0], make_table(PassRow, 1)[0]
    write_fpm(fpm, work, 12.5)
    assert (fpm.wall_time, fpm.is_new) == (0.0125, 1)
    write_fpm(fpm, work, -1.0)
    assert fpm.wall_time == 0.0


def test_idle_record_overwrites_every_metric_but_not_when_it_was_published() -> None:
    table, work = make_table(FpmRow, 1), make_table(PassRow, 1)[0]
    for field in np.asarray(table).dtype.names or ():
        table[field][:] = 7
    write_fpm(table[0], work, 1.0)
    write_idle_fpm(table[0])
    assert np.asarray(table).tolist()[0] == (*[0] * 14, 1, 7.0)

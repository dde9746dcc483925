"""The reference's random stream (workloads.md §6.5, §6.6)."""

from itertools import islice

import numpy as np
import pytest

from aisim_gym.workload.chacha import ChaChaStream, draw_below


def test_first_words_and_doubles_are_those_of_the_test_vector() -> None:
    words = list(islice(ChaChaStream(42).words(), 3))
    assert words == [0x222724A2, 0x86CC7763, 0x3FAD517D]
    assert ChaChaStream(42).doubles(3).tolist() == [
        0.5265574090027738,
        0.5427252099031439,
        0.6364650991438949,
    ]


def test_doubles_are_made_of_two_words_each_low_one_first() -> None:
    words = list(islice(ChaChaStream(7).words(), 2000))
    expected = [
        ((low | high << 32) >> 11) * 2.0**-53
        for low, high in zip(words[::2], words[1::2], strict=True)
    ]
    assert ChaChaStream(7).doubles(1000).tolist() == expected


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9])
def test_any_number_of_doubles_begins_the_same(count: int) -> None:
    assert np.array_equal(ChaChaStream(3).doubles(count), ChaChaStream(3).doubles(20)[:count])


def test_words_go_on_where_the_last_blocks_ended() -> None:
    stream = ChaChaStream(5)
    first = list(islice(stream.words(), 4096))  # fetched in one go
    second = list(islice(stream.words(), 16))
    assert first + second == list(islice(ChaChaStream(5).words(), 4112))


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_extreme_seeds_have_streams_of_their_own(seed: int) -> None:
    draws = ChaChaStream(seed).doubles(10_000)
    assert draws.mean() == pytest.approx(0.5, abs=0.02)
    assert draws[0] != ChaChaStream(seed ^ 1).doubles(1)[0]


def test_draws_below_a_limit_are_those_of_the_reference() -> None:
    words = ChaChaStream(42).words()
    drawn = [draw_below(words, 50) for _ in range(13)]
    assert drawn == [6, 26, 12, 27, 43, 31, 49, 20, 48, 1, 30, 20, 17]


def test_draw_near_the_border_takes_a_second_word_and_carries() -> None:
    limit = 3
    # 0x55555555 * 3 = 0xFFFFFFFF: high part 0, low part too close to the end.
    assert draw_below(iter([0x55555555, 0]), limit) == 0
    assert draw_below(iter([0x55555555, 0xFFFFFFFF]), limit) == 1
    with pytest.raises(StopIteration):
        draw_below(iter([0x55555555]), limit)

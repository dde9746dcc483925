"""How many drafted tokens are accepted, from the reference's random stream.

Rules: engine-vllm-trtllm.md §7 with its test vectors, engine-sglang.md §12.
"""

from itertools import islice
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.rank_tables import make_engine

from aisim_gym.engine.acceptance import WORDS_PER_BLOCK, draw_accepted
from aisim_gym.engine.tables import RankRow
from aisim_gym.tables import Table, make_table
from aisim_gym.workload.chacha import ChaChaStream

MAX_U64 = 2**64 - 1


class Drafter:
    """Ranks that draw with the seed and the acceptance rates of one engine."""

    def __init__(self, seed: int, rates: tuple[float, ...], num_ranks: int = 1) -> None:
        self.engine = make_engine(
            draft_tokens=len(rates),
            draft_seed_low=seed & 0xFFFFFFFF,
            draft_seed_high=seed >> 32,
            **{f"accept_rate_{k + 1}": rate for k, rate in enumerate(rates)},
        )
        self.ranks: Table[RankRow] = make_table(RankRow, num_ranks)
        self.ranks["id"][:] = self.ranks["scheduler_id"][:] = np.arange(num_ranks)
        self.draws = np.zeros((num_ranks, WORDS_PER_BLOCK), np.int64)

    def draw(self, rank: int = 0) -> int:
        return draw_accepted(self.engine, self.ranks[rank], self.draws)


def words_after(seed: int, scheduler_id: int, num_draws: int) -> NDArray[np.int64]:
    """Return the current block of a rank that has drawn so many numbers."""
    drafter = Drafter(seed, (0.0,))
    drafter.ranks[0].scheduler_id = scheduler_id
    for _ in range(num_draws):
        assert drafter.draw() == 1
    assert drafter.ranks[0].num_draws == num_draws
    block: NDArray[np.int64] = drafter.draws[0]
    return block


@pytest.mark.parametrize(
    ("seed", "numbers"),
    [
        (42, (0x86CC7763222724A2, 0x8AF00A133FAD517D, 0xA2EF6071DE5134D1, 0x67E92D78FD7630B2)),
        (0, (0xBB2A3FB2CD2C6F7F, 0xC6017C948E27697B)),
    ],
)
def test_first_numbers_are_those_of_the_reference(seed: int, numbers: tuple[int, ...]) -> None:
    low, high = words_after(seed, 0, 1).reshape(-1, 2).T.tolist()
    drawn = [a | b << 32 for a, b in zip(low, high, strict=True)]
    assert tuple(drawn[: len(numbers)]) == numbers


@pytest.mark.parametrize(
    ("seed", "rates", "accepted"),
    [
        (42, (0.85, 0.3), "2 2 2 2 3 1 2 2 3 3 2 2 2 2 2 2 1 1 1 3"),
        (42, (0.5, 0.5, 0.5), "1 1 1 4 1 1 3 1 3 3"),
        (43, (0.5, 0.5, 0.5), "1 4 2 4 4 2 1 3 4 1"),
        (42, (0.8, 0.6, 0.4), "3 3 2 3 4 4 3 1 4 3"),
    ],
)
def test_accepted_tokens_are_those_of_the_reference(
    seed: int, rates: tuple[float, ...], accepted: str
) -> None:
    drafter = Drafter(seed, rates)
    expected = [int(count) for count in accepted.split()]
    assert [drafter.draw() for _ in expected] == expected


@given(st.integers(0, MAX_U64), st.integers(1, 40))
@example(MAX_U64, 1)
@example(2**32 - 1, 9)
@example(2**63, 8)
def test_stream_is_the_one_that_workloads_draw_from(seed: int, num_draws: int) -> None:
    start = (num_draws - 1) // 8 * WORDS_PER_BLOCK
    expected = list(islice(ChaChaStream(seed).words(), start, start + WORDS_PER_BLOCK))
    assert words_after(seed, 0, num_draws).tolist() == expected


@pytest.mark.parametrize(
    ("seed", "scheduler_id"),
    [(42, 1), (2**32 - 1, 1), (MAX_U64, 1), (MAX_U64 - 2, 7), (2**63 - 1, 4)],
)
def test_rank_adds_its_scheduler_id_to_the_seed_modulo_64_bits(
    seed: int, scheduler_id: int
) -> None:
    ours = words_after(seed, scheduler_id, 1).tolist()
    assert ours == words_after((seed + scheduler_id) % 2**64, 0, 1).tolist()


def test_block_counter_has_64_bits() -> None:
    drafter, stream = Drafter(42, (0.0,)), ChaChaStream(42)
    drafter.ranks[0].num_draws = 8 * 2**32
    stream._next_block = 2**32
    drafter.draw()
    assert drafter.draws[0].tolist() == list(islice(stream.words(), WORDS_PER_BLOCK))


def test_compiled_code_draws_the_same_numbers() -> None:
    """Sums and products beyond 64 bits are cut off there, and kept in plain Python."""
    compile_kernel: Any = numba.njit
    draw = compile_kernel(draw_accepted)
    for seed in (0, 42, 2**32 - 1, 2**63, MAX_U64):
        compiled, plain = (Drafter(seed, (0.8, 0.6, 0.4), num_ranks=2) for _ in range(2))
        for _ in range(20):
            ours = draw(compiled.engine, compiled.ranks[1], compiled.draws)
            assert ours == plain.draw(1)
        assert compiled.draws.tolist() == plain.draws.tolist()


def test_ranks_draw_independently() -> None:
    alone = [Drafter(seed, (0.85, 0.3)) for seed in (42, 43)]
    together = Drafter(42, (0.85, 0.3), num_ranks=2)
    for _ in range(30):
        assert [together.draw(rank) for rank in (0, 1)] == [one.draw() for one in alone]


def test_certain_drafts_draw_nothing_and_impossible_ones_draw_and_fail() -> None:
    certain = Drafter(42, (1.0,) * 5)
    assert [certain.draw() for _ in range(3)] == [6, 6, 6]
    assert certain.ranks[0].num_draws == 0
    impossible = Drafter(42, (0.0, 1.0))
    assert [impossible.draw() for _ in range(3)] == [1, 1, 1]
    assert impossible.ranks[0].num_draws == 3


def test_rate_decides_to_the_last_bit() -> None:
    first = 0x86CC7763222724A2
    at_least = np.nextafter(first / 2.0**64, 1.0)
    assert int(at_least * 2.0**64) > first
    assert Drafter(42, (float(at_least),)).draw() == 2
    below = np.nextafter(first / 2.0**64, 0.0)
    assert int(below * 2.0**64) <= first
    assert Drafter(42, (float(below),)).draw() == 1


def test_later_drafts_are_drawn_only_while_earlier_ones_are_accepted() -> None:
    drafter = Drafter(42, (0.85, 0.3))
    accepted = [drafter.draw() for _ in range(20)]
    assert drafter.ranks[0].num_draws == sum(1 if count == 1 else 2 for count in accepted)

"""Identities of engine blocks (workloads.md §3.2, engine-vllm-trtllm.md §5.1)."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_gym.workload import (
    PromptBlocks,
    RequestTable,
    build_prompt_blocks,
    requests_from_arrays,
)


class Prompt(NamedTuple):
    input_tokens: int
    output_tokens: int
    hash_ids: list[int] | None


class Case(NamedTuple):
    prompts: list[Prompt]
    trace_block_size: int
    block_size: int


def table_of(case: Case) -> RequestTable:
    return requests_from_arrays(
        np.arange(len(case.prompts), dtype=np.float64),
        [prompt.input_tokens for prompt in case.prompts],
        [prompt.output_tokens for prompt in case.prompts],
        [prompt.hash_ids for prompt in case.prompts],
        case.trace_block_size,
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    trace_block_size = draw(st.integers(1, 9))
    block_size = draw(st.integers(1, 12))
    prompts = []
    for _ in range(draw(st.integers(0, 8))):
        input_tokens = draw(st.integers(1, 40))
        needed = -(-input_tokens // trace_block_size)
        ids = st.lists(st.integers(0, 2), min_size=needed, max_size=needed + 2)
        hash_ids = draw(st.one_of(ids, st.none()))
        prompts.append(Prompt(input_tokens, draw(st.integers(0, 20)), hash_ids))
    return Case(prompts, trace_block_size, block_size)


def block_tokens(case: Case, index: int) -> list[tuple[object, ...]]:
    """All tokens up to the end of each complete block of a request, generated ones included."""
    prompt = case.prompts[index]
    tokens: list[object] = [
        (index, position)
        if prompt.hash_ids is None
        else prompt.hash_ids[position // case.trace_block_size]
        for position in range(prompt.input_tokens)
    ]
    tokens += [("generated", index, position) for position in range(prompt.output_tokens)]
    count = len(tokens) // case.block_size
    return [tuple(tokens[: (block + 1) * case.block_size]) for block in range(count)]


def identities(blocks: PromptBlocks, case: Case, index: int) -> list[int]:
    prompt = case.prompts[index]
    count = (prompt.input_tokens + prompt.output_tokens) // case.block_size
    return [int(number) for number in blocks.identities(index, count)]


@settings(deadline=None, max_examples=300)
@given(cases())
def test_identities_are_equal_exactly_when_all_tokens_up_to_the_block_end_are(case: Case) -> None:
    blocks = build_prompt_blocks(table_of(case), case.block_size)
    number_of: dict[tuple[object, ...], int] = {}
    holders: dict[tuple[object, ...], set[int]] = {}
    for index in range(len(case.prompts)):
        expected = block_tokens(case, index)
        numbers = identities(blocks, case, index)
        assert len(numbers) == len(expected)
        for tokens, number in zip(expected, numbers, strict=True):
            assert number_of.setdefault(tokens, number) == number
            holders.setdefault(tokens, set()).add(index)
    # Different content never has the same number, and no number is left out.
    assert sorted(number_of.values()) == list(range(blocks.num_contents))
    shared = {number_of[tokens] for tokens, who in holders.items() if len(who) > 1}
    assert shared == set(range(blocks.num_shared))
    for index in range(len(case.prompts)):
        alike = [len(holders[tokens]) > 1 for tokens in block_tokens(case, index)]
        assert blocks.shared_blocks[index] == sum(alike)


@settings(deadline=None)
@given(cases())
def test_shared_identities_are_numbered_by_first_appearance(case: Case) -> None:
    contents = build_prompt_blocks(table_of(case), case.block_size).contents.tolist()
    assert list(dict.fromkeys(contents)) == list(range(len(set(contents))))


@pytest.mark.parametrize(
    ("trace_block_size", "first", "second", "reused_tokens"),
    [(8, [1, 2], [1, 3], 8), (2, [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 9, 5, 6, 7, 8], 4)],
)
def test_examples_of_trace_blocks_that_differ_from_engine_blocks(
    trace_block_size: int, first: list[int], second: list[int], reused_tokens: int
) -> None:
    prompts = [Prompt(16, 1, first), Prompt(16, 1, second)]
    blocks = build_prompt_blocks(table_of(Case(prompts, trace_block_size, 4)), 4)
    assert (blocks.shared_blocks * 4).tolist() == [reused_tokens, reused_tokens]


def test_block_that_only_one_prompt_completes_is_private() -> None:
    prompts = [Prompt(7, 0, [1, 2]), Prompt(8, 0, [1, 2])]
    blocks = build_prompt_blocks(table_of(Case(prompts, 4, 4)), 4)
    assert blocks.shared_blocks.tolist() == [1, 1]
    assert blocks.num_contents == 2


def test_private_identities_cover_generated_blocks_and_do_not_collide() -> None:
    prompts = [Prompt(9, 7, None), Prompt(3, 0, None), Prompt(4, 4, [1])]
    blocks = build_prompt_blocks(table_of(Case(prompts, 4, 4)), 4)
    assert blocks.private_base.tolist() == [0, 4, 4]
    assert blocks.num_contents == 6


def test_table_without_requests_has_no_blocks() -> None:
    blocks = build_prompt_blocks(requests_from_arrays([], [], []), 16)
    assert blocks.num_contents == 0


def test_block_size_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="block_size: got 0, allowed: an integer >= 1"):
        build_prompt_blocks(requests_from_arrays([], [], []), 0)


def test_million_requests_without_hash_ids_need_no_contents() -> None:
    count = 1_000_000
    table = requests_from_arrays(np.zeros(count), np.full(count, 100), np.full(count, 60))
    blocks = build_prompt_blocks(table, 16)
    assert blocks.contents.size == 0
    assert blocks.private_base[-1] == 10 * (count - 1)
    assert blocks.num_contents == 10 * count

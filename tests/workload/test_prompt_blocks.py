"""Identities of engine blocks (workloads.md §3.2, §5, §9.1, engine-vllm-trtllm.md §5.1)."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import cpu_ratio

from aisim_gym.workload import (
    PromptBlocks,
    RequestTable,
    build_prompt_blocks,
    requests_from_arrays,
    requests_from_mooncake_rows,
)


class Prompt(NamedTuple):
    input_tokens: int
    output_tokens: int
    hash_ids: list[int] | None


class BlockCase(NamedTuple):
    prompts: list[Prompt]
    trace_block_size: int
    block_size: int


def table_of(case: BlockCase) -> RequestTable:
    return requests_from_arrays(
        np.arange(len(case.prompts), dtype=np.float64),
        [prompt.input_tokens for prompt in case.prompts],
        [prompt.output_tokens for prompt in case.prompts],
        [prompt.hash_ids for prompt in case.prompts],
        case.trace_block_size,
    )


@st.composite
def cases(draw: st.DrawFn) -> BlockCase:
    trace_block_size = draw(st.integers(1, 9))
    block_size = draw(st.integers(1, 12))
    prompts = []
    for _ in range(draw(st.integers(0, 8))):
        input_tokens = draw(st.integers(1, 40))
        needed = -(-input_tokens // trace_block_size)
        ids = st.lists(st.integers(0, 2), min_size=needed, max_size=needed + 2)
        hash_ids = draw(st.one_of(ids, st.none()))
        prompts.append(Prompt(input_tokens, draw(st.integers(0, 20)), hash_ids))
    return BlockCase(prompts, trace_block_size, block_size)


def tokens_of(case: BlockCase) -> list[list[object]]:
    """All tokens of each request, generated ones included; equal objects are equal tokens."""
    everything = []
    for index, prompt in enumerate(case.prompts):
        tokens: list[object] = [
            (index, position)
            if prompt.hash_ids is None
            else prompt.hash_ids[position // case.trace_block_size]
            for position in range(prompt.input_tokens)
        ]
        tokens += [("generated", index, position) for position in range(prompt.output_tokens)]
        everything.append(tokens)
    return everything


def check_identities(blocks: PromptBlocks, requests: list[list[object]]) -> None:
    """Check that identities are equal exactly where all tokens up to the end of the block are."""
    number_of: dict[tuple[object, ...], int] = {}
    holders: dict[int, set[int]] = {}
    for index, tokens in enumerate(requests):
        count = len(tokens) // blocks.block_size
        numbers = [int(number) for number in blocks.identities(index, count)]
        for block, number in enumerate(numbers):
            content = tuple(tokens[: (block + 1) * blocks.block_size])
            assert number_of.setdefault(content, number) == number
            holders.setdefault(number, set()).add(index)
    # Different content never has the same number, and no number is left out.
    assert sorted(number_of.values()) == list(range(blocks.num_contents))
    shared = {number for number, who in holders.items() if len(who) > 1}
    assert shared == set(range(blocks.num_shared))
    for index in range(len(requests)):
        held = sum(1 for number in shared if index in holders[number])
        assert blocks.shared_blocks[index] == held
    contents = blocks.contents.tolist()
    assert list(dict.fromkeys(contents)) == list(range(blocks.num_shared))


@settings(deadline=None, max_examples=300)
@given(cases())
def test_identities_are_equal_exactly_when_all_tokens_up_to_the_block_end_are(
    case: BlockCase,
) -> None:
    check_identities(build_prompt_blocks(table_of(case), case.block_size), tokens_of(case))


class Turn(NamedTuple):
    session: str
    input_tokens: int
    output_tokens: int
    hash_ids: list[int]
    output_ids: list[int] | None


class Sessions(NamedTuple):
    turns: list[Turn]
    is_delta: bool
    trace_block_size: int
    block_size: int


@st.composite
def sessions(draw: st.DrawFn) -> Sessions:
    trace_block_size = draw(st.integers(1, 5))
    turns = []
    for _ in range(draw(st.integers(1, 8))):
        input_tokens, output_tokens = draw(st.integers(1, 10)), draw(st.integers(0, 8))
        needed = -(-input_tokens // trace_block_size)
        ids = draw(st.lists(st.sampled_from([30, 31]), min_size=needed, max_size=needed + 1))
        given_ids = st.lists(st.integers(0, 1), min_size=output_tokens, max_size=output_tokens)
        turns.append(
            Turn(
                draw(st.sampled_from("abc")),
                input_tokens,
                output_tokens,
                ids,
                draw(st.one_of(st.none(), given_ids)),
            )
        )
    return Sessions(turns, draw(st.booleans()), trace_block_size, draw(st.integers(1, 5)))


def table_of_sessions(case: Sessions) -> RequestTable:
    rows = [
        {
            "session_id": turn.session,
            "input_length": turn.input_tokens,
            "output_length": turn.output_tokens,
            "hash_ids": turn.hash_ids,
            "output_token_ids": turn.output_ids,
        }
        for turn in case.turns
    ]
    return requests_from_mooncake_rows(
        rows, case.trace_block_size, is_delta=case.is_delta, is_closed_loop=True
    )


def tokens_of_turns(case: Sessions) -> list[list[object]]:
    """All tokens of each turn in order of lines; the token of a hash id is its number."""
    numbers = list(dict.fromkeys(item for turn in case.turns for item in turn.hash_ids))
    so_far: dict[str, list[object]] = {}
    everything = []
    for index, turn in enumerate(case.turns):
        before = so_far.get(turn.session, []) if case.is_delta else []
        tokens: list[object] = [
            numbers.index(turn.hash_ids[position // case.trace_block_size])
            for position in range(turn.input_tokens)
        ]
        if turn.output_ids is None:
            tokens += [(index, position) for position in range(turn.output_tokens)]
        else:
            tokens += turn.output_ids
        so_far[turn.session] = before + tokens
        everything.append(before + tokens)
    return everything


@settings(deadline=None, max_examples=300)
@given(sessions())
def test_known_outputs_and_continued_prompts_are_shared_token_by_token(case: Sessions) -> None:
    table = table_of_sessions(case)
    tokens = tokens_of_turns(case)
    in_order = [tokens[row] for row in table.row.tolist()]
    lengths = [len(all_tokens) for all_tokens in in_order]
    assert (table.input_tokens + table.output_tokens).tolist() == lengths
    check_identities(build_prompt_blocks(table, case.block_size), in_order)


def test_turn_without_known_outputs_shares_them_with_a_delta_turn_only() -> None:
    turns = [Turn("a", 4, 4, [30], None), Turn("a", 4, 1, [30], None)]
    plain = build_prompt_blocks(table_of_sessions(Sessions(turns, False, 4, 4)), 4)
    assert plain.shared_blocks.tolist() == [1, 1]
    delta = build_prompt_blocks(table_of_sessions(Sessions(turns, True, 4, 4)), 4)
    assert delta.shared_blocks.tolist() == [2, 2]
    assert delta.identities(1, 3).tolist() == [0, 1, 2]


def test_hash_ids_may_cover_only_the_beginning_of_a_prompt() -> None:
    # Seven tokens are known, the rest of each prompt is like no other.
    table = RequestTable(
        row=np.arange(2),
        arrival_ms=np.zeros(2),
        input_tokens=np.array([20, 20]),
        output_tokens=np.array([4, 4]),
        prompt_ids=np.zeros(2, np.int64),
        prompt_starts=np.arange(3),
        trace_block_size=7,
    )
    assert build_prompt_blocks(table, 3).shared_blocks.tolist() == [2, 2]
    named = dataclasses.replace(
        table, output_ids=np.ones(4, np.int64), output_starts=np.array([0, 4, 4])
    )
    assert build_prompt_blocks(named, 3).shared_blocks.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("trace_block_size", "first", "second", "reused_tokens"),
    [(8, [1, 2], [1, 3], 8), (2, [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 9, 5, 6, 7, 8], 4)],
)
def test_examples_of_trace_blocks_that_differ_from_engine_blocks(
    trace_block_size: int, first: list[int], second: list[int], reused_tokens: int
) -> None:
    prompts = [Prompt(16, 1, first), Prompt(16, 1, second)]
    blocks = build_prompt_blocks(table_of(BlockCase(prompts, trace_block_size, 4)), 4)
    assert (blocks.shared_blocks * 4).tolist() == [reused_tokens, reused_tokens]


def test_block_that_only_one_prompt_completes_is_private() -> None:
    prompts = [Prompt(7, 0, [1, 2]), Prompt(8, 0, [1, 2])]
    blocks = build_prompt_blocks(table_of(BlockCase(prompts, 4, 4)), 4)
    assert blocks.shared_blocks.tolist() == [1, 1]
    assert blocks.num_contents == 2


def test_private_identities_cover_generated_blocks_and_do_not_collide() -> None:
    prompts = [Prompt(9, 7, None), Prompt(3, 0, None), Prompt(4, 4, [1])]
    blocks = build_prompt_blocks(table_of(BlockCase(prompts, 4, 4)), 4)
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


def trace_with_outputs(count: int) -> RequestTable:
    rows = [
        {
            "timestamp": at,
            "input_length": 4096,
            "output_length": 3,
            "hash_ids": [at % 7, *range(8 * at, 8 * at + 7)],
            "output_token_ids": [1, 2, 3],
        }
        for at in range(count)
    ]
    return requests_from_mooncake_rows(rows)


def test_trace_with_known_outputs_is_numbered_in_linear_time() -> None:
    """Usual for four times the requests: 5 to 6 times the time."""
    short, long = trace_with_outputs(250), trace_with_outputs(1000)
    ratio = cpu_ratio(lambda: build_prompt_blocks(long, 64), lambda: build_prompt_blocks(short, 64))
    assert ratio < 10

"""What prompts of generated traffic share (traffic-data.md §3, §4, docs/workloads.md)."""

import math
from collections import OrderedDict
from itertools import count
from typing import Any

import numpy as np
import pytest

from aisim_gym.spec import TrafficClass, TrafficSpec
from aisim_gym.workload import RequestTable, build_prompt_blocks, generate_requests
from aisim_gym.workload.traffic.turns import IdCounter, Turns, turn_source

STEADY: dict[str, Any] = {"arrivals": {"kind": "poisson", "rate_rps": 50.0}, "duration_s": 600.0}
FIXED: dict[str, Any] = {"kind": "fixed", "input_tokens": 1000, "output_tokens": 10}


def hash_ids(table: RequestTable) -> list[list[int]]:
    """Return ids for whole prompts, new ones where the table has none."""
    unused = count(int(table.prompt_ids.max(initial=-1)) + 1)
    prompts = []
    for row, input_tokens in enumerate(table.input_tokens.tolist()):
        ids = table.prompt_ids[table.prompt_starts[row] : table.prompt_starts[row + 1]].tolist()
        blocks = -(-input_tokens // table.trace_block_size)
        prompts.append(ids + [next(unused) for _ in range(blocks - len(ids))])
    return prompts


def reuse_share(table: RequestTable, from_ms: float = 0.0) -> float:
    """Return the part of the input tokens that a cache without limit would have."""
    seen: set[int] = set()
    reused = total = 0
    for ids, input_tokens, arrival_ms in zip(
        hash_ids(table), table.input_tokens.tolist(), table.arrival_ms.tolist(), strict=True
    ):
        known = next((index for index, name in enumerate(ids) if name not in seen), len(ids))
        seen.update(ids)
        if arrival_ms >= from_ms:
            reused += min(known * table.trace_block_size, input_tokens)
            total += input_tokens
    return reused / total


def lru_hit_share(table: RequestTable, blocks: int) -> float:
    """Return the share of block references that a cache with so many blocks has."""
    cache: OrderedDict[int, None] = OrderedDict()
    hits = references = 0
    for ids in hash_ids(table):
        for name in ids:
            references += 1
            if name in cache:
                hits += 1
                cache.move_to_end(name)
            else:
                cache[name] = None
                if len(cache) > blocks:
                    cache.popitem(last=False)
    return hits / references


def test_unique_prompts_have_no_ids() -> None:
    table = generate_requests(TrafficSpec(**STEADY, lengths=FIXED))
    assert table.prompt_ids.size == 0
    assert build_prompt_blocks(table, 16).num_shared == 0


def test_groups_share_whole_blocks_of_their_prefix() -> None:
    prompts = {"kind": "groups", "groups": 5, "prefix_blocks": 2, "block_tokens": 400}
    table = generate_requests(TrafficSpec(**STEADY, lengths=FIXED, prompts=prompts))
    assert table.trace_block_size == 400
    firsts = table.prompt_ids[table.prompt_starts[:-1]]
    assert np.diff(table.prompt_starts).tolist() == [2] * len(table)
    assert sorted({*firsts.tolist()}) == [0, 2, 4, 6, 8]
    blocks = build_prompt_blocks(table, 16)
    assert set(blocks.shared_blocks.tolist()) == {50}
    # Shorter prompts than a block of the prefix have nothing of it.
    short = generate_requests(
        TrafficSpec(**STEADY, lengths={**FIXED, "input_tokens": 799}, prompts=prompts)
    )
    assert np.diff(short.prompt_starts).tolist() == [1] * len(short)


def test_groups_are_as_popular_as_their_ranks_say() -> None:
    prompts = {"kind": "groups", "groups": 40, "zipf": 1.3, "zipf_shift": 2.5, "prefix_blocks": 1}
    table = generate_requests(TrafficSpec(**STEADY, lengths=FIXED, prompts=prompts))
    expected = (np.arange(1, 41) + 2.5) ** -1.3
    expected *= len(table) / expected.sum()
    counts = np.bincount(table.prompt_ids, minlength=40)
    assert ((counts - expected) ** 2 / expected).sum() < 39 + 4 * math.sqrt(2 * 39)


def test_prefix_on_top_gives_the_reuse_of_its_formula() -> None:
    prompts = {
        "kind": "groups",
        "groups": 20,
        "prefix_blocks": 4,
        "prefix_sigma": 0.8,
        "max_prefix_blocks": 16,
        "adds_to_input": True,
    }
    table = generate_requests(TrafficSpec(**STEADY, lengths=FIXED, prompts=prompts, seed=4))
    prefix_tokens = table.input_tokens - 1000
    assert np.array_equal(prefix_tokens, np.diff(table.prompt_starts) * 512)
    assert 0 < prefix_tokens.max() <= 16 * 512
    assert len(set(prefix_tokens.tolist())) > 3
    expected = prefix_tokens.sum() / table.input_tokens.sum()
    # What is not reused is what each group sends first.
    assert reuse_share(table) == pytest.approx(
        expected, abs=20 * 16 * 512 / table.input_tokens.sum()
    )


def test_clients_have_a_system_prompt_each() -> None:
    spec = TrafficSpec(preset="servegen-large-clients", duration_s=300.0)
    table = generate_requests(spec)
    long_enough = table.input_tokens >= 512
    assert np.array_equal(np.diff(table.prompt_starts), long_enough.astype(np.int64))
    assert 30 < len(set(table.prompt_ids.tolist())) <= 162
    counts = np.sort(np.bincount(table.prompt_ids))[::-1]
    assert counts[0] > 5 * counts[min(30, counts.size - 1)]


SESSIONS: dict[str, Any] = {
    "kind": "sessions",
    "continue_probs": (0.5, 0.8),
    "continue_prob_later": 0.6,
    "gap_median_s": 20.0,
    "gap_sigma": 0.5,
    "growth": {
        "weights": (1.0,),
        "medians": (300.0,),
        "sigmas": (0.0,),
        "min_tokens": 300,
        "max_tokens": 300,
    },
}


def turns_of(part: TrafficClass, starts: int) -> Turns:
    """Return the turns of requests that all come at 0."""
    lengths, prompts = np.random.default_rng(1).spawn(2)
    source = turn_source(part, 1, lengths, prompts, IdCounter())
    return source.turns(np.zeros(starts), np.zeros(starts, np.int64))


def sessions_of(starts: int, **fields: Any) -> Turns:
    """Return the turns of sessions that all begin at 0."""
    part = TrafficClass(share=1.0, lengths=FIXED, prompts={**SESSIONS, **fields})
    return turns_of(part, starts)


def test_sessions_have_turns_by_their_probabilities() -> None:
    turns = sessions_of(40_000)
    mean = 1 + 0.5 + 0.5 * 0.8 / (1 - 0.6)
    assert turns.arrival_ms.size / 40_000 == pytest.approx(mean, abs=4 * 2.5 / math.sqrt(40_000))
    assert np.count_nonzero(turns.arrival_ms == 0.0) == 40_000


def test_gaps_between_turns_are_log_normal() -> None:
    turns = sessions_of(40_000, continue_prob_later=0.0, continue_probs=(1.0,))
    log_gaps = np.log(turns.arrival_ms[40_000:] / 1000.0)
    assert log_gaps.size == 40_000
    assert log_gaps.mean() == pytest.approx(math.log(20.0), abs=4 * 0.5 / math.sqrt(40_000))
    assert log_gaps.std() == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(80_000))


def prompt(turns: Turns, row: int) -> list[int]:
    first, last = turns.prompts.starts[row : row + 2]
    ids: list[int] = turns.prompts.flat[first:last].tolist()
    return ids


def test_turn_keeps_the_full_blocks_of_the_one_before_and_grows() -> None:
    lengths = {
        "kind": "mixture",
        "input": {
            "weights": (1.0, 1e-6),
            "medians": (1000.0, 5000.0),
            "sigmas": (0.0, 0.0),
            "max_tokens": 5000,
        },
        "output": {"weights": (1.0,), "medians": (9.0,), "sigmas": (0.0,), "max_tokens": 9},
    }
    fields = {**SESSIONS, "continue_probs": (1.0,) * 20, "continue_prob_later": 0.0}
    part = TrafficClass(share=1.0, lengths=lengths, prompts=fields)
    turns = turns_of(part, 1)
    assert turns.input_tokens.tolist() == [min(1000 + 300 * turn, 5000) for turn in range(21)]
    for turn in range(1, 21):
        before, now = prompt(turns, turn - 1), prompt(turns, turn)
        full = int(turns.input_tokens[turn - 1]) // 512
        assert now[:full] == before[:full]
        assert not set(now[full:]) & set(before)
        assert len(now) == -(-int(turns.input_tokens[turn]) // 512)
        assert now[0] == 0  # the root


def test_turn_that_keeps_a_part_keeps_the_root_and_on_average_a_third_of_the_rest() -> None:
    starts = 4000
    lengths = {"kind": "fixed", "input_tokens": 512 * 100, "output_tokens": 1}
    prompts = {
        **SESSIONS,
        "continue_probs": (1.0,),
        "continue_prob_later": 0.0,
        "full_cover_prob": 0.0,
        "root_blocks": 10,
    }
    part = TrafficClass(share=1.0, lengths=lengths, prompts=prompts)
    turns = turns_of(part, starts)
    ids = turns.prompts.flat.reshape(2, starts, 100)
    same = ids[0] == ids[1]
    kept = same.sum(axis=1)
    assert (np.diff(same.astype(int), axis=1) <= 0).all()  # a leading part
    assert kept.min() == 10
    # E[floor(90 U^2)] is about 90/3 - 1/2; the standard deviation of 90 U^2 is 26.8.
    assert kept.mean() == pytest.approx(10 + 29.5, abs=4 * 26.8 / math.sqrt(starts) + 0.1)


def test_sessions_have_their_rate_from_the_start_to_the_end() -> None:
    counts = np.zeros(6)
    for seed in range(1, 9):
        table = generate_requests(TrafficSpec(preset="mooncake-conversation", seed=seed))
        counts += np.histogram(table.arrival_ms, np.arange(7) * 600_000.0)[0]
    expected = 8 * 600 * 3.3991
    # A session's turns come together: the variance is E[turns^2] / E[turns] times that of Poisson.
    assert counts == pytest.approx(np.full(6, expected), abs=4 * math.sqrt(3.3 * expected))


def test_conversations_reuse_what_the_page_says() -> None:
    """One hour: 12243 requests, mean input 12440, reuse 0.405 / 0.421, LRU 0.044 … 0.394."""
    table = generate_requests(TrafficSpec(preset="mooncake-conversation"))
    assert len(table) == pytest.approx(12_243, rel=0.06)
    assert table.input_tokens.mean() == pytest.approx(12_440, rel=0.05)
    assert reuse_share(table) == pytest.approx(0.405, abs=0.03)
    assert reuse_share(table, 1.8e6) == pytest.approx(0.421, abs=0.03)
    for blocks, share in ((1000, 0.044), (10_000, 0.245), (50_000, 0.394)):
        assert lru_hit_share(table, blocks) == pytest.approx(share, abs=0.03)


def test_tool_agent_classes_reuse_what_the_page_says() -> None:
    """One hour: mean input 7978 (published 7590 to 8596), reuse 0.606 / 0.619, LRU 0.36 / 0.58."""
    table = generate_requests(TrafficSpec(preset="mooncake-toolagent"))
    assert len(table) == pytest.approx(3600 * 6.558, rel=0.03)
    assert table.input_tokens.mean() == pytest.approx(7978, rel=0.05)
    assert table.output_tokens.mean() == pytest.approx(197, rel=0.05)
    assert reuse_share(table) == pytest.approx(0.606, abs=0.02)
    assert reuse_share(table, 1.8e6) == pytest.approx(0.619, abs=0.02)
    for blocks, share in ((1000, 0.36), (50_000, 0.58)):
        assert lru_hit_share(table, blocks) == pytest.approx(share, abs=0.025)
    shares = [np.mean(np.diff(table.prompt_starts) == blocks) for blocks in (5, 12)]
    longest_tool = (table.output_tokens <= 53) & (table.input_tokens > 6144)
    assert shares[0] >= 0.13
    assert shares[1] >= 0.37
    assert np.mean(longest_tool) == pytest.approx(0.3763, abs=0.05)

"""Many passes of steady decode at once do what as many single passes do."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.block_rank import BlockRank

from aisim_gym.engine.backend import Backend
from aisim_gym.engine.emission import begin_work
from aisim_gym.engine.kv_pool import find_resident
from aisim_gym.engine.tables import (
    END_COMPLETED,
    END_NONE,
    NONE,
    PENDING,
    PREEMPT_FIRST,
    PREEMPT_LAST,
    ROLE_DECODE,
    ROLE_PREFILL,
    RUNNING,
    UNLIMITED,
    WAITING,
)
from aisim_gym.engine.trtllm import TRTLLM
from aisim_gym.engine.vllm import VLLM

SCRATCH = {
    "stamp",
    "pass_tokens",
    "pass_prompt_tokens",
    "pass_prefix_tokens",
    "signal_next",
    "signal_tokens",
    "signal_end",
    "admit_next",
}
"""Fields of a sequence that mean something during a pass only."""

COUNTED_ELSEWHERE = {"passes", "lru_first", "lru_last", "steady_seqs"}
"""Fields of a rank that its worker brings up to date, and row numbers."""


def steady_passes(t: BlockRank) -> int:
    return t.backend.steady_passes(t, t.engine, t.rank, NONE)


def run_at_once(t: BlockRank, num_passes: int) -> None:
    """Run passes of steady decode, within the rows that they announce."""
    demand, _ = t.backend.rows_for_decodes(t, t.engine, t.rank, num_passes)
    free_rows = int(t.arena.block_free_count)
    begin_work(t.engine, t.rank, t.work)
    t.backend.join_decodes(t, t.engine, t.rank, t.work)
    t.rank.is_capacity_bound = bool(t.queues[WAITING].count > 0)  # as its worker does
    t.backend.advance_decodes(t, t.engine, t.rank, t.work, num_passes, NONE)
    assert free_rows - t.arena.block_free_count <= demand


def ended(t: BlockRank) -> list[int]:
    """Return the sequences that end with the last pass, in order."""
    return [s for s in t.signals() if t.seqs[s].signal_end != END_NONE]


def state(t: BlockRank) -> dict[str, Any]:
    """Return everything that later passes depend on."""
    live = np.asarray(t.seqs)[t.seqs["request"] != NONE]
    names = live.dtype.names or ()
    blocks = np.asarray(t.blocks)
    order, b = [], int(t.rank.lru_first)
    while b != NONE:
        order.append((int(blocks[b]["content"]), int(blocks[b]["num_blocks"])))
        b = int(blocks[b]["lru_next"])
    lists = [
        [(int(blocks[b]["content"]), age_of_copy(t, b)) for b in t.entries[start : start + count]]
        for start, count in zip(live["entry_start"], live["listed_blocks"], strict=True)
    ]
    rank = np.asarray(t.rank)
    return {
        "seqs": {name: live[name].tolist() for name in names if name not in SCRATCH},
        "rank": {
            name: rank[name].item()
            for name in rank.dtype.names or ()
            if name not in COUNTED_ELSEWHERE and not name.startswith("steady_")
        },
        "queues": [t.queued(kind) for kind in (WAITING, RUNNING, PENDING)],
        "eviction order": order,
        "block lists": lists,
        "rows": int(t.arena.block_free_count),
    }


def age_of_copy(t: BlockRank, b: int) -> int:
    """Return how many older copies of a block can be found: the oldest is the one that is hit."""
    older, at = 0, find_resident(t.blocks, 0, int(t.blocks[b].content))
    while at != b:
        older += int(t.blocks[at].content == t.blocks[b].content)
        at = int(t.blocks[at].chain_next)
    return older


def check_steady(t: BlockRank, num_passes: int) -> None:
    """Compare passes at once with single ones on a copy; sequences that end are deleted."""
    single = copy.deepcopy(t)
    count, tokens = int(t.rank.steady_seqs), int(t.rank.steady_tokens)
    squares = int(t.rank.steady_squares)
    joined = single.queued(WAITING) if count > single.queues[RUNNING].count else []
    run_at_once(t, num_passes)
    assert t.admitted() == joined
    for n in range(num_passes):
        work = single.run_pass()
        assert single.admitted() == (joined if n == 0 else [])
        assert (
            work.preempted == work.num_prefill == work.start_effects - len(single.admitted()) == 0
        )
        assert (work.num_decode, work.timed_decodes, work.accept_forwards) == (count,) * 3
        assert work.decode_tokens == work.timed_tokens == tokens + n * count
        assert work.decode_squares == squares + 2 * n * tokens + n * n * count
        assert work.signal_count == count
        assert all(single.seqs[s].signal_tokens == 1 for s in single.signals())
        if n + 1 < num_passes:
            assert ended(single) == []
    assert ended(t) == ended(single)
    assert [int(t.seqs[s].signal_end) for s in ended(t)] == [END_COMPLETED] * len(ended(t))
    assert state(t) == state(single)
    for s in ended(t):
        t.delete(s)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("submit"),
            st.integers(1, 20),
            st.integers(1, 30),
            st.sampled_from([0, 1, 3, 20]),
        ),
        st.tuples(st.just("pass"), st.integers(1, 4)),
        st.tuples(st.just("steady"), st.integers(1, 50)),
        st.tuples(st.just("cancel"), st.integers(0, 3)),
    ),
    min_size=3,
    max_size=30,
)
ENGINES = st.fixed_dictionaries(
    {
        "num_blocks": st.integers(6, 40),
        "block_size": st.sampled_from([4, 1, 2, 16]),
        "prefix_caching": st.sampled_from([1, 1, 0]),
        "max_seqs": st.sampled_from([UNLIMITED, 1, 2, 3]),
        "max_batched_tokens": st.sampled_from([UNLIMITED, 2, 8]),
        "max_model_len": st.sampled_from([UNLIMITED, 30]),
        "dp_size": st.sampled_from([1, 1, 2]),
    }
)
PREEMPTIONS = st.sampled_from([PREEMPT_LAST, PREEMPT_FIRST])


def act(t: BlockRank, step: tuple[Any, ...], new: Callable[..., int]) -> int:
    """Apply a step; return how many passes of steady decode were compared."""
    if step[0] == "submit":
        new(*step[1:])
    elif step[0] == "cancel":
        running = t.queued(RUNNING)
        if step[1] < len(running):
            t.cancel(running[step[1]])
    elif step[0] == "pass":
        for _ in range(step[1]):
            if any(t.queued(kind) for kind in (WAITING, RUNNING)):
                t.run_pass()
                for s in ended(t):
                    t.delete(s)
    else:
        num_passes: int = min(step[1], steady_passes(t))
        if num_passes > 0:
            check_steady(t, num_passes)
        return num_passes
    return 0


@pytest.mark.parametrize("backend", [VLLM, TRTLLM], ids=["vllm", "trtllm"])
@given(steps=STEPS, engine=ENGINES, preemption=PREEMPTIONS)
@example(
    steps=[("submit", 4, 9, 0), ("submit", 8, 30, 0), ("submit", 8, 9, 0)]
    + [("pass", 1), ("steady", 50)] * 6,
    engine={"num_blocks": 10, "block_size": 4},
    preemption=PREEMPT_FIRST,
)
def test_passes_at_once_are_single_passes(
    backend: Backend, steps: list[tuple[Any, ...]], engine: dict[str, int], preemption: int
) -> None:
    """Texts may begin with the same blocks, outputs included; some outgrow the pool."""
    own = {"preemption": preemption} if backend is VLLM else {}
    t = BlockRank(backend, **engine, **own)

    def submit(prompt_tokens: int, output_tokens: int, common: int) -> int:
        complete = (prompt_tokens + output_tokens) // int(t.engine.block_size)
        return t.submit(prompt_tokens, output_tokens, list(range(min(common, complete))))

    for step in steps:
        act(t, step, submit)


@pytest.mark.parametrize("backend", [VLLM, TRTLLM], ids=["vllm", "trtllm"])
@given(steps=STEPS, engine=ENGINES, preemption=PREEMPTIONS, late=st.sets(st.integers(0, 29)))
def test_activated_destinations_join_as_in_single_passes(
    backend: Backend,
    steps: list[tuple[Any, ...]],
    engine: dict[str, int],
    preemption: int,
    late: set[int],
) -> None:
    """On a decode worker; the KV of some destinations arrives a step later."""
    own = {"preemption": preemption} if backend is VLLM else {}
    t = BlockRank(backend, role=ROLE_DECODE, **engine, **own)
    reserved: list[int] = []

    def accept(prompt_tokens: int, output_tokens: int, common: int) -> int:
        complete = (prompt_tokens + output_tokens) // int(t.engine.block_size)
        s = t.accept(prompt_tokens, output_tokens, list(range(min(common, complete))))
        if s == NONE:  # it never fits
            s = next(row for row, seq in enumerate(np.asarray(t.seqs)) if _is_new(seq))
            t.delete(s)
        return s

    for at, step in enumerate(steps):
        if step[0] != "cancel":
            act(t, step, accept)
        if (s := t.reserve()) != NONE:
            reserved.append(s)
        if at not in late:
            for s in reserved:
                t.activate(s)
            reserved.clear()


def _is_new(seq: Any) -> bool:
    """Return whether a sequence was created and is in no queue."""
    return bool(seq["request"] != NONE and seq["status"] == 0 and seq["is_destination"] == 0)


# When passes are steady


def running(**engine: Any) -> BlockRank:
    """Two requests that decode, with 9 and 5 tokens left, in a pool of 16 blocks."""
    t = BlockRank(**{"num_blocks": 16, **engine})
    t.submit(8, 10)
    t.submit(5, 6)
    t.run_pass()
    return t


def test_steady_decode_lasts_until_the_first_request_ends() -> None:
    t = running()
    assert steady_passes(t) == 5
    check_steady(t, 5)
    assert steady_passes(t) == 4
    check_steady(t, 4)
    assert steady_passes(t) == 0


def test_steady_decode_stops_where_blocks_may_run_out() -> None:
    # Ten of twelve blocks are private; two passes of 4 tokens for two requests fit for certain.
    t = BlockRank(num_blocks=12, prefix_caching=0)
    t.submit(19, 40)
    t.submit(19, 40)
    t.run_pass()
    assert steady_passes(t) == 4
    check_steady(t, 4)
    assert steady_passes(t) == 0


def test_evictable_blocks_count_as_room_and_give_way_in_their_order() -> None:
    t = BlockRank(num_blocks=8)
    t.submit(8, 1, [1, 2])
    t.run_to_end()
    t.submit(4, 20, [3])
    t.run_pass()
    num_passes = steady_passes(t)
    assert num_passes == 19
    check_steady(t, num_passes)
    assert t.rank.resident_blocks <= 8


@pytest.mark.parametrize(
    ("engine", "because"),
    [
        ({"role": ROLE_PREFILL}, "prefill workers do not decode"),
        ({"draft_tokens": 2}, "bursts are drawn pass by pass"),
        ({"max_batched_tokens": 1}, "not everybody gets a token in every pass"),
    ],
)
def test_engine_that_does_not_decode_steadily_runs_pass_by_pass(
    engine: dict[str, int], because: str
) -> None:
    t = running()
    for name, value in engine.items():
        setattr(t.engine, name, value)
    assert steady_passes(t) == 0, because


def test_request_that_can_be_admitted_ends_steady_decode() -> None:
    t = running()
    t.submit(4, 4)
    assert steady_passes(t) == 0


def test_request_that_does_not_fit_waits_through_steady_decode() -> None:
    t = running()
    waiting = t.submit(60, 1)
    assert steady_passes(t) == 5
    check_steady(t, 5)
    assert t.queued(WAITING) == [waiting]


def test_full_running_list_keeps_the_others_waiting() -> None:
    t = running(max_seqs=2)
    t.submit(4, 4)
    assert steady_passes(t) == 5
    check_steady(t, 5)
    assert steady_passes(t) == 0


def test_request_out_of_step_with_the_token_log_runs_pass_by_pass() -> None:
    t = running()
    t.seqs[t.queued(RUNNING)[1]].last_entry = 7
    assert t.backend.steady_passes(t, t.engine, t.rank, NONE) == 0
    assert t.backend.steady_passes(t, t.engine, t.rank, 7) == 0


def test_partly_computed_prompt_runs_pass_by_pass() -> None:
    t = BlockRank(num_blocks=16, max_batched_tokens=10)
    t.submit(4, 10)
    t.submit(20, 10)
    t.run_pass()
    assert steady_passes(t) == 0


def test_idle_rank_has_no_steady_passes() -> None:
    assert steady_passes(BlockRank()) == 0


def test_rows_are_announced_for_generated_blocks_that_others_may_look_for() -> None:
    """An output whose text is known, as of a turn that a later one repeats."""
    t = BlockRank(num_blocks=16)
    t.submit(4, 40, list(range(11)))
    t.run_pass()
    free_rows = int(t.arena.block_free_count)
    check_steady(t, steady_passes(t))
    assert free_rows - t.arena.block_free_count == 9


def test_copies_that_requests_generate_together_are_found_in_the_order_of_the_passes() -> None:
    """Both write the same text; the second one completes its blocks a pass earlier each."""
    t = BlockRank(num_blocks=16)
    t.submit(5, 30, [1, 2, 3, 4, 5])
    t.submit(6, 30, [1, 2, 3, 4, 5])
    t.run_pass()
    num_passes = steady_passes(t)
    assert num_passes > 8
    check_steady(t, num_passes)
    ages = [
        [age_of_copy(t, b) for b in t.entries[int(seq.entry_start) :][: int(seq.listed_blocks)]]
        for seq in (t.seqs[s] for s in t.queued(RUNNING))
    ]
    assert ages == [[0, 1, 1, 1, 1], [0, 0, 0, 0, 0]]  # the first block is the prompts'


def test_request_that_waits_for_a_block_which_a_running_one_generates_ends_steady_decode() -> None:
    """It needs all eight blocks; two are in use, and both are its own text from the third pass on.

    Passes schedule running requests first, so it is admitted in that very pass.
    """
    t = BlockRank()
    t.submit(5, 30, range(1, 9))
    t.run_pass()
    waiting = t.submit(32, 1, range(1, 9))
    assert steady_passes(t) == 2
    check_steady(t, 2)
    assert steady_passes(t) == 0
    t.run_pass()
    assert t.admitted() == [waiting]

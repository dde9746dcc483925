"""The KV block pool: sharing, eviction order, copies, growth (engine-vllm-trtllm.md §5)."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.rank_tables import BLOCK_SIZE, BareRank, make_engine

from aisim_gym.engine.kv_pool import (
    active_blocks,
    allocate,
    count_hits,
    find_resident,
    link_blocks,
    make_resident,
    release_blocks,
)
from aisim_gym.engine.seq_rows import delete_seq
from aisim_gym.engine.tables import NONE
from aisim_gym.tables import grow_table


def pool(num_blocks: int = 8, num_rows: int = 64, prefix_caching: int = 1) -> BareRank:
    engine = make_engine(num_blocks=num_blocks, prefix_caching=prefix_caching)
    return BareRank(engine, num_rows=num_rows)


def hits(t: BareRank, s: int) -> tuple[int, int]:
    """Return (resident leading blocks, of these in use) of a sequence's prompt."""
    complete = int(t.seqs[s].prompt_tokens) // BLOCK_SIZE
    return count_hits(t, t.engine, t.rank, t.seqs[s], complete)


def take(t: BareRank, s: int, tokens: int, hit_blocks: int = 0) -> bool:
    """Allocate blocks up to a number of tokens."""
    return allocate(t, t.engine, t.rank, t.seqs[s], tokens, hit_blocks)


def finish(t: BareRank, s: int, tokens: int) -> None:
    """Compute a number of tokens: complete blocks become resident."""
    make_resident(t, t.engine, t.rank, t.seqs[s], tokens)


def release(t: BareRank, s: int, *, returns: bool = False) -> None:
    release_blocks(t, t.rank, t.seqs[s], returns)


def rows_in_use(t: BareRank) -> int:
    return len(t.blocks) - int(t.arena.block_free_count)


def run_prompt(t: BareRank, *identities: int) -> int:
    """Compute a prompt of whole blocks with these identities from nothing; return its sequence."""
    tokens = BLOCK_SIZE * len(identities)
    s = t.new_seq(identities, tokens)
    assert take(t, s, tokens)
    finish(t, s, tokens)
    return s


def resident(t: BareRank, *identities: int) -> list[bool]:
    return [find_resident(t.blocks, 0, identity) != NONE for identity in identities]


def evict(t: BareRank, count: int) -> None:
    """Take so many blocks for a prompt that shares nothing, when no block is free."""
    s = t.new_seq([], BLOCK_SIZE * count)
    assert take(t, s, BLOCK_SIZE * count)


def test_complete_blocks_are_found_by_later_requests_and_partial_ones_are_not() -> None:
    t = pool()
    s = t.new_seq([1, 2], 10)
    take(t, s, 10)
    finish(t, s, 10)
    assert (t.rank.resident_blocks, t.rank.private_blocks) == (2, 1)
    later = t.new_seq([1, 2, 3], 12)
    assert hits(t, later) == (2, 2)


def test_hits_stop_at_the_first_block_that_is_missing() -> None:
    t = pool()
    run_prompt(t, 1, 2)
    assert hits(t, t.new_seq([1, 9, 2], 12)) == (1, 1)


def test_released_blocks_stay_findable_but_are_not_in_use() -> None:
    t = pool()
    release(t, run_prompt(t, 1, 2))
    assert hits(t, t.new_seq([1, 2], 8)) == (2, 0)
    assert active_blocks(t.rank) == 0
    assert t.rank.evictable_blocks == 2


def test_partial_block_is_free_again_after_release() -> None:
    t = pool(num_blocks=3)
    s = t.new_seq([1, 2], 10)
    take(t, s, 10)
    finish(t, s, 10)
    release(t, s)
    assert (t.rank.private_blocks, t.rank.resident_blocks, t.rank.evictable_blocks) == (0, 2, 2)


def test_free_blocks_are_used_before_anything_is_evicted() -> None:
    t = pool(num_blocks=4)
    release(t, run_prompt(t, 1, 2))
    evict(t, 2)
    assert resident(t, 1, 2) == [True, True]


def test_deepest_block_is_evicted_first_then_the_next_released_prompt() -> None:
    t = pool(num_blocks=4)
    first, second = run_prompt(t, 1, 2), run_prompt(t, 3, 4)
    release(t, second)
    release(t, first)
    evict(t, 1)
    assert resident(t, 1, 2, 3, 4) == [True, True, True, False]
    evict(t, 1)
    assert resident(t, 1, 2, 3, 4) == [True, True, False, False]
    evict(t, 1)
    assert resident(t, 1, 2, 3, 4) == [True, False, False, False]


def test_block_that_is_hit_leaves_the_eviction_order_and_returns_at_its_end() -> None:
    t = pool(num_blocks=4)
    first, second = run_prompt(t, 1, 2), run_prompt(t, 3, 4)
    release(t, first)
    release(t, second)
    again = t.new_seq([1, 2], 8)
    assert take(t, again, 8, hit_blocks=2)
    assert t.rank.evictable_blocks == 2
    release(t, again)
    evict(t, 2)
    assert resident(t, 1, 2, 3, 4) == [True, True, False, False]


def test_block_with_two_users_stays_in_use_until_both_have_left() -> None:
    t = pool()
    first = run_prompt(t, 1)
    second = t.new_seq([1], 4)
    take(t, second, 4, hit_blocks=1)
    release(t, first)
    assert active_blocks(t.rank) == 1
    release(t, second)
    assert (active_blocks(t.rank), t.rank.evictable_blocks) == (0, 1)


def test_allocation_that_does_not_fit_changes_nothing() -> None:
    t = pool(num_blocks=4)
    release(t, run_prompt(t, 1, 2))
    run_prompt(t, 3)
    before = (t.rank.evictable_blocks, t.rank.private_blocks, t.rank.resident_blocks)
    s = t.new_seq([], 16)
    assert not take(t, s, 16)
    assert (t.rank.evictable_blocks, t.rank.private_blocks, t.rank.resident_blocks) == before
    assert t.seqs[s].covered_tokens == 0
    assert resident(t, 1, 2, 3) == [True, True, True]


def test_evictable_blocks_that_are_hit_make_no_room() -> None:
    t = pool(num_blocks=2)
    release(t, run_prompt(t, 1, 2))
    s = t.new_seq([1, 2, 3], 12)
    assert not take(t, s, 12, hit_blocks=2)
    assert hits(t, s) == (2, 0)


def test_new_block_is_taken_only_when_a_block_boundary_is_crossed() -> None:
    t = pool()
    s = t.new_seq([], 16)
    for tokens, blocks in ((1, 1), (4, 1), (5, 2), (8, 2), (9, 3)):
        assert take(t, s, tokens)
        assert t.rank.private_blocks == blocks


def test_blocks_that_nobody_else_has_take_no_rows_while_their_request_lives() -> None:
    t = pool()
    s = t.new_seq([1], 16)
    take(t, s, 16)
    finish(t, s, 16)
    assert (t.rank.resident_blocks, rows_in_use(t)) == (4, 1)
    assert (t.seqs[s].resident_blocks, t.seqs[s].listed_blocks) == (4, 1)


def test_what_an_ended_request_leaves_behind_is_one_row_that_is_evicted_block_by_block() -> None:
    t = pool(num_blocks=6)
    s = t.new_seq([1], 16)
    take(t, s, 16)
    finish(t, s, 16)
    release(t, s)
    release(t, run_prompt(t, 2))
    assert eviction_order(t) == [(NONE, 3), (1, 1), (2, 1)]
    evict(t, 3)  # one block is free
    assert eviction_order(t) == [(NONE, 1), (1, 1), (2, 1)]
    assert (t.rank.resident_blocks, t.rank.evictable_blocks, rows_in_use(t)) == (3, 3, 3)
    evict(t, 2)
    assert eviction_order(t) == [(2, 1)]
    assert (t.rank.resident_blocks, t.rank.evictable_blocks, rows_in_use(t)) == (1, 1, 1)


def preempted(t: BareRank) -> int:
    """Return a request with a shared, an own and a generated block that was preempted."""
    s = t.new_seq([1], 8, output_tokens=8)
    t.seqs[s].was_admitted = True
    t.seqs[s].generated_tokens = 5
    assert take(t, s, 12)
    finish(t, s, 12)
    release(t, s, returns=True)
    return s


def own_hits(t: BareRank, s: int) -> tuple[int, int]:
    return count_hits(t, t.engine, t.rank, t.seqs[s], 3)


def test_generated_blocks_are_found_again_by_their_own_preempted_request_only() -> None:
    t = pool()
    s = preempted(t)
    assert own_hits(t, s) == (3, 0)
    assert rows_in_use(t) == 3
    assert hits(t, t.new_seq([1, 2], 8)) == (1, 0)
    assert take(t, s, 13, hit_blocks=3)
    assert t.seqs[s].listed_blocks == 3
    assert (t.rank.evictable_blocks, t.rank.private_blocks) == (0, 1)
    finish(t, s, 13)
    release(t, s)
    assert len(eviction_order(t)) == 3


def test_deepest_block_of_a_preempted_request_is_evicted_first() -> None:
    t = pool(num_blocks=3)
    s = preempted(t)
    evict(t, 1)
    assert own_hits(t, s) == (2, 0)
    evict(t, 1)
    assert own_hits(t, s) == (1, 0)


def test_blocks_completed_after_the_return_of_a_request_are_counted_only() -> None:
    t = pool()
    s = preempted(t)
    assert take(t, s, 16, hit_blocks=3)
    finish(t, s, 16)
    assert (t.seqs[s].resident_blocks, t.seqs[s].listed_blocks, rows_in_use(t)) == (4, 3, 3)
    release(t, s)
    assert eviction_order(t)[0] == (NONE, 1)


def test_copies_of_one_block_are_found_oldest_first() -> None:
    t = pool()
    older, newer = run_prompt(t, 7), run_prompt(t, 7)
    assert t.rank.resident_blocks == 2
    assert find_resident(t.blocks, 0, 7) == t.entries[t.seqs[older].entry_start]
    assert find_resident(t.blocks, 0, 7) != t.entries[t.seqs[newer].entry_start]


def test_younger_copy_is_found_once_the_older_is_evicted() -> None:
    t = pool(num_blocks=2)
    older, newer = run_prompt(t, 7), run_prompt(t, 7)
    release(t, older)
    evict(t, 1)
    assert find_resident(t.blocks, 0, 7) == t.entries[t.seqs[newer].entry_start]


def test_ranks_do_not_see_each_others_blocks() -> None:
    t = pool()
    run_prompt(t, 7)
    assert find_resident(t.blocks, 1, 7) == NONE


def test_without_prefix_caching_blocks_stay_private() -> None:
    t = pool(prefix_caching=0)
    s = run_prompt(t, 1, 2)
    assert (t.rank.resident_blocks, t.rank.private_blocks) == (0, 2)
    assert hits(t, t.new_seq([1, 2], 8)) == (0, 0)
    release(t, s)
    assert (active_blocks(t.rank), t.rank.evictable_blocks) == (0, 0)


@pytest.mark.parametrize("factor", [2, 8])
def test_larger_block_table_finds_the_same_copies_in_the_same_order(factor: int) -> None:
    t = pool(num_blocks=16, num_rows=16)
    # With 16 buckets several identities share one; 5 exists three times.
    for identity in (5, 21, 37, 5, 53, 1, 2, 5, 3, 4):
        run_prompt(t, identity)
    before = {identity: find_resident(t.blocks, 0, identity) for identity in (1, 2, 3, 4, 5, 21)}
    old = t.blocks
    t.blocks = grow_table(old, factor * 16)
    link_blocks(old, t.blocks, t.arena)
    assert {identity: find_resident(t.blocks, 0, identity) for identity in before} == before
    assert t.arena.block_free_count == factor * 16 - 10
    for _ in range(6):
        run_prompt(t, 100)
    fives = sorted(np.flatnonzero(t.blocks["content"] == 5).tolist())
    assert before[5] == fives[0]


# Against a plain model: lists instead of links


@dataclass
class ModelPool:
    """The rules of §5 with one object per block copy."""

    capacity: int
    copies: list[list[int]] = field(default_factory=list)
    lru: list[list[int]] = field(default_factory=list)
    private: int = 0

    def find(self, identity: int) -> list[int] | None:
        """Return the oldest copy, [identity, users]."""
        return next((copy for copy in self.copies if copy[0] == identity), None)

    def hits(self, identities: list[int]) -> int:
        count = 0
        while count < len(identities) and self.find(identities[count]) is not None:
            count += 1
        return count

    def start(self, identities: list[int], hit_blocks: int) -> list[list[int]] | None:
        """Take blocks for a prompt and compute it; return its copies, None if it does not fit."""
        found = [copy for copy in map(self.find, identities[:hit_blocks]) if copy is not None]
        fresh = len(identities) - hit_blocks
        evictions = max(0, fresh - (self.capacity - len(self.copies) - self.private))
        spared = sum(copy[1] == 0 for copy in found)
        if evictions > len(self.lru) - spared:
            return None
        for copy in found:
            if copy[1] == 0:
                self.lru = [other for other in self.lru if other is not copy]
            copy[1] += 1
        for victim in self.lru[:evictions]:
            self.copies = [other for other in self.copies if other is not victim]
        del self.lru[:evictions]
        new = [[identity, 1] for identity in identities[hit_blocks:]]
        self.copies += new
        return found + new

    def stop(self, copies: list[list[int]]) -> None:
        for copy in reversed(copies):
            copy[1] -= 1
            if copy[1] == 0:
                self.lru.append(copy)


def eviction_order(t: BareRank) -> list[tuple[int, int]]:
    """Return (identity, number of blocks) of all rows without users, evicted first."""
    order, b = [], int(t.rank.lru_first)
    while b != NONE:
        order.append((int(t.blocks[b].content), int(t.blocks[b].num_blocks)))
        b = int(t.blocks[b].lru_next)
    return order


PROMPTS = st.lists(st.integers(0, 5), max_size=4)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "duplicate", "end", "preempt", "return", "cancel"]),
        PROMPTS,
        st.integers(0, 4),
    ),
    max_size=60,
)
Step = tuple[str, list[int], int]


@given(STEPS, st.integers(2, 14))
@example([("start", [1, 2], 0), ("end", [], 0), ("start", [3], 0), ("start", [1, 2], 0)], 3)
@example([("start", [], 4), ("preempt", [], 0), ("start", [], 2), ("return", [], 0)], 5)
@example([("start", [], 4), ("end", [], 0), ("start", [1], 2), ("start", [], 2)], 6)
def test_pool_agrees_with_a_model_that_has_one_object_per_block(
    steps: list[Step], num_blocks: int
) -> None:
    """A step starts a prompt, as a duplicate without the cache, or acts on the oldest request.

    The prompt's first blocks are shared: each is identified by the whole prompt up to it, as in a
    real workload. The others are its own. Requests end, are preempted, return or are cancelled.
    """
    t, model = pool(num_blocks=num_blocks, num_rows=256), ModelPool(num_blocks)
    names: dict[tuple[int, ...], int] = {}
    identities: dict[int, list[int]] = {}
    running: list[tuple[int, list[list[int]]]] = []
    waiting: list[int] = []

    def start(s: int, *, uses_cache: bool) -> bool:
        tokens = BLOCK_SIZE * len(identities[s])
        hit_blocks, hit_in_use = hits(t, s)
        found = model.hits(identities[s])
        assert hit_blocks == found
        assert hit_in_use == sum(
            copy[1] > 0 for copy in map(model.find, identities[s][:found]) if copy is not None
        )
        hit_blocks = hit_blocks if uses_cache else 0
        copies = model.start(identities[s], hit_blocks)
        assert take(t, s, tokens, hit_blocks) == (copies is not None)
        if copies is None:
            return False
        finish(t, s, tokens)
        t.seqs[s].was_admitted = True
        running.append((s, copies))
        return True

    def forget(s: int) -> None:
        delete_seq(t.rank, t.seqs, t.arena, t.entries, t.entry_heads, s)
        del identities[s]

    for what, prompt, num_own in steps:
        if what in ("start", "duplicate") and len(prompt) + num_own > 0:
            prefixes = [tuple(prompt[: k + 1]) for k in range(len(prompt))]
            shared = [names.setdefault(prefix, len(names)) for prefix in prefixes]
            s = t.new_seq(shared, BLOCK_SIZE * (len(shared) + num_own))
            own = int(t.seqs[s].private_base)
            identities[s] = [*shared, *range(own, own + num_own)]
            if not start(s, uses_cache=what == "start"):
                forget(s)
        elif what in ("end", "preempt") and running:
            s, copies = running.pop(0)
            release(t, s, returns=what == "preempt")
            model.stop(copies)
            if what == "preempt":
                waiting.append(s)
        elif what == "return" and waiting and start(waiting[0], uses_cache=True):
            waiting.pop(0)
        elif what == "cancel" and waiting:
            s = waiting.pop(0)
            release(t, s)
        if what in ("end", "cancel"):
            known = {s for s, _ in running} | set(waiting)
            for s in identities.keys() - known:
                forget(s)
        check_pool(t, model, set(names.values()))


def check_pool(t: BareRank, model: ModelPool, shared: set[int]) -> None:
    """Compare eviction order and counts; of blocks that are not shared only how many there are."""
    rows = eviction_order(t)
    order = [content for content, count in rows for _ in range(count)]
    expected = [copy[0] for copy in model.lru]
    assert [content if content in shared else NONE for content in order] == [
        content if content in shared else NONE for content in expected
    ]
    assert t.rank.resident_blocks == len(model.copies)
    assert t.rank.evictable_blocks == len(model.lru)
    assert active_blocks(t.rank) == len(model.copies) - len(model.lru)
    assert rows_in_use(t) <= len(model.copies)
    in_use = {id(copy) for copy in model.copies if copy[0] in shared and copy[1] > 0}
    assert rows_in_use(t) >= len(rows) + len(in_use)

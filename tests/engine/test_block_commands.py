"""Commands to a rank with a block pool (engine-vllm-trtllm.md §3, §9, hooks of the decode rank)."""

import pytest
from support.block_rank import BlockRank

from aisim_gym.engine.kv_pool import active_blocks
from aisim_gym.engine.tables import NONE, PENDING, RUNNING, WAITING


@pytest.mark.parametrize(("prompt_tokens", "limit"), [(33, 100), (20, 20)])
def test_destination_that_can_never_fit_is_refused(prompt_tokens: int, limit: int) -> None:
    t = BlockRank(max_model_len=limit)
    assert t.accept(prompt_tokens) == NONE
    assert (t.queued(PENDING), t.rank.queued_decode) == ([], 0)


def test_one_retry_reserves_for_the_first_destination_only() -> None:
    t = BlockRank()
    first, second = t.accept(8), t.accept(4)
    assert t.reserve() == first
    assert t.queued(PENDING) == [second]
    assert (t.rank.reserved_blocks, active_blocks(t.rank)) == (2, 2)
    assert t.reserve() == second
    assert t.reserve() == NONE


def test_first_destination_that_does_not_fit_holds_up_those_behind_it() -> None:
    t = BlockRank()
    assert t.reserve() == NONE
    holder, large = t.accept(20), t.accept(16)
    t.accept(4)
    assert t.reserve() == holder
    assert [t.reserve(), t.reserve()] == [NONE, NONE]
    assert t.queued(PENDING)[0] == large


def test_destination_is_tried_again_only_after_capacity_has_changed() -> None:
    t = BlockRank()
    holder, large = t.accept(20), t.accept(16)
    assert t.reserve() == holder
    assert t.reserve() == NONE
    t.rank.reserved_blocks -= 5  # room, but nobody said so
    assert t.reserve() == NONE
    t.rank.capacity_generation += 1
    assert t.reserve() == large


def test_full_running_list_counts_as_a_try() -> None:
    t = BlockRank(max_seqs=1)
    t.queues[RUNNING].count = 1
    t.accept(4)
    assert t.reserve() == NONE
    t.queues[RUNNING].count = 0
    assert t.reserve() == NONE
    t.rank.capacity_generation += 1
    assert t.reserve() != NONE


def test_activated_destinations_queue_in_order_of_arrival() -> None:
    t = BlockRank()
    first, second, third = t.accept(4), t.accept(4), t.accept(4)
    for s in (first, second, third):
        assert t.reserve() == s
    for s in (third, first, second):
        t.activate(s)
    assert t.queued(WAITING) == [first, second, third]
    assert [int(t.seqs[s].computed_tokens) for s in (first, second, third)] == [4, 4, 4]


def test_complete_blocks_of_an_activated_prompt_can_be_hit_by_the_next() -> None:
    t = BlockRank()
    prompts = [t.accept(10, identities=[1, 2]), t.accept(10, identities=[1, 2])]
    assert t.reserve() == prompts[0]
    t.activate(prompts[0])
    assert (t.rank.resident_blocks, t.rank.private_blocks, t.rank.reserved_blocks) == (2, 1, 0)
    assert t.reserve() == prompts[1]
    assert t.seqs[prompts[1]].reserved_blocks == 1
    assert active_blocks(t.rank) == 4


def test_destinations_count_as_queued_decodes_until_they_run() -> None:
    t = BlockRank()
    s = t.accept(8)
    loads = [(int(t.rank.queued_decode), int(t.rank.queued_decode_tokens))]
    t.reserve()
    loads.append((int(t.rank.queued_decode), int(t.rank.queued_decode_tokens)))
    t.activate(s)
    loads.append((int(t.rank.queued_decode), int(t.rank.queued_decode_tokens)))
    assert loads == [(1, 8)] * 3


@pytest.mark.parametrize("steps", [0, 1, 2], ids=["pending", "reserved", "activated"])
def test_cancelled_destination_leaves_nothing_behind(steps: int) -> None:
    t = BlockRank()
    s = t.accept(10)
    if steps >= 1:
        t.reserve()
    if steps >= 2:
        t.activate(s)
    generation = t.rank.capacity_generation
    t.cancel(s)
    assert [t.queued(kind) for kind in (WAITING, RUNNING, PENDING)] == [[], [], []]
    assert (active_blocks(t.rank), t.rank.queued_decode, t.rank.reserved_seqs) == (0, 0, 0)
    assert t.rank.capacity_generation == generation + 1


def test_cancelling_a_request_that_never_ran_frees_no_capacity() -> None:
    t = BlockRank()
    t.cancel(t.submit(8, 0))
    assert (t.queued(WAITING), t.rank.queued_new, t.rank.capacity_generation) == ([], 0, 0)


# Rows of the block table


def test_rows_are_announced_for_blocks_that_replace_what_an_ended_request_left_behind() -> None:
    """Evicting blocks of its one row frees no row; ``run_pass`` checks the announcement."""
    t = BlockRank()
    t.submit(31, 2)
    t.run_to_end()
    assert len(t.blocks) - t.arena.block_free_count == 1
    t.submit(24, 2, [1, 2, 3, 4, 5, 6])
    t.run_pass()
    assert len(t.blocks) - t.arena.block_free_count == 7


@pytest.mark.parametrize("prefix_caching", [0, 1])
def test_rows_are_announced_for_whoever_is_preempted_in_the_pass_that_computes_it(
    prefix_caching: int,
) -> None:
    t = BlockRank(num_blocks=6, prefix_caching=prefix_caching, max_batched_tokens=30)
    t.submit(11, 20)
    t.submit(11, 20)
    for _ in range(20):
        t.run_pass()
    assert t.rank.preemptions > 0

"""Commands of the handoff to a rank (engine-vllm-trtllm.md §9, hooks of the decode rank)."""

import pytest
from support.rank_tables import RankTables, make_engine

from aisim_gym.engine.commands import (
    accept_destination,
    activate_destination,
    cancel_seq,
    retry_destination,
    submit,
)
from aisim_gym.engine.kv_pool import active_blocks
from aisim_gym.engine.tables import NONE, PENDING, RUNNING, WAITING


class DecodeRank(RankTables):
    """A rank that takes destinations."""

    def accept(self, prompt_tokens: int) -> int:
        s = self.new_seq([], prompt_tokens, output_tokens=4)
        assert accept_destination(self.engine, self.rank, self.queues, self.seqs, s)
        return s

    def retry(self) -> int:
        return retry_destination(
            self.engine,
            self.rank,
            self.queues,
            self.seqs,
            self.blocks,
            self.arena,
            self.entries,
            self.contents,
        )

    def activate(self, s: int) -> None:
        activate_destination(
            self.engine,
            self.rank,
            self.queues,
            self.seqs,
            s,
            self.blocks,
            self.arena,
            self.entries,
            self.contents,
        )

    def cancel(self, s: int) -> None:
        cancel_seq(self.rank, self.queues, self.seqs, s, self.blocks, self.entries)

    def queued(self, kind: int) -> list[int]:
        found, at = [], int(self.queues[kind].first)
        while at != NONE:
            found.append(at)
            at = int(self.seqs[at].next)
        return found


def decode_rank(**engine: int) -> DecodeRank:
    """A rank with 8 blocks of 4 tokens."""
    return DecodeRank(make_engine(**engine))


@pytest.mark.parametrize(("prompt_tokens", "limit"), [(33, 100), (20, 20)])
def test_destination_that_can_never_fit_is_refused(prompt_tokens: int, limit: int) -> None:
    t = decode_rank(max_model_len=limit)
    s = t.new_seq([], prompt_tokens)
    assert not accept_destination(t.engine, t.rank, t.queues, t.seqs, s)
    assert (t.queued(PENDING), t.rank.queued_decode) == ([], 0)


def test_one_retry_reserves_for_the_first_destination_only() -> None:
    t = decode_rank()
    first, second = t.accept(8), t.accept(4)
    assert t.retry() == first
    assert t.queued(PENDING) == [second]
    assert (t.rank.reserved_blocks, active_blocks(t.rank)) == (2, 2)
    assert t.retry() == second
    assert t.retry() == NONE


def test_first_destination_that_does_not_fit_holds_up_those_behind_it() -> None:
    t = decode_rank()
    assert t.retry() == NONE
    holder, large = t.accept(20), t.accept(16)
    t.accept(4)
    assert t.retry() == holder
    assert [t.retry(), t.retry()] == [NONE, NONE]
    assert t.queued(PENDING)[0] == large


def test_destination_is_tried_again_only_after_capacity_has_changed() -> None:
    t = decode_rank()
    holder, large = t.accept(20), t.accept(16)
    assert t.retry() == holder
    assert t.retry() == NONE
    t.rank.reserved_blocks -= 5  # room, but nobody said so
    assert t.retry() == NONE
    t.rank.capacity_generation += 1
    assert t.retry() == large


def test_full_running_list_counts_as_a_try() -> None:
    t = decode_rank(max_seqs=1)
    t.queues[RUNNING].count = 1
    t.accept(4)
    assert t.retry() == NONE
    t.queues[RUNNING].count = 0
    assert t.retry() == NONE
    t.rank.capacity_generation += 1
    assert t.retry() != NONE


def test_activated_destinations_queue_in_order_of_arrival() -> None:
    t = decode_rank()
    first, second, third = t.accept(4), t.accept(4), t.accept(4)
    for s in (first, second, third):
        assert t.retry() == s
    for s in (third, first, second):
        t.activate(s)
    assert t.queued(WAITING) == [first, second, third]
    assert [int(t.seqs[s].computed_tokens) for s in (first, second, third)] == [4, 4, 4]


def test_complete_blocks_of_an_activated_prompt_can_be_hit_by_the_next() -> None:
    t = decode_rank()
    prompts = [t.new_seq([1, 2], 10), t.new_seq([1, 2], 10)]
    for s in prompts:
        accept_destination(t.engine, t.rank, t.queues, t.seqs, s)
    assert t.retry() == prompts[0]
    t.activate(prompts[0])
    assert (t.rank.resident_blocks, t.rank.private_blocks, t.rank.reserved_blocks) == (2, 1, 0)
    assert t.retry() == prompts[1]
    assert t.seqs[prompts[1]].reserved_blocks == 1
    assert active_blocks(t.rank) == 4


def test_destinations_count_as_queued_decodes_until_they_run() -> None:
    t = decode_rank()
    s = t.accept(8)
    loads = [(int(t.rank.queued_decode), int(t.rank.queued_decode_tokens))]
    t.retry()
    loads.append((int(t.rank.queued_decode), int(t.rank.queued_decode_tokens)))
    t.activate(s)
    loads.append((int(t.rank.queued_decode), int(t.rank.queued_decode_tokens)))
    assert loads == [(1, 8)] * 3


@pytest.mark.parametrize("steps", [0, 1, 2], ids=["pending", "reserved", "activated"])
def test_cancelled_destination_leaves_nothing_behind(steps: int) -> None:
    t = decode_rank()
    s = t.accept(10)
    if steps >= 1:
        t.retry()
    if steps >= 2:
        t.activate(s)
    generation = t.rank.capacity_generation
    t.cancel(s)
    assert [t.queued(kind) for kind in (WAITING, RUNNING, PENDING)] == [[], [], []]
    assert (active_blocks(t.rank), t.rank.queued_decode, t.rank.reserved_seqs) == (0, 0, 0)
    assert t.rank.capacity_generation == generation + 1


def test_cancelling_a_request_that_never_ran_frees_no_capacity() -> None:
    t = decode_rank()
    s = t.new_seq([], 8)
    submit(t.rank, t.queues, t.seqs, s)
    t.cancel(s)
    assert (t.queued(WAITING), t.rank.queued_new, t.rank.capacity_generation) == ([], 0, 0)

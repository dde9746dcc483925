"""Rules of one pass that the worked examples do not reach (engine-vllm-trtllm.md §4, §6, §11)."""

from typing import Any

from support.block_rank import BlockRank

from aisim_gym.engine.tables import (
    PENDING,
    PREEMPT_FIRST,
    PREEMPT_LAST,
    ROLE_DECODE,
    RUNNING,
    WAITING,
)


def three_prompts(**engine: Any) -> tuple[BlockRank, list[int]]:
    """Six blocks hold three prompts; the second one needs a third block for its next token."""
    t = BlockRank(num_blocks=6, **engine)
    seqs = [t.submit(5, 3), t.submit(8, 3), t.submit(5, 3)]
    t.run_pass()
    assert t.emitted() == seqs
    return t, seqs


def test_fifo_victim_in_front_makes_the_pass_skip_the_next_request() -> None:
    t, (first, second, third) = three_prompts(preemption=PREEMPT_FIRST)
    work = t.run_pass()
    assert t.emitted() == [second]
    assert (work.num_decode, work.decode_tokens, work.end_ms) == (1, 9, 4.0)
    assert (work.queued_decode, work.queued_decode_tokens) == (1, 6)
    assert (t.queued(WAITING), t.queued(RUNNING)) == ([first], [second, third])


def test_skipped_request_goes_on_in_the_next_pass() -> None:
    t, (_, second, third) = three_prompts(preemption=PREEMPT_FIRST)
    t.run_pass()
    work = t.run_pass()
    assert t.emitted() == [second, third]
    assert (work.num_decode, work.decode_tokens) == (2, 16)


def test_work_of_a_victim_leaves_the_sums_of_the_pass() -> None:
    t, (first, second, third) = three_prompts(preemption=PREEMPT_LAST)
    work = t.run_pass()
    assert t.emitted() == [first, second]
    assert (work.num_decode, work.decode_tokens, work.decode_squares) == (2, 15, 36 + 81)
    assert t.queued(WAITING) == [third]
    assert t.rank.preemptions == 1


def test_victim_gives_its_tokens_back_to_the_budget() -> None:
    t, _ = three_prompts(preemption=PREEMPT_FIRST, max_batched_tokens=18)
    assert t.run_pass().budget == 17


def test_pass_that_preempted_admits_nobody_although_there_is_room() -> None:
    t, seqs = three_prompts(preemption=PREEMPT_LAST)
    small = t.submit(1, 1)
    t.run_pass()
    assert t.queued(WAITING) == [seqs[2], small]


def test_victim_heads_the_queue_and_blocks_those_behind_it() -> None:
    t, (_, _, third) = three_prompts(preemption=PREEMPT_LAST)
    t.run_pass()
    small = t.submit(1, 1)
    t.run_pass()
    assert t.queued(WAITING) == [third, small]


# The prefill cadence of data-parallel groups


def test_rank_is_capacity_bound_while_requests_are_left_waiting() -> None:
    t = BlockRank(max_seqs=1)
    t.submit(4, 2)
    t.submit(4, 2)
    t.run_pass()
    assert t.rank.is_capacity_bound
    t.run_pass()
    assert t.rank.is_capacity_bound
    t.run_pass()
    assert not t.rank.is_capacity_bound


def test_pass_that_preempted_says_nothing_about_capacity() -> None:
    t, _ = three_prompts(preemption=PREEMPT_LAST)
    assert not t.rank.is_capacity_bound
    t.run_pass()
    assert t.queued(WAITING) != []
    assert not t.rank.is_capacity_bound


def test_deferred_pass_says_nothing_about_capacity() -> None:
    t = BlockRank(dp_size=2, prefill_interval=2)
    t.submit(4, 4)
    t.run_pass(wave=0)
    late = t.submit(4, 4)
    t.run_pass(wave=1)
    assert t.queued(WAITING) == [late]
    assert not t.rank.is_capacity_bound
    t.run_pass(wave=2)
    assert t.queued(WAITING) == []


def test_capacity_bound_rank_does_not_defer() -> None:
    t = BlockRank(dp_size=2, prefill_interval=2)
    t.submit(4, 4)
    t.run_pass(wave=0)
    t.submit(4, 4)
    t.rank.is_capacity_bound = True
    t.run_pass(wave=1)
    assert t.queued(WAITING) == []


def test_deferred_pass_leaves_out_prompts_that_are_partly_computed() -> None:
    t = BlockRank(dp_size=2, prefill_interval=2, max_batched_tokens=8)
    short, long = t.submit(4, 4), t.submit(12, 4)
    t.run_pass(wave=0)
    assert t.seqs[long].computed_tokens == 4
    t.rank.is_capacity_bound = False
    t.run_pass(wave=1)
    assert (t.emitted(), int(t.seqs[long].computed_tokens)) == ([short], 4)


def test_deferred_pass_admits_a_prompt_with_one_new_token() -> None:
    t = BlockRank(dp_size=2, prefill_interval=2, num_blocks=16)
    running = t.submit(4, 9)
    t.run_pass(wave=0)
    known = t.submit(9, 2, [1, 2])
    t.run_pass(wave=2)
    hit = t.submit(9, 2, [1, 2])
    t.run_pass(wave=3)
    assert t.emitted() == [running, known, hit]


# The edge of the token budget


def test_prompt_that_can_never_fit_is_rejected_although_the_budget_is_spent() -> None:
    t = BlockRank(max_batched_tokens=4)
    t.submit(4, 2)
    t.submit(33, 2)
    fits = t.submit(1, 1)
    t.run_pass()
    assert t.queued(WAITING) == [fits]


def test_running_request_beyond_the_budget_does_not_run() -> None:
    t = BlockRank(max_batched_tokens=1)
    first, second = t.submit(1, 5), t.submit(1, 5)
    t.run_pass()
    assert t.emitted() == [first]
    t.engine.max_batched_tokens = 2
    t.run_pass()
    assert t.emitted() == [first, second]
    t.engine.max_batched_tokens = 1
    work = t.run_pass()
    assert (t.emitted(), work.num_decode) == ([first], 1)


def test_fully_cached_request_without_output_needs_no_budget() -> None:
    t = BlockRank(max_batched_tokens=4, num_blocks=16)
    t.submit(4, 1, [1])
    t.run_pass()
    t.submit(4, 1)
    silent = t.submit(4, 0, [1])
    another = t.submit(4, 0, [1])
    t.run_pass()
    assert t.seqs[silent].reused_tokens == 4
    assert t.queued(WAITING) == [another]  # one such admission ends the pass


# The gate of pending destinations


def test_only_activated_requests_are_admitted_while_a_destination_is_pending() -> None:
    t = BlockRank(role=ROLE_DECODE, num_blocks=4)
    destinations = [t.accept(8), t.accept(12)]
    plain = t.submit(4, 2)
    # A third one as if it had been reserved and transferred, without blocks.
    ready = t.new_request(4, 4)
    t.seqs[ready].reserved_blocks = 1
    t.rank.reserved_blocks += 1
    t.rank.reserved_seqs += 1
    t.seqs[ready].is_destination = True
    t.rank.queued_decode += 1
    t.activate(ready)
    t.run_pass()
    assert t.queued(PENDING) == destinations
    assert t.queued(WAITING) == [plain]
    assert t.emitted() == [ready]

"""Rules of one pass that the worked examples do not reach (engine-vllm-trtllm.md §4, §6, §11)."""

from typing import Any

from support.rank_tables import RankTables, make_engine

from aisim_gym.engine.commands import accept_destination, activate_destination, submit
from aisim_gym.engine.tables import (
    NONE,
    PENDING,
    ROLE_DECODE,
    RUNNING,
    TIMING_FIXED,
    WAITING,
    PassRow,
)
from aisim_gym.engine.vllm import run_pass
from aisim_gym.tables import make_table


class Scheduler(RankTables):
    """A rank that runs passes: 10 ms to prefill, 4 ms to decode."""

    def __init__(self, **engine: Any) -> None:
        fixed = {"timing": TIMING_FIXED, "fixed_prefill_ms": 10.0, "fixed_decode_ms": 4.0}
        super().__init__(make_engine(**{**fixed, **engine}))
        self.work = make_table(PassRow, 1)[0]

    def submit(self, prompt_tokens: int, output_tokens: int) -> int:
        s = self.new_seq([], prompt_tokens, output_tokens)
        submit(self.rank, self.queues, self.seqs, s)
        return s

    def run_pass(self, wave: int = 0) -> PassRow:
        """Run a pass at time 0 and return its sums."""
        run_pass(
            self.engine,
            self.rank,
            self.work,
            self.queues,
            self.seqs,
            self.blocks,
            self.arena,
            self.entries,
            self.contents,
            0.0,
            wave,
        )
        return self.work

    def queued(self, kind: int) -> list[int]:
        found, at = [], int(self.queues[kind].first)
        while at != NONE:
            found.append(at)
            at = int(self.seqs[at].next)
        return found

    def emitted(self) -> list[int]:
        """Return the sequences that get a token at the end of the pass, in order."""
        found, at = [], int(self.work.signal_first)
        while at != NONE:
            if self.seqs[at].signal_token == 1:
                found.append(at)
            at = int(self.seqs[at].signal_next)
        return found


def three_prompts(**engine: Any) -> tuple[Scheduler, list[int]]:
    """Six blocks hold three prompts; the second one needs a third block for its next token."""
    t = Scheduler(num_blocks=6, **engine)
    seqs = [t.submit(5, 3), t.submit(8, 3), t.submit(5, 3)]
    t.run_pass()
    assert t.emitted() == seqs
    return t, seqs


def test_fifo_victim_in_front_makes_the_pass_skip_the_next_request() -> None:
    t, (first, second, third) = three_prompts(preempts_first=1)
    work = t.run_pass()
    assert t.emitted() == [second]
    assert (work.num_decode, work.decode_tokens, work.end_ms) == (1, 9, 4.0)
    assert (work.queued_decode, work.queued_decode_tokens) == (1, 6)
    assert (t.queued(WAITING), t.queued(RUNNING)) == ([first], [second, third])


def test_skipped_request_goes_on_in_the_next_pass() -> None:
    t, (_, second, third) = three_prompts(preempts_first=1)
    t.run_pass()
    work = t.run_pass()
    assert t.emitted() == [second, third]
    assert (work.num_decode, work.decode_tokens) == (2, 16)


def test_work_of_a_victim_leaves_the_sums_of_the_pass() -> None:
    t, (first, second, third) = three_prompts(preempts_first=0)
    work = t.run_pass()
    assert t.emitted() == [first, second]
    assert (work.num_decode, work.decode_tokens, work.decode_squares) == (2, 15, 36 + 81)
    assert t.queued(WAITING) == [third]
    assert t.rank.preemptions == 1


def test_victim_gives_its_tokens_back_to_the_budget() -> None:
    t, _ = three_prompts(preempts_first=1, max_batched_tokens=18)
    assert t.run_pass().budget == 17


def test_pass_that_preempted_admits_nobody_although_there_is_room() -> None:
    t, seqs = three_prompts(preempts_first=0)
    small = t.submit(1, 1)
    t.run_pass()
    assert t.queued(WAITING) == [seqs[2], small]


def test_victim_heads_the_queue_and_blocks_those_behind_it() -> None:
    t, (_, _, third) = three_prompts(preempts_first=0)
    t.run_pass()
    small = t.submit(1, 1)
    t.run_pass()
    assert t.queued(WAITING) == [third, small]


# The prefill cadence of data-parallel groups


def test_rank_is_capacity_bound_while_requests_are_left_waiting() -> None:
    t = Scheduler(max_seqs=1)
    t.submit(4, 2)
    t.submit(4, 2)
    t.run_pass()
    assert t.rank.is_capacity_bound == 1
    t.run_pass()
    assert t.rank.is_capacity_bound == 1
    t.run_pass()
    assert t.rank.is_capacity_bound == 0


def test_pass_that_preempted_says_nothing_about_capacity() -> None:
    t, _ = three_prompts(preempts_first=0)
    assert t.rank.is_capacity_bound == 0
    t.run_pass()
    assert t.queued(WAITING) != []
    assert t.rank.is_capacity_bound == 0


def test_deferred_pass_says_nothing_about_capacity() -> None:
    t = Scheduler(dp_size=2, prefill_interval=2)
    t.submit(4, 4)
    t.run_pass(wave=0)
    late = t.submit(4, 4)
    t.run_pass(wave=1)
    assert t.queued(WAITING) == [late]
    assert t.rank.is_capacity_bound == 0
    t.run_pass(wave=2)
    assert t.queued(WAITING) == []


def test_capacity_bound_rank_does_not_defer() -> None:
    t = Scheduler(dp_size=2, prefill_interval=2)
    t.submit(4, 4)
    t.run_pass(wave=0)
    t.submit(4, 4)
    t.rank.is_capacity_bound = 1
    t.run_pass(wave=1)
    assert t.queued(WAITING) == []


def test_deferred_pass_leaves_out_prompts_that_are_partly_computed() -> None:
    t = Scheduler(dp_size=2, prefill_interval=2, max_batched_tokens=8)
    short, long = t.submit(4, 4), t.submit(12, 4)
    t.run_pass(wave=0)
    assert t.seqs[long].computed_tokens == 4
    t.rank.is_capacity_bound = 0
    t.run_pass(wave=1)
    assert (t.emitted(), int(t.seqs[long].computed_tokens)) == ([short], 4)


def test_deferred_pass_admits_a_prompt_with_one_new_token() -> None:
    t = Scheduler(dp_size=2, prefill_interval=2, num_blocks=16)
    running = t.submit(4, 9)
    t.run_pass(wave=0)
    known = t.new_seq([1, 2], 9, 2)
    submit(t.rank, t.queues, t.seqs, known)
    t.run_pass(wave=2)
    hit = t.new_seq([1, 2], 9, 2)
    submit(t.rank, t.queues, t.seqs, hit)
    t.run_pass(wave=3)
    assert t.emitted() == [running, known, hit]


# The edge of the token budget


def test_prompt_that_can_never_fit_is_rejected_although_the_budget_is_spent() -> None:
    t = Scheduler(max_batched_tokens=4)
    t.submit(4, 2)
    t.submit(33, 2)
    fits = t.submit(1, 1)
    t.run_pass()
    assert t.queued(WAITING) == [fits]


def test_running_request_beyond_the_budget_does_not_run() -> None:
    t = Scheduler(max_batched_tokens=1)
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
    t = Scheduler(max_batched_tokens=4, num_blocks=16)
    first = t.new_seq([1], 4, 1)
    submit(t.rank, t.queues, t.seqs, first)
    t.run_pass()
    t.submit(4, 1)
    silent = t.new_seq([1], 4, 0)
    submit(t.rank, t.queues, t.seqs, silent)
    another = t.new_seq([1], 4, 0)
    submit(t.rank, t.queues, t.seqs, another)
    t.run_pass()
    assert t.seqs[silent].reused_tokens == 4
    assert t.queued(WAITING) == [another]  # one such admission ends the pass


# The gate of pending destinations


def test_only_activated_requests_are_admitted_while_a_destination_is_pending() -> None:
    t = Scheduler(role=ROLE_DECODE, num_blocks=4)
    destinations = [t.new_seq([], 8, 4), t.new_seq([], 12, 4)]
    plain = t.submit(4, 2)
    for s in destinations:
        accept_destination(t.engine, t.rank, t.queues, t.seqs, s)
    # The first one as if it had been reserved and transferred, without blocks.
    ready = t.new_seq([], 4, 4)
    t.seqs[ready].reserved_blocks = 1
    t.rank.reserved_blocks += 1
    t.rank.reserved_seqs += 1
    t.seqs[ready].is_destination = 1
    t.rank.queued_decode += 1
    activate_destination(
        t.engine,
        t.rank,
        t.queues,
        t.seqs,
        ready,
        t.blocks,
        t.arena,
        t.entries,
        t.contents,
    )
    t.run_pass()
    assert t.queued(PENDING) == destinations
    assert t.queued(WAITING) == [plain]
    assert t.emitted() == [ready]

"""Speculative decoding: bursts of tokens and the blocks set aside for them.

Rules: engine-vllm-trtllm.md §7, §5.4 (recompute), §8.2, worked examples E15, E16. The acceptance
draws themselves are in ``test_acceptance.py``.
"""

import pytest
from support.block_rank import DRAFTING, BlockRank
from support.engine_examples import fixed_worker
from support.fleets import small_fleet
from support.pass_log import log_passes, trace

from aisim_gym.engine.kv_pool import active_blocks
from aisim_gym.engine.tables import (
    END_COMPLETED,
    NONE,
    PREEMPT_FIRST,
    ROLE_DECODE,
    ROLE_PREFILL,
    RUNNING,
    SEQ_HELD,
    WAITING,
)
from aisim_gym.engine.trtllm import TRTLLM_DRAFTING
from aisim_gym.engine.vllm import VLLM_DRAFTING

CERTAIN = {"draft_tokens": 2, "accept_rate_1": 1.0, "accept_rate_2": 1.0}
"""Two drafts that are always accepted: bursts of three tokens."""


def rank(**engine: float) -> BlockRank:
    """A rank with 8 blocks of 4 tokens and bursts of three tokens."""
    return BlockRank(VLLM_DRAFTING, **{**CERTAIN, **engine})


def tokens_of(t: BlockRank) -> list[int]:
    """Return how many tokens each sequence emits at the end of the pass, in order."""
    return [int(t.seqs[s].signal_tokens) for s in t.signals()]


# E15, E16


@pytest.mark.parametrize("backend", DRAFTING)
def test_bursts_come_whole_at_the_end_of_a_pass_and_stop_at_the_limit(backend: str) -> None:
    spec = fixed_worker(backend=backend, aic_nextn=2, aic_nextn_accept_rates="1,1")
    log = log_passes(spec, trace((0, 6, 7, [1, 2])))
    log.check_passes(
        [
            (0.0, 14.0, [1, 6]),
            (14.0, 18.0, [0, 0, 0, 0, 1, 9]),
            (18.0, 22.0, [0, 0, 0, 0, 1, 12]),
        ]
    )
    assert log.tokens == [[14.0, 14.0, 14.0, 18.0, 18.0, 18.0, 22.0]]


def test_default_rates_and_seed_give_the_bursts_of_the_reference() -> None:
    log = log_passes(fixed_worker(aic_nextn=2), trace((0, 6, 12, [1, 2])))
    log.check_passes(
        [
            (0.0, 14.0, [1, 6]),
            *((14.0 + 4 * n, 18.0 + 4 * n, [0, 0, 0, 0, 1, 8 + 2 * n]) for n in range(4)),
            (30.0, 34.0, [0, 0, 0, 0, 1, 17]),
        ]
    )
    assert log.tokens == [[14.0, 14.0, 18.0, 18.0, 22.0, 22.0, 26.0, 26.0, 30.0, 30.0, 30.0, 34.0]]


# Tokens and time


def test_first_token_is_not_free() -> None:
    t = rank()
    t.submit(6, 9)
    work = t.run_pass()
    assert (work.timed_decodes, work.timed_tokens, work.end_ms) == (1, 6, 14.0)


def test_accepted_tokens_count_before_they_are_cut_and_not_in_the_prefill_pass() -> None:
    t = rank()
    t.submit(6, 4)
    work = t.run_pass()
    assert (tokens_of(t), work.accept_forwards, work.accepted_tokens) == ([3], 0, 0)
    work = t.run_pass()
    assert (tokens_of(t), work.accept_forwards, work.accepted_tokens) == ([1], 1, 3)


def test_model_length_cuts_a_burst() -> None:
    t = rank(max_model_len=8)
    s = t.submit(6, 9)
    t.run_pass()
    assert tokens_of(t) == [2]
    assert t.seqs[s].signal_end == END_COMPLETED


def test_request_without_output_ends_without_a_draw() -> None:
    t = rank(accept_rate_1=0.85)
    s = t.submit(6, 0)
    work = t.run_pass()
    assert (tokens_of(t), t.signals(), work.timed_decodes) == ([0], [s], 0)
    assert t.rank.num_draws == 0


def test_prefill_worker_emits_one_token_without_a_draw_or_decode_time() -> None:
    t = rank(role=ROLE_PREFILL, accept_rate_1=0.85)
    s = t.new_request(6, 1)
    t.seqs[s].is_source = True
    t.backend.submit(t, t.rank, s)
    work = t.run_pass()
    assert (tokens_of(t), t.rank.num_draws, work.end_ms) == ([1], 0, 10.0)
    assert t.seqs[s].status == SEQ_HELD


def test_decode_worker_emits_a_burst_when_it_admits_a_destination() -> None:
    t = rank(role=ROLE_DECODE)
    s = t.accept(6, 9)
    t.reserve()
    t.activate(s)
    work = t.run_pass()
    assert (tokens_of(t), work.accept_forwards, work.end_ms) == ([3], 1, 4.0)


@pytest.mark.parametrize("backend", DRAFTING)
def test_role_without_drafts_emits_single_tokens_beside_one_that_drafts(backend: str) -> None:
    spec = small_fleet(
        prefill=1,
        decode=1,
        engine={"backend": backend},
        decode_engine={"aic_nextn": 1, "aic_nextn_accept_rates": "1"},
    )
    log = log_passes(spec, trace((0, 8, 5, [1, 2])))
    assert log.columns["source_held_ms"] == [10.0]
    assert log.tokens == [[11.0, 11.0, 12.0, 12.0, 13.0]]
    spec = small_fleet(
        prefill=1,
        decode=1,
        engine={"backend": backend},
        prefill_engine={"aic_nextn": 1, "aic_nextn_accept_rates": "1"},
    )
    assert log_passes(spec, trace((0, 8, 3, [1, 2]))).tokens == [[11.0, 12.0, 13.0]]


def test_ranks_draw_from_the_seed_and_their_scheduler_ids() -> None:
    """Seeds 42 and 43 with rates .5 .5 .5 begin 1 1 1 4 and 1 4 2 4."""
    drafts = {"aic_nextn": 3, "aic_nextn_accept_rates": "0.5,0.5,0.5"}
    rows = ((0, 4, 6, [1]), (0, 4, 6, [2]))
    for fleet in ({"workers": 2}, {"workers": 1, "dp_size": 2}):
        spec = small_fleet(engine=drafts, **fleet)  # type: ignore[arg-type]
        first, second = log_passes(spec, trace(*rows)).tokens
        assert first == [11.0, 12.0, 13.0, 14.0, 14.0, 14.0]
        assert second == [11.0, 12.0, 12.0, 12.0, 12.0, 13.0]


# Blocks


def test_blocks_of_a_burst_become_resident_and_the_rest_of_the_reservation_is_returned() -> None:
    t = rank(accept_rate_1=0.0)
    s = t.submit(7, 9)
    t.run_pass()
    assert tokens_of(t) == [1]
    # 7 + 3 tokens would need 3 blocks; 8 tokens have 2, the last of them without KV.
    assert (t.rank.reserved_blocks, active_blocks(t.rank)) == (0, 2)
    assert (t.seqs[s].computed_tokens, t.seqs[s].resident_blocks) == (7, 1)


def test_request_that_goes_on_has_kv_for_all_but_its_last_token() -> None:
    t = rank()
    s = t.submit(6, 30)
    for length in (9, 12, 15):
        t.run_pass()
        seq = t.seqs[s]
        assert (seq.computed_tokens, seq.generated_tokens) == (length - 1, length - 6)
        assert seq.covered_tokens >= length
        assert (seq.resident_blocks, seq.private_blocks) == (
            (length - 1) // 4,
            -(-length // 4) - (length - 1) // 4,
        )


def test_generated_blocks_can_be_hit_when_the_request_comes_back() -> None:
    t = rank()
    first, second = t.submit(6, 20), t.submit(7, 20)
    for _ in range(4):
        t.run_pass()
    assert t.queued(WAITING) == [second]
    assert t.seqs[second].generated_tokens == 9
    t.cancel(first)
    t.run_pass()
    assert t.admitted() == [second]
    # Three blocks of its 16 tokens were complete; one of them is computed again.
    assert t.seqs[second].reused_tokens == 8


@pytest.mark.parametrize(("prompt_tokens", "reused"), [(4, 0), (5, 0), (8, 0), (9, 4), (12, 4)])
def test_cached_prompt_is_computed_again_from_one_block_earlier(
    prompt_tokens: int, reused: int
) -> None:
    t = rank()
    identities = list(range(prompt_tokens // 4))
    t.submit(prompt_tokens, 1, identities)
    t.run_to_end()
    again = t.submit(prompt_tokens, 1, identities)
    t.run_pass()
    assert t.seqs[again].reused_tokens == reused


def test_trtllm_computes_a_cached_prompt_not_again_although_it_drafts() -> None:
    t = BlockRank(TRTLLM_DRAFTING, **CERTAIN)
    t.submit(8, 1, [1, 2])
    t.run_to_end()
    again = t.submit(8, 1, [1, 2])
    work = t.run_pass()
    assert (t.seqs[again].reused_tokens, work.num_prefill) == (8, 0)


# Preemption to make room for bursts


def test_newest_request_is_preempted_until_full_bursts_of_the_others_fit() -> None:
    t = rank(num_blocks=4)
    first, second = t.submit(6, 9), t.submit(7, 9)
    work = t.run_pass()
    assert (t.emitted(), tokens_of(t)) == ([first], [3])
    assert (t.queued(RUNNING), t.queued(WAITING)) == ([first], [second])
    assert (t.rank.preemptions, work.timed_decodes, work.timed_tokens) == (1, 1, 6)


def test_work_of_a_request_preempted_for_a_burst_still_counts() -> None:
    t = rank(num_blocks=4)
    t.submit(6, 9)
    t.submit(7, 9)
    work = t.run_pass()
    assert (work.num_prefill, work.prefill_tokens, work.prompt_ends) == (2, 13, 13)
    assert (work.queued_decode, work.queued_decode_tokens) == (1, 7)
    assert work.end_ms == 14.0


def test_oldest_request_is_preempted_first_with_fifo() -> None:
    t = rank(num_blocks=4, preemption=PREEMPT_FIRST)
    first, second = t.submit(6, 9), t.submit(7, 9)
    t.run_pass()
    assert (t.emitted(), t.queued(WAITING)) == ([second], [first])


def test_reservation_counts_only_the_tokens_that_are_left() -> None:
    t = rank(num_blocks=4)
    seqs = [t.submit(7, 1), t.submit(7, 1)]
    t.run_pass()
    assert (t.emitted(), tokens_of(t), t.rank.preemptions) == (seqs, [1, 1], 0)


def test_request_alone_that_has_no_room_for_a_burst_emits_nothing() -> None:
    t = rank(num_blocks=2)
    s = t.submit(8, 9)
    work = t.run_pass()
    assert (t.signals(), t.queued(WAITING), active_blocks(t.rank)) == ([], [s], 0)
    assert (work.num_prefill, work.timed_decodes, work.end_ms) == (1, 0, 10.0)
    assert work.is_undone


def test_partly_computed_prompts_do_not_take_part_in_bursts() -> None:
    t = rank(max_batched_tokens=10)
    short, long = t.submit(6, 9), t.submit(12, 9)
    t.run_pass()
    assert (t.emitted(), t.queued(RUNNING)) == ([short], [short, long])
    assert t.seqs[long].computed_tokens == 4


def test_trtllm_sets_its_bursts_aside_without_preempting() -> None:
    t = BlockRank(TRTLLM_DRAFTING, **CERTAIN)
    for prompt_tokens, output_tokens in ((5, 9), (9, 3), (4, 4), (1, 20), (8, 0)):
        t.submit(prompt_tokens, output_tokens)
    emitted = t.run_to_end()
    assert sum(map(sum, emitted)) == 9 + 3 + 4 + 20
    assert (t.rank.preemptions, active_blocks(t.rank)) == (0, 0)
    assert t.seqs[0].request == NONE

"""The SGLang rank engine: the worked examples of a single rank, and its commands.

Rules: engine-sglang.md; E1-E15 are the examples of its §18. Metrics are
``[prefills, computed tokens, variance of prompts, known prompt tokens, decodes, their KV, variance,
queued prefills, tokens, variance, queued decodes, KV, variance]``, trailing zeros left out.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sglang_rank import (
    RankLog,
    Request,
    SglangRank,
    make_tables,
    run_requests,
    sglang_engine,
)

from aisim_gym.engine.tables import (
    NONE,
    PENDING,
    PREBUILT,
    RETRY_COUNTED,
    RETRY_EXHAUSTED,
    RETRY_FREE,
    ROLE_DECODE,
    ROLE_PREFILL,
    RUNNING,
    SEQ_HELD,
    TIMING_POLYNOMIAL,
    WAITING,
)

# The reference multiplies 64-bit words modulo 2**64; plain Python warns of that.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")

Pass = tuple[float, float, list[float]]
"""Start and end in ms, metrics."""

POLYNOMIAL = {"timing": TIMING_POLYNOMIAL, "num_blocks": 16384, "block_size": 1}


def prompt(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


def run(*requests: tuple[float, list[int], int], **engine: Any) -> RankLog:
    """Run requests on a rank of 16 pages of 4 tokens, 10 ms to prefill, 3 ms to decode."""
    return run_requests([Request(*r) for r in requests], sglang_engine(**engine))


def decode(num: int, kv: int, variance: float = 0.0, *queued: float) -> list[float]:
    """Return the metrics of a decode pass."""
    metrics = [0.0, 0.0, 0.0, 0.0, num, kv, variance, *queued]
    return metrics if metrics[-1] != 0.0 else metrics[:-1]


def check_passes(log: RankLog, *passes: Pass, first: int = 0) -> None:
    """Assert that the rank ran these passes, from pass ``first`` on."""
    spans = log.spans[first : first + len(passes)]
    assert [(span.start_ms, span.end_ms) for span in spans] == [p[:2] for p in passes]
    for span, (start_ms, _, metrics) in zip(spans, passes, strict=True):
        assert span.metrics == pytest.approx(metrics, rel=1e-12), start_ms


# E1, E2: timing


def test_prefill_emits_the_first_token_and_each_decode_one_more() -> None:
    log = run((0, prompt(1, 10), 4))
    assert log.admissions == [[(0, 0)]]
    assert log.tokens == [[10, 13, 16, 19]]
    check_passes(
        log,
        (0, 10, [1, 10]),
        (10, 13, decode(1, 11)),
        (13, 16, decode(1, 12)),
        (16, 19, decode(1, 13)),
    )


def test_prefill_time_depends_on_floored_means_of_the_batch() -> None:
    log = run((0, prompt(1, 100), 3), (0, prompt(1001, 1051), 2), **POLYNOMIAL)
    check_passes(
        log,
        (0, 18.788408, [2, 151, 600.25]),
        (18.788408, 25.030529, decode(2, 153, 600.25)),
        (25.030529, 31.105775, decode(1, 102)),
    )
    assert log.ends == [31.105775, 25.030529]


def test_speed_up_divides_durations() -> None:
    requests = ((0.0, prompt(1, 100), 3), (0.0, prompt(1001, 1051), 2))
    log = run(*requests, **POLYNOMIAL, prefill_speedup=3.0, decode_speedup=6.0)
    assert [span.end_ms for span in log.spans] == [6.262803, 7.3031559999999995, 8.315697]


def test_prompt_found_whole_still_counts_in_the_means_of_the_batch() -> None:
    found, computed = (30.0, prompt(1, 8), 0), (30.0, prompt(101, 117), 1)
    polynomial = {"timing": TIMING_POLYNOMIAL}
    alone = run((0, prompt(1, 8), 1), computed, **polynomial)
    both = run((0, prompt(1, 8), 1), found, computed, **polynomial)
    # 1 * (17 - 0) tokens alone; with the other one 2 * (25 // 2 - 8 // 2) = 16.
    assert (alone.ends[-1], both.ends[-1]) == (30 + 16.75966, 30 + 16.744463)
    assert both.spans[-1].metrics == [1, 17]


# E3: chunks


def test_requests_of_a_pass_share_the_chunk_budget() -> None:
    log = run((0, prompt(1, 20), 3), (1, prompt(101, 106), 2), chunk_tokens=8)
    check_passes(
        log,
        (0, 10, [1, 8, 0, 0, 0, 0, 0, 1, 20]),
        (10, 20, [1, 8, 0, 8, 0, 0, 0, 2, 26, 49]),
        (20, 30, [2, 8, 49, 16, 0, 0, 0, 1, 6]),
        (30, 40, [1, 2, 0, 4]),
        (40, 43, decode(2, 28, 49)),
        (43, 46, decode(1, 22)),
    )
    assert log.admissions == [[(0, 0)], [(20, 0)]]
    assert [tokens[0] for tokens in log.tokens] == [30, 40]
    assert log.ends == [46, 43]
    assert log.cache == (0, 26)


# E4, E11: the prefix cache

SHARED_PREFIXES = (
    (0.0, prompt(1, 12), 5),
    (60.0, prompt(1, 12), 2),
    (120.0, prompt(1, 16), 1),
    (180.0, [*prompt(1, 6), *prompt(50, 60)], 1),
)


def test_prefix_is_reused_in_pages_and_one_token_is_always_computed() -> None:
    log = run(*SHARED_PREFIXES)
    assert [a[0][1] for a in log.admissions] == [0, 8, 12, 4]
    check_passes(
        log,
        (60, 70, [1, 4, 0, 8]),
        (70, 73, decode(1, 13)),
        (120, 130, [1, 4, 0, 12]),
        (180, 190, [1, 13, 0, 4]),
        first=5,
    )
    assert log.cache == (24, 57)


def test_nothing_is_reused_without_prefix_caching() -> None:
    log = run(*SHARED_PREFIXES, prefix_caching=0)
    assert [a[0][1] for a in log.admissions] == [0, 0, 0, 0]


def test_oldest_leaf_loses_its_last_pages_first() -> None:
    log = run(
        (0, prompt(1, 16), 1),
        (20, prompt(101, 116), 1),
        (40, prompt(1, 17), 1),
        (60, prompt(201, 225), 1),
        (80, prompt(101, 118), 1),
        (100, prompt(1, 18), 1),
        num_blocks=12,
    )
    assert [a[0][1] for a in log.admissions] == [0, 0, 16, 0, 4, 4]
    assert [span.metrics for span in log.spans] == [
        [1, 16],
        [1, 16],
        [1, 1, 0, 16],
        [1, 25],
        [1, 14, 0, 4],
        [1, 14, 0, 4],
    ]


# E5, E6: prefill first


def test_running_requests_stall_while_others_prefill() -> None:
    log = run((0, prompt(1, 8), 6), (11, prompt(101, 108), 3))
    check_passes(
        log,
        (0, 10, [1, 8]),
        (10, 13, decode(1, 9)),
        (13, 23, [1, 8]),
        (23, 26, decode(2, 19, 0.25)),
        (26, 29, decode(2, 21, 0.25)),
        (29, 32, decode(1, 12)),
        (32, 35, decode(1, 13)),
    )
    assert log.ends == [35, 29]


def test_request_for_one_token_ends_with_its_prefill() -> None:
    log = run((0, prompt(1, 8), 1), (0, prompt(101, 109), 2), (0, prompt(201, 203), 2))
    check_passes(log, (0, 10, [3, 20, 6.888888888888889]), (10, 13, decode(2, 14, 9)))
    assert log.ends == [10, 13, 13]


# E7, E8: output reservation and retraction


def test_reservation_for_output_shrinks_with_every_decode_pass() -> None:
    log = run((0, prompt(1, 16), 24), (1, prompt(101, 116), 12))
    check_passes(
        log,
        (0, 10, [1, 16]),
        (10, 13, decode(1, 17, 0, 1, 16)),
        (13, 23, [1, 16]),
        (23, 26, decode(2, 35, 0.25)),
    )
    assert (log.tokens[1][0], log.ends) == (23, [89, 56])


def test_retracted_requests_come_back_and_emit_with_their_new_prefill() -> None:
    log = run(
        (0, prompt(1, 12), 24), (0, prompt(101, 113), 24), (0, prompt(201, 214), 24), clip_tokens=1
    )
    third = 0.6666666666666666
    check_passes(
        log,
        (0, 10, [3, 39, third]),
        *[(10 + 3 * k, 13 + 3 * k, decode(3, 42 + 3 * k, third)) for k in range(6)],
        (28, 31, decode(3, 60, third, 0, 0, 0, 1, 19)),
        *[(31 + 3 * k, 34 + 3 * k, decode(2, 43 + 2 * k, 0.25, 0, 0, 0, 1, 19)) for k in range(10)],
        (61, 64, decode(2, 63, 0.25, 0, 0, 0, 2, 50, 36)),
        (64, 74, [1, 19, 0, 0, 0, 0, 0, 0, 0, 0, 1, 31]),
        *[(74 + 3 * k, 77 + 3 * k, decode(2, 53 + 2 * k, 42.25, 0, 0, 0, 1, 31)) for k in range(4)],
        (86, 89, decode(2, 61, 42.25, 0, 0, 0, 2, 55, 12.25)),
        (89, 99, [2, 35, 0.25, 20]),
        *[(99 + 3 * k, 102 + 3 * k, decode(2, 57 + 2 * k, 12.25)) for k in range(3)],
        (108, 111, decode(2, 63, 12.25, 0, 0, 0, 1, 28)),
        (111, 121, [1, 4, 0, 24]),
        (121, 124, decode(2, 64, 16, 0, 0, 0, 1, 28)),
        (124, 134, [1, 4, 0, 24]),
        *[(134 + 3 * k, 137 + 3 * k, decode(1, 29 + k)) for k in range(7)],
    )
    assert log.admissions == [
        [(0, 0), (64, 0), (89, 20), (111, 24), (124, 24)],
        [(0, 0), (89, 0)],
        [(0, 0)],
    ]
    assert log.ends == [155, 124, 89]


def test_ratio_after_a_retraction_is_estimated_from_those_that_stay() -> None:
    t = SglangRank(sglang_engine(clip_tokens=1, num_blocks=7))
    first, second = t.submit(prompt(1, 11), 40), t.submit(prompt(101, 112), 40)
    t.run_pass()
    while t.queued(RUNNING) == [first, second]:
        t.run_pass()
    assert t.queued(WAITING) == [first]
    before_pass = t.t.seqs[second].generated_tokens - 1
    assert t.rank.reserve_ratio == (float(before_pass) + 20.0) / 41.0


# E9: requests that can never run


@pytest.mark.parametrize(
    ("request_", "engine"),
    [
        ((0, prompt(1, 8), 2), {"num_blocks": 1, "chunk_tokens": 8}),
        ((0, prompt(1, 60), 4), {}),
        ((0, prompt(1, 63), 1), {}),
    ],
)
def test_request_that_can_never_be_admitted_burns_the_ratio_and_is_stuck(
    request_: tuple[float, list[int], int], engine: dict[str, Any]
) -> None:
    log = run(request_, **engine)
    assert (log.error, log.spans) == ("stuck", [])


def test_retries_are_counted_until_the_ratio_is_at_its_minimum() -> None:
    t = SglangRank(sglang_engine())
    t.submit(prompt(1, 60), 4)
    hints = [int(t.run_pass().retry) for _ in range(602)]
    assert hints == [RETRY_COUNTED] * hints.count(RETRY_COUNTED) + [RETRY_EXHAUSTED] * (
        602 - hints.count(RETRY_COUNTED)
    )
    assert hints.count(RETRY_COUNTED) in (600, 601)
    assert t.rank.reserve_ratio == t.engine.min_ratio


def test_largest_request_that_can_run() -> None:
    assert run((0, prompt(1, 60), 3)).tokens == [[10, 13, 16]]


def test_single_request_that_can_not_grow_is_a_livelock() -> None:
    assert run((0, prompt(1, 9), 60), clip_tokens=1).error == "livelocked"


# E10: max_model_len


def test_output_is_cut_and_long_prompts_are_rejected_at_a_pass_end() -> None:
    log = run(
        (0, prompt(1, 8), 10), (1, prompt(101, 112), 3), (2, prompt(201, 216), 3), max_model_len=12
    )
    assert log.tokens == [[10, 13, 16, 19], [], []]
    assert (log.ends, log.rejected) == ([19, 13, 13], [1, 2])
    assert all(len(span.metrics) <= 7 for span in log.spans)


def test_rejections_follow_all_other_signals_in_order_of_arrival() -> None:
    t = SglangRank(sglang_engine(max_model_len=12))
    first, runs, second = (t.submit(prompt(n, n + 11 - n % 2), 1) for n in (100, 201, 300))
    t.run_pass()
    assert t.signals() == [runs, first, second]
    assert t.queued(WAITING) == []


# E12: lpm

LPM_REQUESTS = (
    (0.0, prompt(1, 40), 2),
    (1.0, prompt(201, 240), 1),
    (2.0, prompt(201, 236), 1),
    (3.0, [*prompt(1, 20), *prompt(301, 310)], 1),
    (4.0, prompt(1, 38), 1),
)


def test_longest_cached_prefix_goes_first_and_later_twins_stand_back() -> None:
    log = run(*LPM_REQUESTS, num_blocks=64, max_seqs=1, sorts_by_prefix=1)
    assert log.admissions == [[(0, 0)], [(33, 0)], [(43, 32)], [(23, 20)], [(13, 36)]]
    check_passes(
        log,
        (0, 10, [1, 40]),
        (10, 13, decode(1, 41, 0, 4, 144, 14)),
        (13, 23, [1, 2, 0, 36, 0, 0, 0, 3, 106, 16.88888888888889]),
        (23, 33, [1, 10, 0, 20, 0, 0, 0, 2, 76, 4]),
        (33, 43, [1, 40, 0, 0, 0, 0, 0, 1, 36]),
        (43, 53, [1, 4, 0, 32]),
    )


def test_fifo_and_lpm_without_cache_keep_the_order_of_arrival() -> None:
    for engine in ({"sorts_by_prefix": 0}, {"sorts_by_prefix": 1, "prefix_caching": 0}):
        log = run(*LPM_REQUESTS, num_blocks=64, max_seqs=1, **engine)
        assert sorted(a[0][0] for a in log.admissions) == [a[0][0] for a in log.admissions]


@pytest.mark.parametrize(("count", "is_sorted"), [(128, True), (129, False)])
def test_longer_queues_are_not_sorted(count: int, is_sorted: bool) -> None:
    engine = sglang_engine(max_seqs=1, sorts_by_prefix=1)
    t = SglangRank(engine, make_tables(num_seqs=256))
    t.submit(prompt(1, 8), 1)
    t.run_pass()
    seqs = [t.submit(prompt(100 + n, 101 + n), 1) for n in range(count - 1)]
    cached = t.submit(prompt(1, 8), 1)
    t.run_pass()
    assert t.admitted() == [cached if is_sorted else seqs[0]]


# E13: speculative decoding

ALL_ACCEPTED = {"draft_tokens": 2, "accept_rate_1": 1.0, "accept_rate_2": 1.0}


def test_burst_comes_at_once_and_ends_at_the_limit() -> None:
    log = run((0, prompt(1, 8), 6), (0, prompt(101, 109), 9), **ALL_ACCEPTED)
    check_passes(
        log,
        (0, 10, [2, 17, 0.25]),
        (10, 13, decode(2, 19, 0.25)),
        (13, 16, decode(2, 25, 0.25)),
        (16, 19, decode(1, 16)),
    )
    assert log.tokens[0] == [10, 13, 13, 13, 16, 16]
    assert log.ends == [16, 19]
    assert log.accepted == (5, 15)


def test_accepted_drafts_follow_the_random_stream_of_the_reference() -> None:
    log = run(
        (0, prompt(1, 10), 50),
        (1, prompt(101, 111), 50),
        (2, prompt(201, 212), 50),
        num_blocks=400,
        draft_tokens=3,
        accept_rate_1=0.6,
        accept_rate_2=0.5,
        accept_rate_3=0.4,
    )
    assert log.ends == [89, 89, 92]


def test_prefill_workers_do_not_speculate() -> None:
    t = SglangRank(sglang_engine(role=ROLE_PREFILL, **ALL_ACCEPTED))
    t.submit(prompt(1, 8), 5)
    t.run_pass()
    work = t.run_pass()
    assert (work.accept_forwards, work.accepted_tokens) == (1, 1)


# E14: prefill_decode_interval


def test_prefill_waits_for_decode_rounds_and_idle_rounds_cost_no_time() -> None:
    log = run((0, prompt(1, 12), 3), (1, prompt(101, 108), 2), prefill_pause=2, chunk_tokens=8)
    check_passes(
        log,
        (0, 10, [1, 8, 0, 0, 0, 0, 0, 1, 12]),
        (10, 20, [2, 8, 4, 8, 0, 0, 0, 1, 8]),
        (20, 23, decode(1, 13, 0, 1, 8)),
        (23, 26, decode(1, 14, 0, 1, 8)),
        (26, 36, [1, 4, 0, 4]),
        (36, 39, decode(1, 9)),
    )


def test_idle_round_resets_the_ratio_and_is_retried_freely() -> None:
    t = SglangRank(sglang_engine(prefill_pause=2, chunk_tokens=4))
    t.submit(prompt(1, 12), 1)
    t.run_pass()
    t.rank.reserve_ratio = 0.9
    assert t.run_pass().retry == RETRY_FREE
    assert (t.rank.reserve_ratio, t.rank.pause_rounds) == (t.engine.init_ratio, 1)


# E15: zero output


def test_request_without_output_may_be_found_whole_and_takes_no_time() -> None:
    log = run(
        (0, prompt(1, 8), 0), (20, prompt(1, 8), 0), (40, prompt(1, 9), 0), (60, prompt(1, 8), 1)
    )
    assert log.ends == [10, 20, 50, 70]
    assert [a[0][1] for a in log.admissions] == [0, 8, 8, 4]
    assert log.spans[1] == (20, 20, [])


# Handoff sources


def test_held_source_keeps_its_pages_until_it_is_released() -> None:
    t = SglangRank(sglang_engine(role=ROLE_PREFILL))
    s = t.submit(prompt(1, 10), 1, is_source=1)
    t.run_pass()
    assert (t.signals(), t.t.seqs[s].status, t.used_pages()) == ([s], SEQ_HELD, 3)
    again = t.submit(prompt(1, 10), 1, is_source=1)
    t.run_pass()
    assert t.t.seqs[again].reused_tokens == 0
    generation = t.rank.capacity_generation
    t.release(s)
    assert (t.used_pages(), t.rank.evictable_blocks) == (5, 2)
    t.release(again)
    assert (t.used_pages(), t.rank.evictable_blocks) == (2, 2)
    assert t.rank.capacity_generation == generation + 2


def test_held_source_that_is_cancelled_leaves_its_prompt_in_the_cache() -> None:
    t = SglangRank(sglang_engine(role=ROLE_PREFILL))
    s = t.submit(prompt(1, 10), 1, is_source=1)
    t.run_pass()
    t.cancel(s)
    assert t.used_pages() == 2


# Destinations


def decode_rank(**engine: Any) -> SglangRank:
    return SglangRank(sglang_engine(role=ROLE_DECODE, **engine))


def arrived(t: SglangRank, tokens: list[int], output_tokens: int = 2) -> int:
    """Return a destination that was accepted, got its pages and its KV."""
    s = t.accept(tokens, output_tokens)
    assert t.reserve() == s
    t.activate(s)
    return s


def test_destination_decodes_all_its_tokens_and_is_admitted_without_reuse() -> None:
    t = decode_rank()
    s = arrived(t, prompt(1, 9), 3)
    work = t.run_pass(10.0)
    assert (t.admitted(), t.t.seqs[s].reused_tokens, t.signals()) == ([s], 0, [s])
    assert (work.num_decode, work.decode_tokens, work.end_ms) == (1, 9, 13.0)


@pytest.mark.parametrize(
    ("tokens", "engine"),
    [(65, {}), (20, {"max_model_len": 20}), (20, {"max_model_len": 16})],
    ids=["more pages than the pool", "as long as the model allows", "longer"],
)
def test_destination_that_can_never_run_is_refused(tokens: int, engine: dict[str, Any]) -> None:
    t = decode_rank(**engine)
    assert t.accept(prompt(1, tokens)) == NONE
    assert (t.queued(PENDING), t.rank.queued_decode) == ([], 0)


def test_one_attempt_reserves_for_the_first_destination_only() -> None:
    t = decode_rank()
    first, second = t.accept(prompt(1, 8)), t.accept(prompt(101, 104))
    assert (t.reserve(), t.queued(PENDING), t.used_pages()) == (first, [second], 2)
    assert (t.reserve(), t.reserve()) == (second, NONE)


def test_destination_reserves_only_what_the_cache_lacks() -> None:
    t = decode_rank()
    arrived(t, prompt(1, 8))
    s = t.accept(prompt(1, 10))
    assert (t.reserve(), t.t.seqs[s].reserved_blocks, t.used_pages()) == (s, 1, 3)


def test_whole_prompt_may_be_found_in_the_cache() -> None:
    t = decode_rank()
    arrived(t, prompt(1, 8))
    s = t.accept(prompt(1, 8))
    assert (t.reserve(), t.t.seqs[s].reserved_blocks) == (s, 0)


def test_destination_that_does_not_fit_waits_for_the_next_generation() -> None:
    t = decode_rank(num_blocks=5)
    first, second = t.accept(prompt(1, 16)), t.accept(prompt(101, 116))
    assert (t.reserve(), t.reserve()) == (first, NONE)
    t.rank.reserved_blocks = 0  # room, but nobody said so
    assert t.reserve() == NONE
    t.rank.capacity_generation += 1
    assert t.reserve() == second


def test_pages_that_turn_out_to_be_duplicates_are_freed_on_activation() -> None:
    t = decode_rank()
    twins = [t.accept(prompt(1, 8)), t.accept(prompt(1, 8))]
    assert [t.reserve(), t.reserve()] == twins
    assert t.used_pages() == 4
    generation = t.rank.capacity_generation
    t.activate(twins[0])
    assert (t.used_pages(), t.rank.capacity_generation) == (4, generation)
    t.activate(twins[1])
    assert (t.used_pages(), t.rank.capacity_generation) == (2, generation + 1)
    assert t.rank.evictable_blocks == 0


def test_destinations_count_as_queued_decodes_until_they_run() -> None:
    t = decode_rank()
    s, loads = t.accept(prompt(1, 8), 5), []
    for step in (t.reserve, lambda: t.activate(s), t.run_pass):
        loads.append((int(t.rank.queued_decode), int(t.rank.queued_decode_tokens)))
        step()
    assert loads == [(1, 8)] * 3
    assert t.rank.queued_decode == t.rank.queued_decode_squares == 0


def test_pending_destination_keeps_a_retracted_request_waiting() -> None:
    t = decode_rank(num_blocks=7)
    first, second = arrived(t, prompt(1, 11), 12), arrived(t, prompt(101, 110), 12)
    large = t.accept(prompt(201, 220))
    while t.queued(WAITING) == []:
        assert t.reserve() == NONE
        t.run_pass()
    assert (t.queued(WAITING), t.queued(RUNNING)) == ([first], [second])
    while t.queued(RUNNING):
        assert t.run_pass().num_prefill == 0
    assert t.reserve() == large


def test_retracted_destination_is_prefilled_again_in_no_time_and_emits() -> None:
    t = decode_rank(num_blocks=7)
    first, _ = arrived(t, prompt(1, 11), 12), arrived(t, prompt(101, 110), 12)
    t.run_pass()
    while t.queued(RUNNING):
        t.run_pass()
    assert t.queued(WAITING) == [first]
    work = t.run_pass(200.0)
    assert (t.admitted(), t.signals(), work.end_ms) == ([first], [first], 200.0)
    assert work.num_prefill == 1


@pytest.mark.parametrize("steps", [0, 1, 2, 3], ids=["pending", "reserved", "activated", "running"])
def test_cancelled_destination_leaves_only_cached_pages(steps: int) -> None:
    t = decode_rank()
    s = t.accept(prompt(1, 10), 5)
    for step in (t.reserve, lambda: t.activate(s), t.run_pass)[:steps]:
        step()
    generation = t.rank.capacity_generation
    t.cancel(s)
    assert [t.queued(kind) for kind in (WAITING, RUNNING, PENDING, PREBUILT)] == [[]] * 4
    assert t.used_pages() == t.rank.evictable_blocks == (2 if steps >= 2 else 0)
    assert (t.rank.queued_decode, t.rank.reserved_seqs, t.rank.owned_seqs) == (0, 0, 0)
    assert t.rank.capacity_generation == generation + 1


def test_cancelling_a_request_that_never_ran_frees_no_capacity() -> None:
    t = SglangRank()
    t.cancel(t.submit(prompt(1, 8), 1))
    assert (t.queued(WAITING), t.rank.queued_new, t.rank.capacity_generation) == ([], 0, 0)


def test_cancelled_chunk_gives_its_pages_back() -> None:
    t = SglangRank(sglang_engine(chunk_tokens=8))
    s = t.submit(prompt(1, 12), 1)
    t.run_pass()
    t.cancel(s)
    assert (t.used_pages(), t.rank.evictable_blocks, t.rank.capacity_generation) == (2, 2, 1)


# Laws


def check_books(t: SglangRank) -> None:
    """Assert that the counters of a rank agree with its sequences and its tree."""
    seqs = [s for kind in (WAITING, RUNNING) for s in t.queued(kind)]
    private = sum(int(t.t.seqs[s].private_blocks) for s in seqs)
    assert t.rank.private_blocks == private
    assert t.used_pages() == private + t.rank.resident_blocks <= t.engine.num_blocks
    assert len(t.t.blocks) - t.t.arena.block_free_count == t.rank.resident_blocks
    assert 0 <= t.rank.evictable_blocks <= t.rank.resident_blocks
    waiting = [int(t.t.seqs[s].prompt_tokens) for s in t.queued(WAITING)]
    assert t.rank.queued_new + t.rank.queued_decode == len(waiting)


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 2), st.integers(1, 30), st.integers(0, 12)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([{}, {"sorts_by_prefix": 1}, {"prefix_caching": 0}, {"prefill_pause": 2}]),
    st.sampled_from([8, 16, 40]),
    st.sampled_from([4, 8, 8192]),
    st.integers(0, 3),
)
def test_books_balance_and_every_token_comes_once(
    rows: list[tuple[int, int, int, int]],
    engine: dict[str, int],
    num_blocks: int,
    chunk_tokens: int,
    clip_tokens: int,
) -> None:
    requests = [
        Request(at_ms, prompt(100 * group, 100 * group + tokens - 1), output)
        for at_ms, group, tokens, output in sorted(rows)
    ]
    settings = {"chunk_tokens": chunk_tokens, "clip_tokens": clip_tokens, **engine}
    log = run_requests(requests, sglang_engine(num_blocks=num_blocks, **settings), check_books)
    if not log.error:
        assert [len(tokens) for tokens in log.tokens] == [r.output_tokens for r in requests]

"""The TensorRT-LLM scheduler: whole generations are promised, nothing is preempted.

Rules: engine-vllm-trtllm.md §10, §9 (destinations), worked examples E13, E14, E25.
"""

from typing import Any

import pytest
from support.block_rank import BlockRank
from support.engine_examples import decodes, fixed_worker, long_prompt, times
from support.fleets import small_fleet
from support.pass_log import log_passes, trace

from aisim_gym.engine.kv_pool import active_blocks
from aisim_gym.engine.tables import (
    END_REJECTED,
    NONE,
    PENDING,
    ROLE_DECODE,
    RUNNING,
    WAITING,
)
from aisim_gym.engine.trtllm import TRTLLM

TRT: dict[str, Any] = {"backend": "trtllm"}


def rank(**engine: int) -> BlockRank:
    """A rank with 8 blocks of 4 tokens."""
    return BlockRank(TRTLLM, **engine)


# E13, E14, E25


def test_fully_cached_prompt_computes_nothing_and_is_charged_a_decode_step() -> None:
    log = log_passes(fixed_worker(**TRT), trace((0, 8, 2, [1, 2]), (50, 8, 2, [1, 2])))
    log.check_passes(
        [
            (0.0, 10.0, [1, 8]),
            (10.0, 14.0, [0, 0, 0, 0, 1, 9]),
            (50.0, 54.0, [0, 0, 0, 0, 1, 8]),
            (54.0, 58.0, [0, 0, 0, 0, 1, 9]),
        ]
    )
    assert log.tokens == [[10.0, 14.0], [54.0, 58.0]]
    assert log.admissions() == [[(0.0, 0)], [(50.0, 8)]]


def test_request_waits_until_its_whole_generation_fits() -> None:
    log = log_passes(
        fixed_worker(num_gpu_blocks=9, **TRT),
        trace((0, 8, 20, [1, 2]), (0, 8, 20, [3, 4]), (0, 4, 4, [9])),
    )
    log.check_passes(
        [
            (0.0, 10.0, [1, 8, 0, 0, 0, 0, 0, 2, 12, 4]),
            *decodes(10.0, 86.0, 9, 2, 12, 4),
            (86.0, 96.0, [2, 12, 4]),
            *((96.0 + 4 * n, 100.0 + 4 * n, [0, 0, 0, 0, 2, 14 + 2 * n, 4]) for n in range(3)),
            *decodes(108.0, 172.0, 12),
        ]
    )
    assert log.tokens == [times((10, 86)), times((96, 172)), times((96, 108))]
    assert log.admissions() == [[(0.0, 0)], [(86.0, 0)], [(86.0, 0)]]


def test_output_is_cut_to_what_the_pool_holds_behind_the_prompt() -> None:
    log = log_passes(fixed_worker(num_gpu_blocks=8, **TRT), trace(long_prompt(10, 100)))
    assert log.tokens == [times((10, 94))]
    assert log.columns["requested_output_length"] == [100]
    assert log.columns["output_length"] == [22]


@pytest.mark.parametrize(
    ("output_tokens", "status", "end_ms"), [(1, "rejected", 0.0), (0, "completed", 10.0)]
)
def test_prompt_as_large_as_the_pool_runs_only_without_output(
    output_tokens: int, status: str, end_ms: float
) -> None:
    log = log_passes(fixed_worker(num_gpu_blocks=8, **TRT), trace(long_prompt(32, output_tokens)))
    assert log.columns["terminal_status"] == [status]
    assert log.columns["terminal_time_ms"] == [end_ms]
    assert log.tokens == [[]]


# Output limit


@pytest.mark.parametrize(
    ("prompt_tokens", "output_tokens", "max_model_len", "limit"),
    [
        (8, 3, 100, 3),
        (8, 50, 20, 12),
        (8, 50, 100, 24),
        (31, 50, 100, 1),
        (32, 50, 100, 50),  # left as it is, and rejected later
        (33, 5, 100, 5),
        (20, 5, 20, 0),
        (25, 5, 20, 0),
        (40, 70, 100, 60),
    ],
)
def test_output_limit(
    prompt_tokens: int, output_tokens: int, max_model_len: int, limit: int
) -> None:
    t = rank(max_model_len=max_model_len)
    assert TRTLLM.output_limit(t, t.engine, prompt_tokens, output_tokens) == limit


# Admission


def test_blocks_promised_to_running_requests_are_not_available() -> None:
    t = rank()
    first = t.submit(4, 20)  # 6 blocks at its end
    t.run_pass()
    large, small = t.submit(4, 8), t.submit(4, 4)  # 3 and 2 blocks
    t.run_pass()
    assert t.queued(RUNNING) == [first]
    t.cancel(large)
    t.run_pass()
    assert t.queued(RUNNING) == [first, small]


def test_requests_admitted_in_one_pass_count_with_all_they_are_promised() -> None:
    t = rank()
    seqs = [t.submit(4, 12), t.submit(4, 12), t.submit(4, 1)]
    t.run_pass()
    assert t.queued(RUNNING) == seqs[:2]
    assert active_blocks(t.rank) == 2


def test_only_cached_blocks_in_use_reduce_what_a_request_needs() -> None:
    t = rank()
    holder = t.submit(8, 8, [1, 2])  # 4 blocks at its end
    t.run_pass()
    sharer = t.submit(8, 16, [1, 2])  # 6 blocks, 2 of them shared
    t.run_pass()
    assert t.queued(RUNNING) == [holder, sharer]
    assert t.seqs[sharer].reused_tokens == 8


def test_cached_blocks_that_nobody_uses_do_not() -> None:
    t = rank()
    t.submit(8, 1, [1, 2])
    assert t.run_to_end() == [[1]]
    other = t.submit(4, 12)  # 4 blocks at its end
    t.run_pass()
    waits = t.submit(8, 12, [1, 2])  # 5 blocks: the 2 resident ones are counted as available
    t.run_pass()
    assert (t.queued(RUNNING), t.queued(WAITING)) == ([other], [waits])


def test_request_that_can_never_fit_is_rejected_behind_one_that_runs() -> None:
    t = rank(num_blocks=4)
    runs, rejected = t.submit(4, 4), t.submit(16, 4)
    t.run_pass()
    assert t.signals() == [runs, rejected]
    assert t.seqs[rejected].signal_end == END_REJECTED


def test_request_that_can_never_fit_is_rejected_when_it_heads_the_queue() -> None:
    t = rank()
    runs, waits, too_large = t.submit(4, 20), t.submit(4, 20), t.submit(33, 1)
    t.run_pass()
    assert (t.signals(), t.queued(WAITING)) == ([runs], [waits, too_large])


def test_nothing_is_ever_preempted() -> None:
    t = rank()
    for prompt_tokens, output_tokens in ((5, 9), (9, 3), (4, 4), (1, 20), (8, 0), (30, 9)):
        t.submit(prompt_tokens, output_tokens)
    t.run_to_end()
    assert t.rank.preemptions == 0
    assert active_blocks(t.rank) == 0


def test_prompt_in_chunks_keeps_the_promise_for_the_rest() -> None:
    t = rank(max_batched_tokens=8)
    first = t.submit(16, 8)  # 6 blocks at its end
    t.run_pass()
    t.engine.max_batched_tokens = 100
    waits = t.submit(4, 8)  # 3
    t.run_pass()
    assert (t.queued(RUNNING), t.queued(WAITING)) == ([first], [waits])


# Destinations


@pytest.mark.parametrize(
    ("prompt_tokens", "output_tokens", "fits"),
    [(31, 50, True), (32, 0, True), (32, 1, False), (33, 0, False)],
)
def test_destination_is_refused_if_it_cannot_run_to_its_end(
    prompt_tokens: int, output_tokens: int, fits: bool
) -> None:
    t = rank(role=ROLE_DECODE)
    assert (t.accept(prompt_tokens, output_tokens) != NONE) == fits


def test_destination_is_refused_if_the_model_is_too_short_for_it() -> None:
    assert rank(role=ROLE_DECODE, max_model_len=8).accept(8, 1) == NONE


def test_destination_takes_fresh_blocks_although_its_prompt_is_cached() -> None:
    t = rank(role=ROLE_DECODE)
    first, second = t.accept(8, 4, [1, 2]), t.accept(8, 4, [1, 2])
    assert t.reserve() == first
    t.activate(first)
    assert t.reserve() == second
    assert t.seqs[second].reserved_blocks == 2
    assert active_blocks(t.rank) == 4


def test_destination_waits_until_its_whole_generation_fits() -> None:
    t = rank(role=ROLE_DECODE)
    first, second = t.accept(8, 20), t.accept(4, 4)  # 7 and 2 blocks at their ends
    assert t.reserve() == first
    assert (active_blocks(t.rank), t.rank.promised_blocks) == (2, 5)
    assert t.reserve() == NONE
    t.cancel(first)
    assert (active_blocks(t.rank), t.rank.promised_blocks) == (0, 0)
    assert t.reserve() == second


def test_promise_to_an_activated_destination_is_kept_until_it_runs() -> None:
    t = rank(role=ROLE_DECODE, max_seqs=1)
    first, second = t.accept(8, 20), t.accept(4, 4)
    t.reserve()
    t.activate(first)
    assert t.rank.promised_blocks == 0
    assert t.reserve() == NONE
    t.run_pass()
    assert (t.queued(RUNNING), t.queued(PENDING)) == ([first], [second])


def test_activated_destination_runs_whatever_was_promised_to_others() -> None:
    t = rank(role=ROLE_DECODE)
    first, second = t.accept(8, 8), t.accept(8, 8)
    assert [t.reserve(), t.reserve()] == [first, second]
    t.activate(second)
    t.run_pass()
    assert t.queued(RUNNING) == [second]
    assert t.emitted() == [second]


def test_activated_destination_pays_for_its_first_token() -> None:
    t = rank(role=ROLE_DECODE)
    s = t.accept(8, 8)
    t.reserve()
    t.activate(s)
    work = t.run_pass()
    assert (t.emitted(), work.timed_decodes, work.end_ms) == ([s], 1, 4.0)


def test_decode_worker_takes_the_next_prompt_when_the_first_has_ended() -> None:
    spec = small_fleet(
        prefill=1,
        decode=1,
        engine={**TRT, "num_gpu_blocks": 8},
        decode_engine={"num_gpu_blocks": 9},
    )
    log = log_passes(spec, trace((0, 8, 20, [1, 2]), (0, 8, 20, [3, 4])))
    assert log.columns["source_held_ms"] == [10.0, 10.0]
    # 7 of 9 blocks are promised to the first until its end.
    assert log.columns["destination_reserved_ms"] == [10.0, 30.0]
    assert log.tokens == [[11.0 + n for n in range(20)], [31.0 + n for n in range(20)]]

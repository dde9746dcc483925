"""The worked examples of the vLLM rank engine, pass by pass (engine-vllm-trtllm.md §15).

Those of TensorRT-LLM (E13, E14, part of E25) are in ``test_trtllm.py``, those of speculative
decoding (E15, E16) in ``test_bursts.py``. Metrics are ``[prefills, their tokens, variance of
lengths, known prompt tokens, decodes, their KV, variance, queued prefills, tokens, variance, queued
decodes, KV, variance]``.
"""

from typing import Any

import pytest
from support.engine_examples import decodes, fixed_worker, long_prompt, times
from support.fleets import small_fleet
from support.pass_log import PassLog, Row, Span, log_passes, trace

from aisim_gym.errors import ReplayError
from aisim_gym.replay import Replay
from aisim_gym.spec import ReplaySpec

POLYNOMIAL = {"type": "polynomial"}


def polynomial_worker(**engine: Any) -> ReplaySpec:
    """A worker with 64 blocks of 64 tokens and the reference's timing model."""
    engine = {"num_gpu_blocks": 64, "block_size": 64, "timing_model": POLYNOMIAL, **engine}
    return small_fleet(workers=1, engine=engine)


def prefill_and_decode(**parts: Any) -> ReplaySpec:
    """One worker per role: 32 blocks, prefill 10 ms, decode 7 ms, transfer 1 ms per token."""
    engine = {"num_gpu_blocks": 32, **parts.pop("engine", {})}
    parts = {"transfer_gb_s": 1.0, "decode_ms": 7.0, **parts}
    return small_fleet(prefill=1, decode=1, engine=engine, **parts)


# E1, E2, E3: the polynomial model


@pytest.mark.parametrize("speedup_ratio", [1.0, 0.0])
def test_prefill_emits_the_first_token_and_each_decode_one_more(speedup_ratio: float) -> None:
    log = log_passes(
        polynomial_worker(speedup_ratio=speedup_ratio), trace((0, 100, 3, [1, 2]), block_size=64)
    )
    log.check_passes(
        [
            (0.0, 18.023974000000003, [1, 100]),
            (18.023974000000003, 25.080113000000004, [0, 0, 0, 0, 1, 101]),
            (25.080113000000004, 32.14912700000001, [0, 0, 0, 0, 1, 102]),
        ]
    )
    assert log.tokens == [[18.023974000000003, 25.080113000000004, 32.14912700000001]]
    assert log.admissions() == [[(0.0, 0)]]


def test_speed_up_ratios_multiply_for_decode() -> None:
    spec = polynomial_worker(speedup_ratio=2.0, decode_speedup_ratio=1.5)
    log = log_passes(spec, trace((0, 100, 3, [1, 2]), block_size=64))
    assert log.tokens == [[9.011987000000001, 11.364033000000001, 13.720371]]


def test_prefill_and_decode_times_of_a_pass_are_added() -> None:
    log = log_passes(
        polynomial_worker(), trace((0, 100, 3, [1, 2]), (1, 100, 3, [1, 3]), block_size=64)
    )
    log.check_passes(
        [
            (0.0, 18.023974000000003, [1, 100]),
            (18.023974000000003, 42.128682000000005, [1, 36, 0, 64, 1, 101]),
            (42.128682000000005, 50.482223000000005, [0, 0, 0, 0, 2, 203, 0.25]),
            (50.482223000000005, 57.55123700000001, [0, 0, 0, 0, 1, 102]),
        ]
    )
    assert log.tokens == [
        [18.023974000000003, 42.128682000000005, 50.482223000000005],
        [42.128682000000005, 50.482223000000005, 57.55123700000001],
    ]
    assert log.admissions() == [[(0.0, 0)], [(18.023974000000003, 64)]]


# E4, E5: the token budget


def test_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    log = log_passes(
        fixed_worker(max_num_batched_tokens=6), trace((0, 10, 2, [1, 2, 3]), (0, 7, 2, [4, 5]))
    )
    log.check_passes(
        [
            (0.0, 10.0, [1, 6, 0, 0, 0, 0, 0, 1, 7]),
            (10.0, 20.0, [2, 6, 2.25, 6]),
            (20.0, 34.0, [1, 5, 0, 2, 1, 11]),
            (34.0, 38.0, [0, 0, 0, 0, 1, 8]),
        ]
    )
    assert log.tokens == [[20.0, 34.0], [34.0, 38.0]]
    assert log.admissions() == [[(0.0, 0)], [(10.0, 0)]]


def test_prompt_that_must_not_be_chunked_blocks_those_behind_it() -> None:
    spec = fixed_worker(max_num_batched_tokens=8, enable_chunked_prefill=False)
    log = log_passes(spec, trace((0, 5, 3, [1, 2]), (0, 7, 2, [4, 5]), (0, 2, 1, [6])))
    log.check_passes(
        [
            (0.0, 10.0, [1, 5, 0, 0, 0, 0, 0, 2, 9, 6.25]),
            (10.0, 24.0, [1, 7, 0, 0, 1, 6, 0, 1, 2]),
            (24.0, 38.0, [1, 2, 0, 0, 2, 15, 0.25]),
        ]
    )
    assert log.tokens == [[10.0, 24.0, 38.0], [24.0, 38.0], [38.0]]
    assert log.admissions() == [[(0.0, 0)], [(10.0, 0)], [(24.0, 0)]]


# E6, E7: prefix hits and the size a prefill is timed with


def test_fully_cached_prompt_computes_its_last_block_again() -> None:
    log = log_passes(
        fixed_worker(), trace((0, 8, 2, [1, 2]), (50, 8, 2, [1, 2]), (100, 9, 2, [1, 2, 3]))
    )
    log.check_passes(
        [
            (0.0, 10.0, [1, 8]),
            (10.0, 14.0, [0, 0, 0, 0, 1, 9]),
            (50.0, 60.0, [1, 4, 0, 4]),
            (60.0, 64.0, [0, 0, 0, 0, 1, 9]),
            (100.0, 110.0, [1, 1, 0, 8]),
            (110.0, 114.0, [0, 0, 0, 0, 1, 10]),
        ]
    )
    assert log.admissions() == [[(0.0, 0)], [(50.0, 4)], [(100.0, 8)]]


def test_prefill_is_timed_with_the_floored_mean_of_its_prompts() -> None:
    spec = small_fleet(workers=1, engine={"num_gpu_blocks": 16, "timing_model": POLYNOMIAL})
    log = log_passes(spec, trace((0, 1, 1, [1]), (0, 2, 1, [2]), (0, 4, 1, [3])))
    log.check_passes([(0.0, 16.592536000000003, [3, 7, 14 / 9])])
    assert log.tokens == [[16.592536000000003]] * 3


# E8, E9: preemption

TIGHT_ROWS: tuple[Row, ...] = ((0, 8, 12, [1, 2]), (0, 9, 12, [3, 4, 5]))


def shared_decodes() -> list[Span]:
    """The passes of both requests before blocks run out at 26 ms."""
    return [
        (0.0, 10.0, [2, 17, 0.25]),
        *((10.0 + 4 * n, 14.0 + 4 * n, [0, 0, 0, 0, 2, 19 + 2 * n, 0.25]) for n in range(4)),
    ]


def test_lifo_preempts_the_last_request_which_computes_its_tokens_again() -> None:
    log = log_passes(fixed_worker(num_gpu_blocks=7), trace(*TIGHT_ROWS))
    log.check_passes(
        [
            *shared_decodes(),
            *decodes(26.0, 54.0, 13, 0, 0, 0, 1, 14),
            (54.0, 68.0, [1, 6, 0, 8]),
            *decodes(68.0, 92.0, 15),
        ]
    )
    assert log.tokens == [times((10, 54)), times((10, 26), (68, 92))]
    assert log.admissions() == [[(0.0, 0)], [(0.0, 0), (54.0, 8)]]


def test_fifo_preempts_the_first_request_even_the_one_that_needs_the_block() -> None:
    spec = fixed_worker(num_gpu_blocks=7, preemption_mode="fifo")
    log = log_passes(spec, trace(*TIGHT_ROWS))
    log.check_passes(
        [
            *shared_decodes(),
            *decodes(26.0, 54.0, 14, 0, 0, 0, 1, 13),
            *decodes(54.0, 82.0, 13),
        ]
    )
    assert log.tokens == [times((10, 26), (58, 82)), times((10, 54))]
    assert log.admissions() == [[(0.0, 0), (54.0, 8)], [(0.0, 0)]]


# E10, E11: requests that do not fit


def test_prompt_larger_than_the_pool_is_rejected_at_the_end_of_the_shared_pass() -> None:
    log = log_passes(fixed_worker(), trace(long_prompt(65, 2), (0, 8, 2, [50, 51])))
    log.check_passes([(0.0, 10.0, [1, 8]), (10.0, 14.0, [0, 0, 0, 0, 1, 9])])
    assert log.columns["terminal_status"] == ["rejected", "completed"]
    assert log.columns["terminal_time_ms"] == [10.0, 14.0]
    assert log.tokens == [[], [10.0, 14.0]]


def test_max_model_len_rejects_long_prompts_and_cuts_outputs() -> None:
    spec = fixed_worker(max_model_len=8)
    log = log_passes(spec, trace((0, 5, 9, [1, 2]), (0, 8, 2, [3, 4]), (0, 7, 5, [5, 6])))
    log.check_passes(
        [
            (0.0, 10.0, [2, 12, 1]),
            (10.0, 14.0, [0, 0, 0, 0, 1, 6]),
            (14.0, 18.0, [0, 0, 0, 0, 1, 7]),
        ]
    )
    assert log.columns["terminal_status"] == ["completed", "rejected", "completed"]
    assert log.tokens == [[10.0, 14.0, 18.0], [], [10.0]]


# E12, E19: data-parallel groups


def test_ranks_of_a_worker_share_the_longest_pass() -> None:
    spec = small_fleet(
        workers=1, dp_size=2, engine={"num_gpu_blocks": 16, "timing_model": POLYNOMIAL}
    )
    log = log_passes(spec, trace((0, 8, 2, [1, 2]), (0, 12, 3, [3, 4, 5]), (0, 6, 4, [7, 8])))
    ends = [0.0, 16.714071, 34.347820999999996, 50.67080899999999, 63.49694699999999]
    metrics: list[list[list[float]]] = [
        [[2, 14, 1], [0, 0, 0, 0, 2, 16, 1], [0, 0, 0, 0, 1, 8], [0, 0, 0, 0, 1, 9]],
        [[1, 12], [0, 0, 0, 0, 1, 13], [0, 0, 0, 0, 1, 14], []],
    ]
    for dp_rank in (0, 1):
        spans = list(zip(ends[:-1], ends[1:], metrics[dp_rank], strict=True))
        log.check_passes(spans, dp_rank=dp_rank)
    assert log.tokens == [ends[1:3], ends[1:4], ends[1:5]]


def test_prefill_interval_makes_new_prompts_wait_for_decodes() -> None:
    spec = fixed_worker(dp_size=2, prefill_schedule_interval=4)
    log = log_passes(
        spec, trace((0, 4, 8, [1]), (0, 4, 8, [2]), (5, 4, 3, [3]), (11, 5, 3, [4, 5]))
    )
    log.check_passes(
        [
            (0.0, 10.0, [1, 4]),
            *decodes(10.0, 22.0, 5, 1, 4),
            (22.0, 36.0, [1, 4, 0, 0, 1, 8]),
            (36.0, 40.0, [0, 0, 0, 0, 2, 14, 4]),
            (40.0, 44.0, [0, 0, 0, 0, 2, 16, 4]),
            (44.0, 48.0, [0, 0, 0, 0, 1, 11]),
        ]
    )
    log.check_passes(
        [
            (0.0, 10.0, [1, 4]),
            (10.0, 14.0, [0, 0, 0, 0, 1, 5]),
            *decodes(14.0, 22.0, 6, 1, 5),
            (22.0, 36.0, [1, 5, 0, 0, 1, 8]),
            (36.0, 40.0, [0, 0, 0, 0, 2, 15, 2.25]),
            (40.0, 44.0, [0, 0, 0, 0, 2, 17, 2.25]),
            (44.0, 48.0, [0, 0, 0, 0, 1, 11]),
        ],
        dp_rank=1,
    )
    early, late = [*times((10, 22)), *times((36, 48))], [36.0, 40.0, 44.0]
    assert log.tokens == [early, early, late, late]
    assert log.admissions()[2:] == [[(22.0, 0)], [(22.0, 0)]]


# E17, E18, E20


def test_max_num_seqs_lets_one_request_run_at_a_time() -> None:
    log = log_passes(
        fixed_worker(max_num_seqs=1), trace((0, 4, 3, [1]), (0, 5, 2, [2, 3]), (0, 6, 1, [4, 5]))
    )
    log.check_passes(
        [
            (0.0, 10.0, [1, 4, 0, 0, 0, 0, 0, 2, 11, 0.25]),
            *decodes(10.0, 18.0, 5, 2, 11, 0.25),
            (18.0, 28.0, [1, 5, 0, 0, 0, 0, 0, 1, 6]),
            *decodes(28.0, 32.0, 6, 1, 6),
            (32.0, 42.0, [1, 6]),
        ]
    )
    assert log.tokens == [[10.0, 14.0, 18.0], [28.0, 32.0], [42.0]]
    assert log.admissions() == [[(0.0, 0)], [(18.0, 0)], [(32.0, 0)]]


def test_request_without_output_ends_with_its_prefill_and_no_token() -> None:
    log = log_passes(fixed_worker(), trace((0, 5, 0, [1, 2]), (0, 4, 1, [3])))
    log.check_passes([(0.0, 10.0, [2, 9, 0.25])])
    assert log.columns["terminal_status"] == ["completed", "completed"]
    assert log.columns["terminal_time_ms"] == [10.0, 10.0]
    assert log.tokens == [[], [10.0]]


def test_deepest_block_of_the_oldest_prompt_is_evicted_first() -> None:
    prompts = ([1, 2, 9], [3, 4, 8], [5, 6, 7], [1, 2, 9], [3, 4, 8])
    log = log_passes(
        fixed_worker(num_gpu_blocks=6),
        trace(*((20.0 * n, 9, 1, prompt) for n, prompt in enumerate(prompts))),
    )
    metrics = [[1, 9], [1, 9], [1, 9], [1, 5, 0, 4], [1, 5, 0, 4]]
    log.check_passes([(20.0 * n, 20.0 * n + 10.0, metrics[n]) for n in range(5)])
    assert [reused for ((_, reused),) in log.admissions()] == [0, 0, 0, 4, 4]


# E21 to E24: prefill and decode workers


def handoff_times(log: PassLog, request: int) -> list[float]:
    """Return held, reserved, activated, decode admission, released, first and last token."""
    names = ["source_held_ms", "destination_reserved_ms", "destination_activated_ms"]
    names += ["decode_admit_ms", "source_released_ms", "first_token_ms", "last_token_ms"]
    return [log.columns[name][request] for name in names]


def test_handoff_reserves_transfers_and_activates_between_passes() -> None:
    log = log_passes(
        prefill_and_decode(),
        trace((0, 8, 3, [1, 2]), (1, 9, 3, [3, 4, 5]), (2, 10, 3, [6, 7, 8])),
    )
    log.check_passes([(0.0, 10.0, [1, 8]), (10.0, 20.0, [2, 19, 0.25])], "prefill")
    log.check_passes(
        [
            (18.0, 25.0, [0, 0, 0, 0, 1, 8]),
            (25.0, 32.0, [0, 0, 0, 0, 1, 9, 0, 0, 0, 0, 2, 19, 0.25]),
            (32.0, 39.0, [0, 0, 0, 0, 1, 10, 0, 0, 0, 0, 2, 19, 0.25]),
            (39.0, 46.0, [0, 0, 0, 0, 1, 9, 0, 0, 0, 0, 1, 10]),
            (46.0, 53.0, [0, 0, 0, 0, 2, 20]),
            (53.0, 60.0, [0, 0, 0, 0, 2, 22]),
            (60.0, 67.0, [0, 0, 0, 0, 1, 12]),
        ],
        "decode",
    )
    assert handoff_times(log, 0) == [10.0, 10.0, 18.0, 18.0, 20.0, 25.0, 39.0]
    assert handoff_times(log, 1) == [20.0, 25.0, 39.0, 39.0, 39.0, 46.0, 60.0]
    assert handoff_times(log, 2) == [20.0, 32.0, 46.0, 46.0, 46.0, 53.0, 67.0]


@pytest.mark.parametrize(
    ("mode", "activated_ms", "first_token_ms"),
    [("full_prompt", 81.0, 88.0), ("destination_missing", 74.0, 81.0)],
)
def test_transfer_counts_the_prompt_or_the_fresh_blocks_of_the_destination(
    mode: str, activated_ms: float, first_token_ms: float
) -> None:
    log = log_passes(
        prefill_and_decode(engine={"kv_transfer_timing_mode": mode}),
        trace((0, 8, 3, [1, 2]), (60, 11, 3, [1, 2, 5])),
    )
    held, reserved, activated, _, _, first_token, _ = handoff_times(log, 1)
    assert (held, reserved, activated, first_token) == (70.0, 70.0, activated_ms, first_token_ms)
    assert log.columns["reused_input_tokens"] == [0, 8]


def test_prompt_resident_at_the_destination_transfers_nothing() -> None:
    log = log_passes(
        prefill_and_decode(engine={"kv_transfer_timing_mode": "destination_missing"}),
        trace((0, 8, 3, [1, 2]), (60, 8, 3, [1, 2])),
    )
    assert handoff_times(log, 1)[:3] == [70.0, 70.0, 70.0]
    assert log.columns["reused_input_tokens"] == [0, 4]


TWO_PROMPTS: tuple[Row, ...] = (long_prompt(20, 3), (1, 9, 3, [3, 4, 5]))


def test_prompt_too_large_for_the_decode_worker_fails_when_its_source_is_held() -> None:
    spec = prefill_and_decode(transfer_gb_s=None, decode_engine={"num_gpu_blocks": 4})
    log = log_passes(spec, trace(*TWO_PROMPTS))
    assert log.columns["terminal_status"] == ["failed", "completed"]
    assert handoff_times(log, 0)[:2] == [10.0, None]
    assert log.columns["terminal_time_ms"][0] == 10.0
    assert handoff_times(log, 1)[:5] == [20.0] * 5
    assert log.tokens == [[], [27.0, 34.0, 41.0]]


def test_prompt_too_large_for_the_prefill_worker_is_rejected_in_an_empty_pass() -> None:
    spec = prefill_and_decode(transfer_gb_s=None, prefill_engine={"num_gpu_blocks": 4})
    log = log_passes(spec, trace(*TWO_PROMPTS))
    log.check_passes([(0.0, 0.0, []), (1.0, 11.0, [1, 9])], "prefill")
    assert log.columns["terminal_status"] == ["rejected", "completed"]
    assert log.columns["terminal_time_ms"][0] == 0.0


def test_destinations_wait_in_order_for_room_on_the_decode_worker() -> None:
    spec = prefill_and_decode(transfer_gb_s=None, decode_engine={"num_gpu_blocks": 6})
    log = log_passes(spec, trace((0, 12, 9, [1, 2, 3]), (1, 12, 5, [4, 5, 6]), (2, 4, 3, [9])))
    assert handoff_times(log, 0)[1] == 10.0
    for request in (1, 2):
        assert handoff_times(log, request)[:3] == [20.0, 73.0, 73.0]
    assert log.tokens == [
        [17.0 + 7.0 * n for n in range(9)],
        [80.0, 87.0, 94.0, 101.0, 108.0],
        [80.0, 87.0, 94.0],
    ]
    waiting = next(entry for entry in log.passes if entry.end_ms == 31.0)
    assert waiting.metrics == (0, 0, 0, 0, 1, 14, 0, 0, 0, 0, 2, 16, 16)


# E25: the pool limit


def test_last_token_needs_no_slot_in_the_pool() -> None:
    log = log_passes(fixed_worker(num_gpu_blocks=8), trace(long_prompt(10, 23)))
    assert log.tokens == [times((10, 98))]


def test_prompt_as_large_as_the_pool_can_emit_one_token() -> None:
    log = log_passes(fixed_worker(num_gpu_blocks=8), trace(long_prompt(32, 1)))
    assert log.tokens == [[10.0]]


@pytest.mark.parametrize(("input_tokens", "output_tokens"), [(10, 24), (32, 2)])
def test_output_that_outgrows_the_pool_ends_the_run(input_tokens: int, output_tokens: int) -> None:
    replay = Replay(fixed_worker(num_gpu_blocks=8), trace(long_prompt(input_tokens, output_tokens)))
    with pytest.raises(ReplayError, match="effect-free zero-duration pass with 1 in-flight"):
        replay.advance_to_tick()

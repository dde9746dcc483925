"""SGLang engines in a fleet: handoffs, transfers, pressure on the decode worker, ranks of a worker.

Rules: engine-sglang.md §13, §17; E16-E20 are the examples of its §18. Metrics are as in
``test_sglang.py``.
"""

from typing import Any

import pytest
from support.fleets import small_fleet
from support.pass_log import PassLog, Row, log_passes, trace

from aisim_gym.spec import ReplaySpec

DECODE_MS = 3.0


def pair(
    transfer_gb_s: float | None = None,
    prefill: dict[str, Any] | None = None,
    decode: dict[str, Any] | None = None,
) -> ReplaySpec:
    """A prefill and a decode worker with 16 pages of 4 tokens; 10 ms to prefill, 3 ms to decode."""
    return small_fleet(
        prefill=1,
        decode=1,
        decode_ms=DECODE_MS,
        transfer_gb_s=transfer_gb_s,
        engine={"backend": "sglang", "num_gpu_blocks": 16},
        prefill_engine=prefill,
        decode_engine=decode,
    )


def times(log: PassLog, name: str) -> list[float | None]:
    """Return a column of the records."""
    return log.columns[f"{name}_ms"]


LONG, SHORT = range(1, 4), range(1, 3)
"""Hash ids of the tokens 1..9 and 1..8."""


def test_destination_is_reserved_before_the_prompt_is_submitted() -> None:
    """E16."""
    log = log_passes(pair(), trace((0, 9, 3, LONG), (1, 8, 2, SHORT)))
    assert times(log, "destination_reserved") == [0.0, 1.0]
    assert times(log, "prefill_admit") == [0.0, 10.0]
    for name in ("source_held", "destination_activated", "source_released", "decode_admit"):
        assert times(log, name) == [10.0, 20.0]
    assert log.columns["reused_input_tokens"] == [0, 4]
    assert log.tokens == [[13.0, 16.0, 19.0], [23.0, 26.0]]
    log.check_passes([(0.0, 10.0, [1, 9]), (10.0, 20.0, [1, 4, 0, 4])], "prefill")
    log.check_passes(
        [
            (10.0, 13.0, [0, 0, 0, 0, 1, 9, 0, 0, 0, 0, 1, 8]),
            (13.0, 16.0, [0, 0, 0, 0, 1, 10, 0, 0, 0, 0, 1, 8]),
            (16.0, 19.0, [0, 0, 0, 0, 1, 11, 0, 0, 0, 0, 1, 8]),
            (20.0, 23.0, [0, 0, 0, 0, 1, 8]),
            (23.0, 26.0, [0, 0, 0, 0, 1, 9]),
        ],
        "decode",
    )


def test_transfers_are_independent_and_activation_waits_for_the_pass() -> None:
    """E17: 1 ms per token."""
    log = log_passes(pair(1.0), trace((0, 9, 3, LONG), (0, 8, 2, SHORT)))
    assert times(log, "source_held") == [10.0, 10.0]
    assert times(log, "destination_activated") == [21.0, 18.0]
    assert times(log, "source_released") == [21.0, 18.0]
    assert [tokens[0] for tokens in log.tokens] == [24.0, 21.0]
    assert times(log, "terminal_time") == [30.0, 24.0]
    log.check_passes(
        [
            (18.0, 21.0, [0, 0, 0, 0, 1, 8, 0, 0, 0, 0, 1, 9]),
            (21.0, 24.0, [0, 0, 0, 0, 2, 18]),
            (24.0, 27.0, [0, 0, 0, 0, 1, 10]),
            (27.0, 30.0, [0, 0, 0, 0, 1, 11]),
        ],
        "decode",
    )


def test_missing_tokens_are_whole_pages_that_the_destination_lacks() -> None:
    """E17 with ``destination_missing``: 12 tokens for 9, and 4 for 10 of which 8 are known."""
    rows: tuple[Row, ...] = ((0, 9, 3, LONG), (0, 8, 2, SHORT), (100, 10, 2, [1, 2, 9]))
    log = log_passes(pair(1.0, {"kv_transfer_timing_mode": "destination_missing"}), trace(*rows))
    assert times(log, "destination_activated") == [24.0, 18.0, 114.0]
    assert times(log, "source_held")[2] == 110.0
    assert [tokens[0] for tokens in log.tokens] == [27.0, 21.0, 117.0]


PRESSURE: tuple[Row, ...] = (
    (0, 9, 6, [1, 2, 3]),
    (0, 10, 3, [11, 12, 13]),
    (0, 4, 2, [21]),
    (0, 3, 2, [31]),
)


def test_pending_destinations_hold_up_a_retracted_request() -> None:
    """E18: the decode worker has 6 pages. The first request is retracted at 16."""
    log = log_passes(pair(decode={"num_gpu_blocks": 6}), trace(*PRESSURE))
    assert times(log, "destination_reserved") == [0.0, 0.0, 19.0, 19.0]
    log.check_passes(
        [(0.0, 10.0, [2, 19, 0.25]), (19.0, 29.0, [1, 4]), (29.0, 39.0, [1, 3])], "prefill"
    )
    decode_admissions = [
        [(entry["at_ms"], entry["reused_input_tokens"]) for entry in history if is_decode(entry)]
        for history in log.columns["admission_history"]
    ]
    assert decode_admissions == [[(10.0, 0), (19.0, 4)], [(10.0, 0)], [(29.0, 0)], [(39.0, 0)]]
    assert times(log, "terminal_time") == [28.0, 19.0, 35.0, 45.0]
    assert [tokens[0] for tokens in log.tokens[2:]] == [32.0, 42.0]
    # Retracted in the pass that ends at 19, it is computed again in no time and emits its token.
    assert log.tokens[0] == [13.0, 16.0, 19.0, 22.0, 25.0, 28.0]


def is_decode(entry: dict[str, Any]) -> bool:
    """Return whether an admission is one at the decode worker."""
    return bool(entry["pool"] == "decode")


def test_retracted_request_is_computed_again_in_no_time() -> None:
    """E18 without pending destinations: 7 pages."""
    log = log_passes(
        pair(decode={"num_gpu_blocks": 7}),
        trace((0, 11, 12, [1, 2, 3]), (0, 10, 12, [11, 12, 13])),
    )
    history = [entry for entry in log.columns["admission_history"][0] if is_decode(entry)]
    assert [(entry["at_ms"], entry["reused_input_tokens"]) for entry in history] == [
        (10.0, 0),
        (46.0, 4),
    ]
    assert times(log, "terminal_time") == [73.0, 46.0]


def test_ranks_of_a_worker_share_the_chunk_budget_and_the_longest_pass() -> None:
    """E19: 4 tokens per rank and pass."""
    spec = small_fleet(
        workers=1,
        dp_size=2,
        decode_ms=DECODE_MS,
        engine={"backend": "sglang", "num_gpu_blocks": 16, "sglang": {"chunked_prefill_size": 8}},
    )
    log = log_passes(spec, trace((0, 10, 3, [1, 2, 3]), (1, 11, 3, [11, 12, 13])))
    assert [tokens[0] for tokens in log.tokens] == [30.0, 40.0]
    assert times(log, "terminal_time") == [43.0, 46.0]
    passes = {(entry.dp_rank, entry.end_ms): entry for entry in log.passes}
    assert passes[1, 10.0].metrics == (0.0,) * 13
    assert [passes[rank, 40.0].wall_s for rank in (0, 1)] == [0.01, 0.01]
    assert passes[0, 40.0].metrics[4:6] == (1, 11)
    assert passes[1, 40.0].metrics[:4] == (1, 3, 0.0, 8)


@pytest.mark.parametrize(
    ("prefill", "decode", "rows", "outcomes"),
    [
        ({}, {}, [(0, 70, 3, range(18))], [("failed", 0.0)]),
        ({}, {"max_model_len": 16}, [(0, 20, 3, range(5))], [("failed", 0.0)]),
        ({"max_model_len": 16}, {}, [(0, 20, 3, range(5))], [("rejected", 0.0)]),
        (
            {"max_model_len": 16},
            {},
            [(0, 8, 2, [1, 2]), (1, 20, 2, range(10, 15)), (2, 8, 2, [21, 22])],
            [("completed", 16.0), ("rejected", 20.0), ("completed", 26.0)],
        ),
    ],
)
def test_prompts_that_do_not_fit_fail_at_the_decode_and_are_rejected_at_the_prefill_worker(
    prefill: dict[str, Any],
    decode: dict[str, Any],
    rows: list[Row],
    outcomes: list[tuple[str, float]],
) -> None:
    """E20."""
    log = log_passes(pair(prefill=prefill, decode=decode), trace(*rows))
    ends = zip(log.columns["terminal_status"], times(log, "terminal_time"), strict=True)
    assert list(ends) == outcomes

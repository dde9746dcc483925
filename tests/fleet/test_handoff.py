"""Handoffs of requests without output, and what a failed one leaves (replay-runtime.md §10)."""

import pytest
from support.audit import check_nothing_left
from support.fleets import run_small, small_fleet
from support.pass_log import trace


def test_known_prompt_without_output_is_prefilled_in_no_time() -> None:
    """Its prefill copy generates nothing: a full hit is enough (engine-vllm-trtllm.md §5.4)."""
    run = run_small(small_fleet(prefill=1, decode=1), trace((0, 8, 2, [1, 2]), (50, 8, 0, [1, 2])))
    assert run.column("reused_input_tokens") == [0, 8]
    assert run.column("source_held_ms") == [10.0, 50.0]
    assert run.column("output_length") == [2, 0]


def test_prompt_without_output_is_handed_over_before_others_of_its_pass() -> None:
    """Its end comes first among the signals (engine-vllm-trtllm.md §6.2)."""
    run = run_small(small_fleet(prefill=1, decode=2), trace((0, 8, 2, [1, 2]), (0, 8, 0, [3, 4])))
    assert run.column("source_held_ms") == [10.0, 10.0]
    assert run.column("decode_worker_idx") == [1, 0]


@pytest.mark.parametrize(
    ("backend", "outcomes"),
    [
        ("vllm", ["rejected", "rejected", "completed"]),
        ("trtllm", ["rejected", "rejected", "completed"]),
        ("sglang", ["rejected", "failed", "completed"]),  # asks the decode worker first
    ],
)
def test_prompts_refused_at_either_end_leave_nothing_behind(
    backend: str, outcomes: list[str]
) -> None:
    """Prompts of 10 tokens are too long for the prefill worker, of 17 for the decode worker."""
    spec = small_fleet(
        prefill=1,
        decode=1,
        engine={"backend": backend},
        prefill_engine={"max_model_len": 10},
        decode_engine={"num_gpu_blocks": 4},
    )
    run = run_small(spec, trace((0, 12, 3, range(3)), (1, 20, 3, range(5)), (2, 8, 3, [30, 31])))
    assert run.column("terminal_status") == outcomes
    check_nothing_left(run.replay.state)


@pytest.mark.parametrize("backend", ["vllm", "trtllm"])
def test_prompt_refused_by_the_decode_worker_frees_its_source(backend: str) -> None:
    spec = small_fleet(
        prefill=1,
        decode=1,
        engine={"backend": backend},
        prefill_engine={"num_gpu_blocks": 8},
        decode_engine={"num_gpu_blocks": 4},
    )
    run = run_small(
        spec,
        trace((0, 40, 3, range(10)), (1, 20, 3, range(20, 25)), (2, 8, 3, [30, 31])),
    )
    assert run.column("terminal_status") == ["rejected", "failed", "completed"]
    check_nothing_left(run.replay.state)

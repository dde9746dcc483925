"""Handoffs of requests without output, and what a failed one leaves (replay-runtime.md §10)."""

from support.audit import check_nothing_left
from support.fleets import run_small, small_fleet
from support.pass_log import trace


def test_known_prompt_without_output_is_prefilled_in_no_time() -> None:
    """Its prefill copy generates nothing either, so a full hit computes nothing again (§5.4)."""
    run = run_small(small_fleet(prefill=1, decode=1), trace((0, 8, 2, [1, 2]), (50, 8, 0, [1, 2])))
    assert run.column("reused_input_tokens") == [0, 8]
    assert run.column("source_held_ms") == [10.0, 50.0]
    assert run.column("output_length") == [2, 0]


def test_prompt_without_output_is_handed_over_before_others_of_its_pass() -> None:
    """Its end comes first among the signals (engine-vllm-trtllm.md §6.2)."""
    run = run_small(small_fleet(prefill=1, decode=2), trace((0, 8, 2, [1, 2]), (0, 8, 0, [3, 4])))
    assert run.column("source_held_ms") == [10.0, 10.0]
    assert run.column("decode_worker_idx") == [1, 0]


def test_refused_handoffs_leave_nothing_behind() -> None:
    spec = small_fleet(
        prefill=1,
        decode=1,
        prefill_engine={"num_gpu_blocks": 8},
        decode_engine={"num_gpu_blocks": 4},
    )
    run = run_small(
        spec,
        trace((0, 40, 3, range(10)), (1, 20, 3, range(20, 25)), (2, 8, 3, [30, 31])),
    )
    assert run.column("terminal_status") == ["rejected", "failed", "completed"]
    check_nothing_left(run.replay.state)

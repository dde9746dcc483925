"""The comparison finds every kind of difference, and says where the first one is.

Each case changes one thing in a golden file that passes unchanged.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.goldens import golden_path, write_changed

from aisim_gym.conformance import Golden, Outcome, Status, check_golden
from aisim_gym.conformance.difference import ABSENT, Difference, first_difference

SCALED = "disagg-vllm-scale-cancel-01"
SAMPLED = "agg-vllm-micro-01"
FAILED = "agg-vllm-error-04"
REFUSED = "disagg-vllm-error-03"
STUCK = "agg-vllm-error-02"

Content = dict[str, Any]
Change = Callable[[Content], object]


def check_changed(name: str, folder: Path, change: Change) -> Outcome:
    """Compare with a changed copy of a golden file."""
    return check_golden(write_changed(name, folder, change))


def assert_differs(name: str, folder: Path, change: Change, place: str, field: str) -> None:
    """Check that the first difference is where the change was made."""
    outcome = check_changed(name, folder, change)
    assert outcome.status is Status.FAILED
    assert outcome.difference is not None
    assert (outcome.difference.place, outcome.difference.field) == (place, field), str(outcome)


def put(value: Any, *keys: Any) -> Change:
    """Return a change that sets one item."""

    def change(content: Content) -> None:
        *parents, last = keys
        target: Any = content
        for key in parents:
            target = target[key]
        target[last] = value

    return change


def remove(*keys: Any) -> Change:
    """Return a change that removes one item."""

    def change(content: Content) -> None:
        *parents, last = keys
        target: Any = content
        for key in parents:
            target = target[key]
        del target[last]

    return change


def scale(factor: float, *keys: Any) -> Change:
    """Return a change that multiplies one number."""

    def change(content: Content) -> None:
        target: Any = content
        for key in keys:
            target = target[key]
        put(target * factor, *keys)(content)

    return change


@pytest.mark.parametrize("name", [SCALED, FAILED, REFUSED, STUCK])
def test_unchanged_copy_passes(name: str, tmp_path: Path) -> None:
    assert check_changed(name, tmp_path, lambda content: None).status is Status.PASSED


@pytest.mark.parametrize(
    ("change", "place", "field"),
    [
        (put(99, "snapshots", 2, "active_decode_count"), "tick 2", "active_decode_count"),
        (put([1, 0], "snapshots", 3, "active_decode_ids"), "tick 3", "active_decode_ids[0]"),
        (put(1, "snapshots", 1, "traffic", "extra"), "tick 1", "traffic.extra"),
        (remove("snapshots", 1, "traffic", "num_req"), "tick 1", "traffic.num_req"),
        (scale(1 + 3e-9, "snapshots", 2, "now_ms"), "tick 2", "now_ms"),
        (
            scale(1 + 3e-9, "snapshots", 1, "traffic", "avg_ttft_ms"),
            "tick 1",
            "traffic.avg_ttft_ms",
        ),
        (put(1000, "snapshots", 0, "now_ms"), "tick 0", "now_ms"),  # 1000.0: types count
        (
            put(7, "snapshots", 1, "decode_fpm_snapshots", 0, "num_decode_requests"),
            "tick 1",
            "decode_fpm_snapshots[0].num_decode_requests",
        ),
        (
            remove("snapshots", 1, "decode_fpm_snapshots", -1),
            "tick 1",
            "decode_fpm_snapshots[0]",
        ),
    ],
)
def test_changed_snapshot_is_found(change: Change, place: str, field: str, tmp_path: Path) -> None:
    assert_differs(SCALED, tmp_path, change, place, field)


def test_error_below_the_tolerance_is_none(tmp_path: Path) -> None:
    change = scale(1 + 1e-11, "snapshots", 1, "traffic", "avg_ttft_ms")
    assert check_changed(SCALED, tmp_path, change).status is Status.PASSED


def test_tick_that_was_not_recorded_is_found(tmp_path: Path) -> None:
    assert_differs(SCALED, tmp_path, remove("snapshots", -1), "run", "number of decisions")


def test_decision_that_was_not_recorded_is_found(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        del content["snapshots"][-1], content["scenario"]["ticks"]["decisions"][-1]

    assert_differs(SCALED, tmp_path, change, "run", "number of decisions")


def test_missing_tick_is_found(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        content["snapshots"].append(content["snapshots"][-1])

    assert_differs(SCALED, tmp_path, change, "run", "number of decisions")


def test_other_decision_changes_the_run(tmp_path: Path) -> None:
    change = put([1, 1, 1001.0], "scenario", "ticks", "decisions", 0)
    assert_differs(SCALED, tmp_path, change, "tick 1", "now_ms")


@pytest.mark.parametrize(
    ("change", "place", "field"),
    [
        (put(1, "per_request", "input_length", 4), "request row 4", "input_length"),
        (scale(1 + 3e-9, "per_request", "ttft_ms", 5), "request row 5", "ttft_ms"),
        (put(None, "per_request", "first_token_ms", 0), "request row 0", "first_token_ms"),
        (put("failed", "per_request", "terminal_status", 2), "request row 2", "terminal_status"),
        (remove("per_request", "itl_ms"), "request row 0", "itl_ms"),
        (put([1] * 1000, "per_request", "priority"), "request row 0", "priority"),
        (
            put(5, "per_request", "admission_history", 3, 1, "reused_input_tokens"),
            "request row 3",
            "admission_history[1].reused_input_tokens",
        ),
        (
            put(9, "per_request", "routing_history", 3, 0, "scheduler_id"),
            "request row 3",
            "routing_history[0].scheduler_id",
        ),
        (
            remove("per_request", "routing_history", 3, 1),
            "request row 3",
            "routing_history[1]",
        ),
    ],
)
def test_changed_record_is_found(change: Change, place: str, field: str, tmp_path: Path) -> None:
    assert_differs(SCALED, tmp_path, change, place, field)


def test_missing_record_is_found(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        for values in content["per_request"].values():
            del values[3]

    assert_differs(SCALED, tmp_path, change, "request row 3", "")


def test_histories_left_out_are_noted(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        del content["per_request"]["routing_history"], content["per_request"]["admission_history"]

    outcome = check_changed(SCALED, tmp_path, change)
    assert outcome.status is Status.PASSED
    assert "no histories recorded" in outcome.notes


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (put(1, "summary", "total_input_tokens"), "total_input_tokens"),
        (scale(1 + 3e-9, "summary", "gpu_hours"), "gpu_hours"),
        (scale(1.0021, "summary", "p90_itl_ms"), "p90_itl_ms"),  # the next bucket of the sketch
        (scale(1 + 3e-9, "summary", "std_e2e_latency_ms"), "std_e2e_latency_ms"),
        (remove("summary", "duration_ms"), "duration_ms"),
        (put(0.0, "summary", "goodput_request_throughput_rps"), "goodput_request_throughput_rps"),
        (put(0.0, "summary", "power_w"), "power_w"),
    ],
)
def test_changed_summary_is_found(change: Change, field: str, tmp_path: Path) -> None:
    assert_differs(SCALED, tmp_path, change, "summary", field)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (put("drain_settlement", "lifecycle_operations", 1, "cause"), "cause"),
        (
            put(7, "lifecycle_operations", 1, "transitions", 0, "worker_id"),
            "transitions[0].worker_id",
        ),
        (
            put([0], "lifecycle_operations", 1, "state_after_batch", "draining"),
            "state_after_batch.draining[0]",
        ),
        (
            put([3], "lifecycle_operations", 1, "topology_released_rows"),
            "topology_released_rows[0]",
        ),
        (remove("lifecycle_operations", slice(1, None)), ""),
    ],
)
def test_changed_lifecycle_operation_is_found(change: Change, field: str, tmp_path: Path) -> None:
    assert_differs(SCALED, tmp_path, change, "operation 1", field)


def test_missing_lifecycle_operation_is_found(tmp_path: Path) -> None:
    operations = Golden.read(golden_path(SCALED)).lifecycle_operations
    assert operations is not None

    def change(content: Content) -> None:
        content["lifecycle_operations"].append(operations[-1])

    assert_differs(SCALED, tmp_path, change, f"operation {len(operations)}", "")


@pytest.mark.parametrize(
    ("change", "place", "field"),
    [
        (
            put(3, "telemetry", "samples", 4, "traffic", "arriving_requests"),
            "sample 4",
            "traffic.arriving_requests",
        ),
        (
            put(9, "telemetry", "samples", 2, "decode_scheduler_metrics", 0, "active_blocks"),
            "sample 2",
            "decode_scheduler_metrics[0].active_blocks",
        ),
        (remove("telemetry", "samples", 3, "kind"), "sample 3", "kind"),
        (remove("telemetry", "samples", slice(5, None)), "sample 5", ""),
        (put(6.0, "telemetry", "sample_interval_ms"), "sample 1", "sampled_at_ms"),
    ],
)
def test_changed_telemetry_is_found(change: Change, place: str, field: str, tmp_path: Path) -> None:
    assert_differs(SAMPLED, tmp_path, change, place, field)


def test_run_recorded_without_telemetry_takes_no_samples(tmp_path: Path) -> None:
    path = write_changed(SAMPLED, tmp_path, remove("telemetry"))
    golden = Golden.read(path)
    assert golden.spec().telemetry_sample_interval_ms is None
    assert check_golden(golden).status is Status.PASSED


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        (FAILED, put("ValueError", "error", "type"), "error.type"),
        (FAILED, put("scripted failure", "error", "message"), "error.message"),
        (FAILED, put(None, "error"), "error"),
        (REFUSED, put("ValueError", "error", "type"), "error.type"),
        (STUCK, put("dead end", "error", "message"), "error.message"),
        (STUCK, put("OverflowError", "error", "type"), "error.type"),
        (SCALED, put({"type": "Exception", "message": ""}, "error"), "error"),
    ],
)
def test_changed_error_is_found(name: str, change: Change, field: str, tmp_path: Path) -> None:
    assert_differs(name, tmp_path, change, "run", field)


def test_failure_reads_as_tick_field_and_both_values(tmp_path: Path) -> None:
    change = put(99, "snapshots", 2, "active_decode_count")
    line = str(check_changed(SCALED, tmp_path, change))
    assert line.startswith(f"FAIL {SCALED}: tick 2 active_decode_count: got ")
    assert line.endswith(", expected 99")


def test_pass_reads_as_name_and_counts(tmp_path: Path) -> None:
    change = remove("per_request", "admission_history")
    golden = Golden.read(golden_path(SCALED))
    assert str(check_changed(SCALED, tmp_path, change)) == (
        f"PASS {SCALED} ({golden.num_ticks} ticks, {golden.num_requests} requests, "
        "no histories recorded)"
    )


def test_file_without_snapshots_compares_their_number(tmp_path: Path) -> None:
    def change(content: Content) -> None:
        content["snapshot_count"] = len(content.pop("snapshots"))
        del content["per_request"], content["telemetry"]

    outcome = check_changed(SCALED, tmp_path, change)
    assert outcome.status is Status.PASSED
    assert outcome.notes == ("no snapshots recorded", "no records recorded")

    def change_count(content: Content) -> None:
        change(content)
        content["snapshot_count"] += 1

    assert_differs(SCALED, tmp_path, change_count, "run", "number of decisions")


def test_scenario_that_is_not_replayed_is_skipped(tmp_path: Path) -> None:
    change = put("kv_router", "scenario", "replay", "router_mode")
    outcome = check_changed(SCALED, tmp_path, change)
    assert outcome.status is Status.SKIPPED
    assert "router_mode" in outcome.reason


@pytest.mark.parametrize(
    "change",
    [
        put(4, "scenario", "replay", "replay_concurrency"),
        put("s", "scenario", "workload", "rows", 1, "session_id"),
    ],
)
def test_other_pace_changes_the_run(change: Change, tmp_path: Path) -> None:
    def join(content: Content) -> None:
        content["scenario"]["workload"]["rows"][0]["session_id"] = "s"
        change(content)

    assert check_changed(SCALED, tmp_path, join).status is Status.FAILED


@pytest.mark.parametrize(
    ("got", "expected", "field"),
    [
        ({"a": 1}, {"a": 1.0}, "a"),
        ({"a": True}, {"a": 1}, "a"),
        ({"a": None}, {}, "a"),
        ({}, {"a": None}, "a"),
        ({"a": [1, 2]}, {"a": [1]}, "a[1]"),
        ({"a": {"b": [{"c": 1}]}}, {"a": {"b": [{"c": 2}]}}, "a.b[0].c"),
        ({"a": float("nan")}, {"a": 1.0}, "a"),
        ({"a": 1e-7}, {"a": 0.0}, "a"),
    ],
)
def test_first_difference_names_the_path(got: Any, expected: Any, field: str) -> None:
    difference = first_difference("here", got, expected)
    assert difference is not None
    assert difference.field == field


@pytest.mark.parametrize(
    ("name", "error", "agrees"),
    [
        ("var_prefill_length", 1e-10, True),
        ("std_ttft_ms", 1e-10, True),
        ("std_ttft_ms", 1e-8, False),
        ("ttft_ms", 1e-10, False),
    ],
)
def test_only_a_deviation_may_be_almost_zero(name: str, error: float, agrees: bool) -> None:
    assert (first_difference("here", {name: error}, {name: 0.0}) is None) is agrees


def test_absent_value_reads_as_nothing() -> None:
    assert str(Difference("tick 3", "a", ABSENT, 5)) == "tick 3 a: got nothing, expected 5"

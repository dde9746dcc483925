"""Scaling ticks: what a planner sees, what it may answer, when it is asked again.

Rules: replay-runtime.md §13 (metrics), §14 (snapshot and decision), §12 (traffic), §8 (lifecycle).
"""

import gzip
import json
import math
from typing import Any

import numpy as np
import pytest
from support.fleets import ScriptedTicks, arrivals, every, run_small, small_fleet
from support.goldens import golden_path

from aisim_gym.replay import (
    FleetDescription,
    Progress,
    Replay,
    ScalingDecision,
    ScalingLimits,
    ScalingSnapshot,
    TickRecord,
)
from aisim_gym.report import summarize

NONE_OF_THREE = {"target_prefill": None, "target_decode": None, "next_tick_ms": None}


def first_tick(at_ms: float = 5.0, **fleet: Any) -> Replay:
    """Return a replay that waits at its first tick; requests arrive every 10 ms."""
    fleet = fleet or {"workers": 1}
    replay = Replay(small_fleet(**fleet), arrivals(every(10.0, 5)), initial_tick_ms=at_ms)
    assert replay.advance_to_tick() is not None
    return replay


def counts(snapshot: ScalingSnapshot | None) -> tuple[int, int]:
    """Return (prefill, decode) workers that are active or starting."""
    assert snapshot is not None
    return snapshot.prefill.num_non_draining, snapshot.decode.num_non_draining


# When the first tick comes


@pytest.mark.parametrize("at_ms", [0.0, -0.0, -5.0, -1e300])
def test_first_tick_is_not_before_time_zero_and_sees_its_arrivals_placed(at_ms: float) -> None:
    run = run_small(small_fleet(workers=1), arrivals([0.0, 0.0]), [(at_ms, None, None)])
    assert run.tick_times() == [0.0]
    assert run.snapshots[0].traffic.num_req == 2
    assert run.column("first_admit_ms") == [0.0, 0.0]


@pytest.mark.parametrize("at_ms", [math.inf, -math.inf, math.nan, None])
def test_first_tick_that_is_not_finite_never_comes(at_ms: float | None) -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0]), initial_tick_ms=at_ms)
    assert replay.advance_to_tick() is None
    assert replay.is_done


def test_first_tick_of_the_spec_is_used_unless_another_is_given() -> None:
    spec = small_fleet(workers=1, ticks={"initial_tick_ms": 3.0})
    requests = arrivals([0.0])
    assert first_time(Replay(spec, requests)) == 3.0
    assert first_time(Replay(spec, requests, initial_tick_ms=4.0)) == 4.0


def first_time(replay: Replay) -> float | None:
    snapshot = replay.advance_to_tick()
    return None if snapshot is None else snapshot.now_ms


@pytest.mark.parametrize("at_ms", ["x", [1.0], 1j])
def test_first_tick_must_be_a_number(at_ms: Any) -> None:
    with pytest.raises(TypeError, match=r"must be real number, not|can't convert complex"):
        Replay(small_fleet(workers=1), arrivals([0.0]), initial_tick_ms=at_ms)


@pytest.mark.parametrize("at_ms", [7, np.float32(7.0), np.int64(7), True])
def test_first_tick_may_be_any_real_number(at_ms: Any) -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0]), initial_tick_ms=at_ms)
    assert first_time(replay) == float(at_ms)


# When the next tick comes


@pytest.mark.parametrize("next_ms", [5.0, 4.9, -1.0, math.inf, -math.inf, math.nan, None])
def test_next_tick_that_is_not_later_and_finite_ends_the_ticks(next_ms: float | None) -> None:
    replay = first_tick(5.0)
    replay.apply(ScalingDecision(None, None, next_ms))
    assert replay.advance_to_tick() is None
    assert replay.is_done
    assert summarize(replay).summary["completed_requests"] == 5


def test_next_tick_may_be_the_next_representable_time() -> None:
    replay = first_tick(5.0)
    replay.apply(ScalingDecision(None, None, math.nextafter(5.0, math.inf)))
    assert first_time(replay) == math.nextafter(5.0, math.inf)


def test_tick_after_the_workload_has_ended_never_comes() -> None:
    run = run_small(small_fleet(workers=1), arrivals([0.0]), [(5.0, None, None), (13.0, None, 4)])
    assert run.tick_times() == [5.0]
    assert run.summary["decode_worker_seconds"] == pytest.approx(0.012, rel=1e-12)


def test_ticks_count_from_zero() -> None:
    ticks = [(float(at_ms), None, None) for at_ms in (3, 4, 9)]
    run = run_small(small_fleet(workers=1), arrivals([0.0]), ticks)
    assert [snapshot.tick_ordinal for snapshot in run.snapshots] == [0, 1, 2]


# What may be answered


@pytest.mark.parametrize("missing", NONE_OF_THREE)
def test_mapping_needs_all_three_keys(missing: str) -> None:
    answer = {key: value for key, value in NONE_OF_THREE.items() if key != missing}
    with pytest.raises(KeyError) as raised:
        first_tick().apply(answer)
    assert str(raised.value) == f"'{missing}'"


def test_other_keys_of_a_mapping_are_ignored() -> None:
    replay = first_tick()
    replay.apply({"target_prefill": None, "target_decode": 2, "next_tick_ms": 6.0, "why": "load"})
    assert counts(replay.advance_to_tick()) == (0, 2)


@pytest.mark.parametrize("field", ["target_prefill", "target_decode"])
@pytest.mark.parametrize(
    ("target", "error", "text"),
    [
        (-1, OverflowError, "can't convert negative int to unsigned"),
        (2**64, OverflowError, "int too big to convert"),
        (1_000_001, OverflowError, "expected at most 1000000"),
        (1.0, TypeError, "'float' object cannot be interpreted as an integer"),
        ("2", TypeError, "'str' object cannot be interpreted as an integer"),
    ],
)
def test_target_must_be_a_count(field: str, target: Any, error: type[Exception], text: str) -> None:
    """Also where it is ignored: the prefill target of an aggregated fleet."""
    with pytest.raises(error, match=text):
        first_tick().apply({**NONE_OF_THREE, field: target})


def test_next_tick_must_be_a_number() -> None:
    with pytest.raises(TypeError, match="must be real number, not str"):
        first_tick().apply({**NONE_OF_THREE, "next_tick_ms": "soon"})


def test_refused_answer_leaves_the_tick_waiting() -> None:
    replay = first_tick()
    with pytest.raises(OverflowError):
        replay.apply(ScalingDecision(None, -1, 6.0))
    assert replay.snapshot is not None
    replay.apply(ScalingDecision(None, 3, 6.0))
    assert counts(replay.advance_to_tick()) == (0, 3)


@pytest.mark.parametrize("target", [True, np.int32(1), np.uint8(1), np.array(1)])
def test_target_may_be_any_integer(target: Any) -> None:
    replay = first_tick(workers=3)
    replay.apply(ScalingDecision(None, target, 6.0))
    assert counts(replay.advance_to_tick()) == (0, 1)


def test_no_target_leaves_a_pool_as_it_is() -> None:
    replay = first_tick(prefill=2, decode=3)
    replay.apply(ScalingDecision(4, None, 6.0))
    assert counts(replay.advance_to_tick()) == (4, 3)
    replay.apply(ScalingDecision(None, 1, 7.0))
    assert counts(replay.advance_to_tick()) == (4, 1)


def test_aggregated_fleet_ignores_the_prefill_target() -> None:
    replay = first_tick(workers=2)
    replay.apply(ScalingDecision(7, None, 6.0))
    assert counts(replay.advance_to_tick()) == (0, 2)


# The policy


class TickRecorder:
    """A policy that keeps how it was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        self.calls.append(("reset", fleet, seed))

    def initial_tick_ms(self) -> float:
        self.calls.append(("initial_tick_ms",))
        return 5.0

    def on_tick(self, snapshot: ScalingSnapshot) -> ScalingDecision:
        self.calls.append(("on_tick", snapshot.now_ms))
        return ScalingDecision(None, None, snapshot.now_ms + 20.0)


def test_policy_is_reset_with_fleet_limits_and_seed_then_asked_tick_by_tick() -> None:
    policy, limits = TickRecorder(), ScalingLimits(tick_s=0.02, max_workers=4)
    Replay.run(small_fleet(workers=1), policy, arrivals(every(10.0, 5)), limits=limits, seed=3)
    (reset, fleet, seed), *rest = policy.calls
    assert (reset, seed, fleet.limits, fleet.mode) == ("reset", 3, limits, "agg")
    assert rest == [("initial_tick_ms",), ("on_tick", 5.0), ("on_tick", 25.0), ("on_tick", 45.0)]


@pytest.mark.parametrize("method", ["reset", "initial_tick_ms", "on_tick"])
def test_what_a_policy_raises_passes_through(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class PolicyError(Exception):
        pass

    def fail(*_: Any) -> None:
        raise PolicyError("my planner broke")

    policy = TickRecorder()
    monkeypatch.setattr(policy, method, fail)
    with pytest.raises(PolicyError, match=r"^my planner broke$"):
        Replay.run(small_fleet(workers=1), policy, arrivals([0.0]))


# The snapshot


@pytest.mark.parametrize("name", ["agg-vllm-micro-01", "disagg-vllm-micro-01"])
def test_dict_has_the_keys_of_the_reference_in_its_order(name: str) -> None:
    with gzip.open(golden_path(name), "rt", encoding="utf-8") as file:
        recorded = json.load(file)["snapshots"]
    expected = next(entry for entry in recorded if entry["decode_fpm_snapshots"])
    fleet = {"workers": 1} if name.startswith("agg") else {"prefill": 1, "decode": 1}
    snapshot = first_tick(22.0, **fleet).snapshot
    assert snapshot is not None
    ours = snapshot.to_dict()
    assert list(ours) == list(expected)
    assert list(ours["traffic"]) == list(expected["traffic"])
    (metrics,) = ours["decode_fpm_snapshots"]
    assert list(metrics) == list(expected["decode_fpm_snapshots"][0])
    assert {key: type(value) for key, value in metrics.items()} == {
        key: type(value) for key, value in expected["decode_fpm_snapshots"][0].items()
    }


def test_dict_holds_plain_json() -> None:
    snapshot = first_tick(22.0, prefill=2, decode=2, startup_ms=10.0).snapshot
    assert snapshot is not None
    assert json.loads(json.dumps(snapshot.to_dict())) == snapshot.to_dict()


def test_dict_counts_workers_by_state() -> None:
    ticks = [(3.0, None, 5), (4.0, None, 1), (5.0, None, 2), (6.0, None, None)]
    spec = small_fleet(workers=2, startup_ms=30.0)
    run = run_small(spec, arrivals([0.0, 0.0, 50.0]), ticks)
    seen = run.snapshots[3].to_dict()
    assert seen["active_decode_ids"] == [0]
    assert seen["starting_decode_ids"] == [5]
    assert seen["draining_decode_ids"] == [1]
    assert seen["non_draining_decode_count"] == 2
    assert seen["total_decode_count"] == 3
    assert seen["active_prefill_ids"] == seen["starting_prefill_ids"] == []


def test_looking_at_a_tick_changes_nothing() -> None:
    replay = first_tick(22.0)
    looked_at = replay.snapshot
    assert looked_at is not None
    assert replay.snapshot is looked_at
    fork = replay.fork()
    assert fork.snapshot == looked_at


# Traffic


def test_traffic_counts_since_the_last_tick() -> None:
    ticks = [(15.0, None, None), (35.0, None, None), (37.0, None, None)]
    run = run_small(small_fleet(workers=1), arrivals(every(10.0, 5)), ticks)
    traffic = [snapshot.traffic for snapshot in run.snapshots]
    assert [window.duration_s for window in traffic] == [0.015, 0.02, 0.002]
    assert [window.num_req for window in traffic] == [2, 2, 0]
    assert [window.shape_count for window in traffic] == [0, 1, 0]
    assert (traffic[1].avg_isl, traffic[1].avg_osl) == (8.0, 3.0)
    assert (traffic[1].avg_ttft_ms, traffic[1].avg_itl_ms) == (10.0, 11.0)
    assert (traffic[2].avg_ttft_ms, traffic[2].avg_accept_length) == (0.0, None)


def test_accept_length_counts_decode_requests_of_finished_passes() -> None:
    run = run_small(small_fleet(workers=1), arrivals([0.0, 0.0]), [(11.0, None, None)])
    traffic = run.snapshots[0].traffic
    assert (traffic.accept_length_forward_count, traffic.avg_accept_length) == (2, 1.0)


def test_first_window_starts_at_time_zero() -> None:
    run = run_small(small_fleet(workers=1), arrivals([100.0]), [(101.0, None, None)])
    assert run.snapshots[0].traffic.duration_s == 0.101


# Forward-pass metrics


def seen_metrics(*ticks: float, workers: int = 1, at_ms: list[float]) -> list[list[float]]:
    """Return the wall times of the metrics seen at each tick."""
    run = run_small(
        small_fleet(workers=workers), arrivals(at_ms), [(tick, None, None) for tick in ticks]
    )
    return [[fpm.wall_time for fpm in snapshot.decode.fpms] for snapshot in run.snapshots]


def test_only_the_latest_pass_of_a_rank_is_shown_and_only_once() -> None:
    assert seen_metrics(11.5, 11.6, 12.0, at_ms=[0.0, 100.0]) == [[0.001], [], [0.001]]


def test_pass_in_flight_is_not_shown() -> None:
    assert seen_metrics(9.0, 10.5, at_ms=[0.0]) == [[], [0.01]]


def test_idle_record_comes_each_full_second_since_the_last_pass() -> None:
    ticks = (1011.9, 1012.0, 2011.0, 2012.0, 4500.0, 5012.0)
    metrics = seen_metrics(*ticks, at_ms=[0.0, 9000.0])
    # Passes end at 12. The record at 4500 counts as published at 4012.
    assert metrics == [[0.001], [0.0], [], [0.0], [0.0], [0.0]]


def test_idle_second_of_an_added_worker_begins_with_its_activation() -> None:
    ticks = [(100.0, None, 2), (1099.0, None, None), (1100.0, None, None)]
    run = run_small(small_fleet(workers=1), arrivals([0.0, 9000.0]), ticks)
    seen = [[fpm.worker_id for fpm in snapshot.decode.fpms] for snapshot in run.snapshots]
    assert seen == [[0], [0], [1]]


def test_passes_of_draining_workers_are_not_shown() -> None:
    ticks = [(5.0, None, 1), (11.5, None, None)]
    run = run_small(small_fleet(workers=2), arrivals([0.0, 0.0]), ticks)
    second = run.snapshots[1].decode
    assert second.draining_ids == (1,)
    assert [fpm.worker_id for fpm in second.fpms] == [0]


def test_starting_workers_have_no_metrics() -> None:
    ticks = [(5.0, None, 2), (2000.0, None, None)]
    run = run_small(small_fleet(workers=1, startup_ms=5000.0), arrivals([0.0, 9000.0]), ticks)
    assert [fpm.worker_id for fpm in run.snapshots[1].decode.fpms] == [0]


def test_metrics_come_by_worker_then_rank() -> None:
    run = run_small(small_fleet(workers=2, dp_size=2), arrivals([0.0, 0.0]), [(10.5, None, None)])
    metrics = run.snapshots[0].decode.fpms
    assert [(fpm.worker_id, fpm.dp_rank) for fpm in metrics] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [fpm.num_prefill_requests for fpm in metrics] == [1, 0, 1, 0]


# Lifecycle operations and the tick history


def test_worker_added_without_startup_is_ready_in_the_operation_that_adds_it() -> None:
    run = run_small(small_fleet(workers=1), arrivals([0.0]), [(5.0, None, 2)])
    (operation,) = run.operations
    assert operation["transitions"] == [
        {
            "worker_id": 1,
            "transition": "worker_ready",
            "prior_state": None,
            "state": "active",
            "origin_operation_ordinal": 0,
        }
    ]
    assert operation["state_after_batch"] == {"active": [0, 1], "starting": [], "draining": []}


def test_prefill_is_scaled_before_decode_in_operations_of_one_tick() -> None:
    ticks = [(4.0, None, None), (5.0, 2, 3)]
    run = run_small(small_fleet(prefill=1, decode=1), arrivals([0.0]), ticks)
    assert [
        (entry["pool"], entry["planner_tick_ordinal"], entry["operation_ordinal"])
        for entry in run.operations
    ] == [("prefill", 1, 0), ("decode", 1, 1)]


def test_answer_that_changes_nothing_is_no_operation() -> None:
    ticks = [(5.0, 1, 1), (6.0, None, None), (7.0, 2, 1)]
    run = run_small(small_fleet(prefill=1, decode=1), arrivals([0.0]), ticks)
    assert [entry["at_ms"] for entry in run.operations] == [7.0]


def test_ready_and_drained_workers_are_recorded_after_the_last_tick() -> None:
    spec = small_fleet(workers=2, startup_ms=30.0)
    run = run_small(spec, arrivals([0.0, 0.0, 60.0]), [(5.0, None, 1), (6.0, None, 2)])
    assert [(entry["at_ms"], entry["cause"]) for entry in run.operations] == [
        (5.0, "planner_scale"),
        (6.0, "planner_scale"),
        (12.0, "drain_settlement"),
        (36.0, "worker_ready_event"),
    ]


def test_history_has_a_line_per_answered_tick() -> None:
    policy = ScriptedTicks([(5.0, 2, None), (12.5, None, 3)])
    replay = Replay.run(small_fleet(prefill=1, decode=1), policy, arrivals([0.0, 20.0]))
    assert [type(record) for record in replay.ticks] == [TickRecord] * 2
    first, second = replay.ticks
    assert (first.tick_ordinal, first.now_ms, first.num_req, first.completed) == (0, 5.0, 1, 0)
    assert (first.target_prefill, first.target_decode, first.next_tick_ms) == (2, None, 12.5)
    assert (second.active_prefill, second.active_decode, second.next_tick_ms) == (2, 1, None)


def test_nothing_is_recorded_without_planner_details() -> None:
    spec = small_fleet(workers=1, capture_planner_details=False)
    run = run_small(spec, arrivals([0.0]), [(5.0, None, 3)])
    assert run.operations == []
    assert run.replay.ticks == []


def test_nothing_is_recorded_without_ticks() -> None:
    assert run_small(small_fleet(workers=1), arrivals([0.0])).operations == []


# Progress and time


def test_progress_is_told_up_to_the_last_arrival() -> None:
    told: list[Progress] = []
    Replay(small_fleet(workers=1), arrivals(every(10.0, 5))).advance_to_tick(told.append)
    assert (told[-1].arrived, told[-1].total) == (5, 5)


def test_clock_stands_at_the_tick_then_at_the_last_event() -> None:
    replay = first_tick(7.25)
    assert (replay.now_ms, replay.is_done) == (7.25, False)
    replay.apply(ScalingDecision())
    replay.advance_to_tick()
    assert (replay.now_ms, replay.is_done) == (56.0, True)

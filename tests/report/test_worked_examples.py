"""The worked examples of the reference, as seen in reports (replay-runtime.md §20, 1 to 19)."""

from typing import Any

import pytest
from support.fleets import arrivals, every, run_small, small_fleet

from aisim_gym.errors import ReplayError


def transitions(operation: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return (transition, worker, origin) of each transition."""
    return [
        (entry["transition"], entry["worker_id"], entry["origin_operation_ordinal"])
        for entry in operation["transitions"]
    ]


def causes(operations: list[dict[str, Any]]) -> list[tuple[float, str, int | None]]:
    """Return (time, cause, origin) of each operation."""
    return [
        (entry["at_ms"], entry["cause"], entry["origin_operation_ordinal"]) for entry in operations
    ]


# Example 1


def test_timeline_of_an_aggregated_worker() -> None:
    run = run_small(small_fleet(workers=1), arrivals(every(5.0, 4)))
    assert run.column("first_token_ms") == [10.0, 21.0, 21.0, 32.0]
    assert run.column("terminal_time_ms") == [32.0, 33.0, 33.0, 34.0]
    assert run.column("first_admit_ms") == [0.0, 10.0, 10.0, 21.0]
    assert run.column("ttft_ms") == [10.0, 16.0, 11.0, 17.0]


def test_summary_of_an_aggregated_worker() -> None:
    summary = run_small(small_fleet(workers=1), arrivals(every(5.0, 4))).summary
    assert summary["duration_ms"] == 34.0
    assert summary["decode_worker_seconds"] == 0.034
    assert summary["gpu_hours"] == 0.034 / 3600
    assert (summary["mean_ttft_ms"], summary["median_ttft_ms"]) == (13.5, 16.0)
    assert summary["std_ttft_ms"] == pytest.approx(3.0413812651491097, rel=1e-13)
    assert summary["mean_itl_ms"] == 6.0
    assert summary["median_itl_ms"] == pytest.approx(10.990159692286054, rel=1e-12)


# Example 2


def test_worker_added_with_startup_serves_from_the_instant_it_is_ready() -> None:
    run = run_small(
        small_fleet(workers=1, startup_ms=30.0), arrivals(every(10.0, 12)), [(20.0, None, 2)]
    )
    assert causes(run.operations) == [
        (20.0, "planner_scale", None),
        (50.0, "worker_ready_event", 0),
    ]
    assert transitions(run.operations[0]) == [("worker_starting", 1, 0)]
    assert transitions(run.operations[1]) == [("worker_ready", 1, 0)]
    assert run.column("decode_worker_idx")[:6] == [0, 0, 0, 0, 0, 1]
    assert run.summary["decode_worker_seconds"] == pytest.approx(0.224, rel=1e-12)


def test_tick_sees_arrivals_of_its_instant_and_only_finished_passes() -> None:
    run = run_small(
        small_fleet(workers=1, startup_ms=30.0), arrivals(every(10.0, 12)), [(20.0, None, 2)]
    )
    (snapshot,) = run.snapshots
    assert snapshot.traffic.num_req == 3
    assert [fpm.wall_time for fpm in snapshot.decode.fpms] == [0.01]


# Example 3


def test_scale_down_cancels_startups_before_it_drains() -> None:
    ticks = [(20.0, None, 4), (25.0, None, 1), (26.0, None, 3), (60.0, None, 2)]
    run = run_small(small_fleet(workers=2, startup_ms=30.0), arrivals(every(10.0, 12)), ticks)
    at_25, at_26 = run.operations[1], run.operations[2]
    assert transitions(at_25) == [
        ("worker_draining", 1, 1),
        ("worker_removed", 3, 0),
        ("worker_removed", 2, 0),
        ("worker_removed", 1, 1),
    ]
    assert [entry.get("reason") for entry in at_25["transitions"]] == [
        None,
        "startup_cancelled",
        "startup_cancelled",
        None,
    ]
    assert at_25["origin_operation_ordinal"] == 0
    assert transitions(at_26) == [("worker_starting", 4, 2), ("worker_starting", 5, 2)]
    assert causes(run.operations[3:]) == [
        (56.0, "worker_ready_event", 2),
        (56.0, "worker_ready_event", 2),
        (60.0, "planner_scale", None),
    ]
    assert transitions(run.operations[5]) == [("worker_draining", 5, 5), ("worker_removed", 5, 5)]
    assert run.summary["decode_worker_seconds"] == pytest.approx(0.287, rel=1e-12)


def test_scale_events_count_started_cancelled_and_drained_workers() -> None:
    ticks = [(20.0, None, 4), (25.0, None, 1), (26.0, None, 3), (60.0, None, 2)]
    run = run_small(small_fleet(workers=2, startup_ms=30.0), arrivals(every(10.0, 12)), ticks)
    assert run.report.scale_events == (4, 2, 2)


# Example 4


def test_draining_worker_is_paid_until_its_last_request_ends() -> None:
    run = run_small(small_fleet(workers=2), arrivals(every(4.0, 4)), [(13.0, None, 1)])
    assert run.column("decode_worker_idx") == [0, 1, 0, 1]
    assert causes(run.operations) == [(13.0, "planner_scale", None), (27.0, "drain_settlement", 0)]
    assert transitions(run.operations[1]) == [("worker_removed", 1, 0)]
    assert run.summary["decode_worker_seconds"] == pytest.approx(0.054, rel=1e-12)


# Example 5


def test_idle_record_appears_once_per_idle_second() -> None:
    ticks = [(400.0 * index, None, None) for index in range(1, 7)]
    run = run_small(small_fleet(workers=2), arrivals(every(2000.0, 3)), ticks)
    seen = [
        [(fpm.worker_id, fpm.wall_time > 0.0) for fpm in snapshot.decode.fpms]
        for snapshot in run.snapshots
    ]
    assert seen == [
        [(0, True)],
        [],
        [(0, False), (1, False)],
        [],
        [(1, False)],
        [(0, False), (1, True)],
    ]


def test_idle_record_overwrites_the_passes_of_a_long_window() -> None:
    run = run_small(small_fleet(workers=1), arrivals(every(4000.0, 2)), [(3000.0, None, None)])
    assert [fpm.wall_time for fpm in run.snapshots[0].decode.fpms] == [0.0]


def test_rank_without_work_reports_the_wall_time_of_the_group_pass() -> None:
    run = run_small(small_fleet(workers=1, dp_size=2), arrivals([0.0, 20.0]), [(11.5, None, None)])
    busy, idle = run.snapshots[0].decode.fpms
    assert (busy.dp_rank, busy.wall_time, busy.num_decode_requests) == (0, 0.001, 1)
    assert (idle.dp_rank, idle.wall_time, idle.num_decode_requests) == (1, 0.001, 0)


# Example 6


def test_tick_at_the_last_completion_is_dropped() -> None:
    ticks = [(15.0 * index, None, None) for index in range(1, 6)]
    run = run_small(small_fleet(workers=1), arrivals(every(10.0, 4)), ticks)
    assert run.column("terminal_time_ms")[-1] == 45.0
    assert run.tick_times() == [15.0, 30.0]


# Example 7


def test_arrival_at_a_pass_end_misses_the_next_pass_of_a_prefill_pool() -> None:
    run = run_small(small_fleet(prefill=1, decode=1), arrivals(every(5.0, 3)))
    assert run.column("prefill_admit_ms") == [0.0, 10.0, 20.0]


def test_arrival_at_a_pass_end_joins_the_next_pass_of_an_aggregated_worker() -> None:
    run = run_small(small_fleet(workers=1), arrivals(every(5.0, 3), output_tokens=1))
    assert run.column("first_admit_ms") == [0.0, 10.0, 10.0]


# Example 8


def test_disaggregated_tick_acts_before_arrivals_of_its_instant_are_routed() -> None:
    run = run_small(small_fleet(prefill=1, decode=1), arrivals(every(10.0, 3)), [(20.0, 2, 2)])
    assert run.snapshots[0].traffic.num_req == 3
    assert run.column("prefill_worker_idx") == [0, 0, 1]
    assert run.column("decode_worker_idx")[2] == 1


def test_tick_at_time_zero_acts_after_arrivals_are_routed() -> None:
    run = run_small(small_fleet(prefill=1, decode=1), arrivals([0.0] * 4), [(0.0, 2, 2)])
    assert run.column("prefill_worker_idx") == [0, 0, 0, 0]
    assert run.column("decode_worker_idx") == [0, 1, 0, 1]


# Example 9


def test_draining_workers_finish_their_handoffs() -> None:
    run = run_small(
        small_fleet(prefill=2, decode=2, transfer_gb_s=1.0),
        arrivals(every(3.0, 3)),
        [(5.0, 1, None), (14.0, None, 1)],
    )
    assert run.column("source_held_ms")[1] == 13.0
    assert run.column("source_released_ms")[1] == 21.0
    assert run.column("terminal_time_ms")[1] == 24.0
    assert [(entry["at_ms"], entry["pool"]) for entry in run.operations] == [
        (5.0, "prefill"),
        (14.0, "decode"),
        (21.0, "prefill"),
        (24.0, "decode"),
    ]
    assert [entry["operation_ordinal"] for entry in run.operations] == [0, 1, 2, 3]


# Example 10


def test_aggregated_fleet_may_be_empty_between_arrivals() -> None:
    ticks = [(13.0, None, 0), (14.0, None, 1)]
    run = run_small(small_fleet(workers=2), arrivals(every(20.0, 3)), ticks)
    assert transitions(run.operations[0]) == [
        ("worker_draining", 1, 0),
        ("worker_draining", 0, 0),
        ("worker_removed", 0, 0),
        ("worker_removed", 1, 0),
    ]
    assert run.column("decode_worker_idx") == [0, 2, 2]


def test_arrival_at_an_empty_aggregated_fleet_ends_the_run() -> None:
    with pytest.raises(ReplayError, match="no active workers for round-robin placement"):
        run_small(small_fleet(workers=2), arrivals(every(20.0, 3)), [(13.0, None, 0)])


def test_busy_workers_finish_although_the_target_is_zero() -> None:
    run = run_small(small_fleet(workers=2), arrivals([0.0, 1.0]), [(5.0, None, 0)])
    assert run.column("terminal_status") == ["completed", "completed"]


# Example 11


def test_requests_wait_in_front_of_an_empty_prefill_pool() -> None:
    run = run_small(
        small_fleet(prefill=1, decode=1),
        arrivals(every(12.0, 3)),
        [(5.0, 0, None), (40.0, 1, None)],
    )
    assert run.column("prefill_admit_ms") == [0.0, 40.0, 40.0]
    assert run.column("prefill_worker_idx") == [0, 1, 1]
    route = run.column("routing_history")[1][0]
    assert (route["outcome"], route["queue_wait_ms"]) == ("immediate", 0.0)
    assert run.summary["prefill_worker_seconds"] == pytest.approx(0.023, rel=1e-12)


def test_sources_are_held_while_the_decode_pool_is_empty() -> None:
    run = run_small(
        small_fleet(prefill=1, decode=1, startup_ms=20.0),
        arrivals(every(12.0, 3)),
        [(5.0, None, 0), (40.0, None, 1)],
    )
    assert run.column("source_held_ms") == [10.0, 22.0, 34.0]
    assert run.column("destination_reserved_ms") == [60.0] * 3
    assert run.column("destination_activated_ms") == [60.0] * 3


def test_empty_decode_pool_that_stays_empty_is_a_dead_end() -> None:
    with pytest.raises(ReplayError, match="reached a dead end with 3 in-flight requests remaining"):
        run_small(small_fleet(prefill=1, decode=1), arrivals(every(12.0, 3)), [(5.0, None, 0)])


# Example 12


def test_operation_has_no_origin_if_those_of_its_cancelled_startups_differ() -> None:
    ticks = [(10.0, None, 2), (11.0, None, 3), (12.0, None, 1)]
    run = run_small(small_fleet(workers=1, startup_ms=30.0), arrivals(every(10.0, 3)), ticks)
    cancelling = run.operations[2]
    assert transitions(cancelling) == [("worker_removed", 2, 1), ("worker_removed", 1, 0)]
    assert cancelling["origin_operation_ordinal"] is None


def test_drain_settlement_has_no_origin_if_those_of_its_workers_differ() -> None:
    ticks = [(2.0, None, 2), (4.0, None, 1)]
    run = run_small(small_fleet(workers=3), arrivals([0.0, 0.0, 0.0, 20.0]), ticks)
    settling = run.operations[2]
    assert (settling["at_ms"], settling["cause"]) == (12.0, "drain_settlement")
    assert transitions(settling) == [("worker_removed", 1, 1), ("worker_removed", 2, 0)]
    assert settling["origin_operation_ordinal"] is None


# Example 13


def test_aggregated_round_robin_alternates_workers_and_rotates_ranks() -> None:
    run = run_small(small_fleet(workers=2, dp_size=2), arrivals(every(1.0, 6)))
    assert run.column("decode_worker_idx") == [0, 2, 1, 3, 0, 2]
    routes = [history[0] for history in run.column("routing_history")]
    assert [route["logical_worker_id"] for route in routes] == [0, 1, 0, 1, 0, 1]
    assert [route["dp_rank"] for route in routes] == [0, 0, 1, 1, 0, 0]


def test_pool_round_robin_goes_through_all_ranks() -> None:
    run = run_small(small_fleet(prefill=2, decode=2, dp_size=2), arrivals(every(1.0, 6)))
    assert run.column("prefill_worker_idx") == [0, 1, 2, 3, 0, 1]


def test_pool_round_robin_survives_scaling() -> None:
    run = run_small(
        small_fleet(prefill=3, decode=1),
        arrivals(every(100.0, 10)),
        [(350.0, 2, None), (550.0, 4, None)],
    )
    assert run.column("prefill_worker_idx") == [0, 1, 2, 0, 1, 0, 1, 3, 4, 0]


# Example 14


def test_actions_on_a_busy_worker_wait_for_its_pass_to_end() -> None:
    run = run_small(
        small_fleet(prefill=1, decode=1, decode_ms=3.0, transfer_gb_s=1.0),
        arrivals(every(10.0, 3), output_tokens=5),
    )
    assert run.column("source_held_ms") == [10.0, 20.0, 30.0]
    assert run.column("destination_reserved_ms") == [10.0, 21.0, 30.0]
    assert run.column("destination_activated_ms") == [18.0, 30.0, 39.0]
    assert run.column("source_released_ms")[0] == 20.0
    assert run.column("decode_admit_ms")[0] == 18.0


def test_request_may_end_before_its_source_is_released() -> None:
    run = run_small(
        small_fleet(prefill=1, decode=1, prefill_ms=20.0, transfer_gb_s=1.0),
        arrivals([0.0, 20.0], output_tokens=1),
    )
    assert run.column("terminal_time_ms")[0] == 29.0
    assert run.column("source_released_ms")[0] == 40.0


# Example 15


def test_worker_that_never_gets_ready_is_paid_until_the_end() -> None:
    run = run_small(small_fleet(workers=1, startup_ms=10_000.0), arrivals([0.0]), [(5.0, None, 2)])
    assert run.summary["decode_worker_seconds"] == pytest.approx(0.019, rel=1e-12)
    assert causes(run.operations) == [(5.0, "planner_scale", None)]


# Example 16


@pytest.mark.parametrize("prefill", [1, 2])
@pytest.mark.parametrize("decode_gb_s", [None, 0.25])
def test_concurrent_transfers_do_not_share_a_link(prefill: int, decode_gb_s: float | None) -> None:
    spec = small_fleet(
        prefill=prefill,
        decode=1,
        transfer_gb_s=1.0,
        decode_engine={"kv_transfer_bandwidth": decode_gb_s},
    )
    run = run_small(spec, arrivals([0.0, 0.0]))
    assert run.column("destination_activated_ms") == [18.0, 18.0]


def test_transfer_time_is_inverse_to_bandwidth() -> None:
    spec = small_fleet(prefill=1, decode=1, transfer_gb_s=0.5)
    run = run_small(spec, arrivals([0.0, 10.0]))
    assert run.column("destination_activated_ms") == [26.0, 36.0]


@pytest.mark.parametrize(
    ("mode", "transfers_ms"),
    [("full_prompt", [10.0, 10.0, 10.0]), ("destination_missing", [12.0, 4.0, 4.0])],
)
def test_transfer_moves_the_prompt_or_the_blocks_that_are_missing(
    mode: str, transfers_ms: list[float]
) -> None:
    spec = small_fleet(
        prefill=1, decode=1, transfer_gb_s=1.0, engine={"kv_transfer_timing_mode": mode}
    )
    run = run_small(spec, arrivals(every(100.0, 3), 10, 3, [[1, 2, 3]] * 3))
    spans = zip(run.column("destination_activated_ms"), run.column("source_held_ms"), strict=True)
    assert [activated - held for activated, held in spans] == transfers_ms


# Example 17


def test_time_limit_leaves_requests_unfinished() -> None:
    run = run_small(small_fleet(workers=1, max_sim_time_ms=35.0), arrivals(every(10.0, 6)))
    assert run.replay.hit_time_limit
    assert (run.summary["num_requests"], run.summary["completed_requests"]) == (4, 1)
    assert run.summary["duration_ms"] == 32.0
    assert run.summary["decode_worker_seconds"] == 0.032
    assert run.report.coverage["per_request_records"] == len(run.column("uuid")) == 1


@pytest.mark.parametrize(("limit_ms", "arrived", "committed"), [(10.0, 2, 8), (0.0, 1, 0)])
def test_events_at_the_time_limit_happen(limit_ms: float, arrived: int, committed: int) -> None:
    run = run_small(small_fleet(workers=1, max_sim_time_ms=limit_ms), arrivals(every(10.0, 6)))
    assert run.summary["num_requests"] == arrived
    assert run.summary["committed_prefill_tokens"] == committed


def test_ticks_beyond_the_time_limit_do_not_fire() -> None:
    ticks = [(5.0 * index, None, None) for index in range(1, 9)]
    spec = small_fleet(workers=1, max_sim_time_ms=22.0)
    run = run_small(spec, arrivals(every(10.0, 6)), ticks)
    assert run.tick_times() == [5.0, 10.0, 15.0, 20.0]
    assert run.summary["decode_worker_seconds"] == pytest.approx(0.021, rel=1e-12)


# Example 18


def test_passes_that_end_together_complete_in_order_of_worker_ids() -> None:
    spec = small_fleet(prefill=2, decode=2)
    run = run_small(spec, arrivals([0.0, 10.0, 10.0, 12.0, 20.0]))
    assert run.column("source_held_ms")[3:] == [30.0, 30.0]
    assert run.column("decode_worker_idx")[3:] == [0, 1]


def test_pass_end_comes_before_a_transfer_that_ends_with_it() -> None:
    spec = small_fleet(
        prefill=1,
        decode=1,
        transfer_gb_s=1.0,
        prefill_engine={"kv_transfer_bytes_per_token": 1_250_000},
    )
    run = run_small(spec, arrivals([0.0, 5.0, 12.0, 20.0]))
    assert run.column("prefill_admit_ms")[3] == 30.0


# Example 19


def test_prompt_larger_than_the_pool_is_rejected_and_counts_as_arrival_only() -> None:
    spec = small_fleet(workers=1, engine={"num_gpu_blocks": 4})
    run = run_small(spec, arrivals([0.0, 5.0, 30.0], [24, 8, 8]), [(35.0, None, None)])
    assert run.column("terminal_status") == ["rejected", "completed", "completed"]
    assert run.column("terminal_time_ms")[0] == 0.0
    traffic = run.snapshots[0].traffic
    assert (traffic.num_req, traffic.shape_count) == (3, 1)
    assert (run.summary["num_requests"], run.summary["completed_requests"]) == (3, 2)


def test_prompt_larger_than_the_prefill_pool_is_rejected_there() -> None:
    spec = small_fleet(prefill=1, decode=1, prefill_engine={"num_gpu_blocks": 4})
    run = run_small(spec, arrivals([0.0], 24))
    assert run.column("terminal_status") == ["rejected"]
    assert run.column("prefill_worker_idx") == [0]
    assert run.column("decode_worker_idx") == [None]


def test_prompt_larger_than_the_decode_pool_fails_when_its_source_is_held() -> None:
    spec = small_fleet(prefill=1, decode=1, decode_engine={"num_gpu_blocks": 4})
    run = run_small(spec, arrivals([0.0], 24))
    assert run.column("terminal_status") == ["failed"]
    assert run.column("terminal_time_ms") == run.column("source_held_ms") == [10.0]
    assert run.column("decode_worker_idx") == [None]
    assert [route["pool"] for route in run.column("routing_history")[0]] == ["prefill", "decode"]

"""The run summary (replay-runtime.md §15.2, §15.3, §15.5)."""

from pathlib import Path

import pytest
from support.fleets import arrivals, every, run_small, small_fleet

from aisim_gym.conformance import Golden
from aisim_gym.conformance.compare import WALL_CLOCK_KEYS
from aisim_gym.replay import Replay
from aisim_gym.report import summarize

GOLDENS = Path(__file__).parents[1] / "conformance" / "data" / "goldens"


@pytest.mark.parametrize("name", ["agg-vllm-basic-01", "agg-vllm-sla-01"])
def test_keys_are_in_the_order_of_the_reference(name: str) -> None:
    golden = Golden.read(GOLDENS / f"{name}.json.gz")
    assert golden.summary is not None
    spec = small_fleet(workers=1, sla={"ttft_ms": 1.0} if "sla" in name else {})
    keys = list(run_small(spec, arrivals([0.0])).summary)
    assert [key for key in keys if key not in WALL_CLOCK_KEYS] == list(golden.summary)
    assert keys.index("wall_time_ms") == keys.index("duration_ms") + 1
    assert keys[keys.index("processed_tokens") :][1:3] == [
        "processed_tokens_per_s",
        "processed_output_tokens_per_s",
    ]


def test_wall_clock_keys_come_from_the_real_time_of_the_run() -> None:
    run = run_small(small_fleet(workers=1), arrivals([0.0]))
    assert run.replay.wall_s > 0.0
    assert run.summary["wall_time_ms"] == run.replay.wall_s * 1000.0
    assert run.summary["processed_tokens_per_s"] == 11 / run.replay.wall_s
    assert run.summary["processed_output_tokens_per_s"] == 3 / run.replay.wall_s


def test_only_completed_requests_enter_totals() -> None:
    spec = small_fleet(workers=1, engine={"num_gpu_blocks": 4})
    summary = run_small(spec, arrivals([0.0, 5.0], [24, 8])).summary
    assert (summary["num_requests"], summary["completed_requests"]) == (2, 1)
    assert (summary["total_input_tokens"], summary["total_output_tokens"]) == (8, 3)
    assert summary["processed_tokens"] == 11


def test_run_without_a_completed_request_has_zero_rates_and_latencies() -> None:
    spec = small_fleet(workers=1, engine={"num_gpu_blocks": 4})
    summary = run_small(spec, arrivals([0.0], 24)).summary
    assert (summary["duration_ms"], summary["request_throughput_rps"]) == (0.0, 0.0)
    assert (summary["mean_ttft_ms"], summary["p99_itl_ms"], summary["num_ttft_samples"]) == (
        0,
        0,
        0,
    )
    assert summary["prefix_cache_reused_ratio"] == 0.0


def test_request_without_output_counts_in_duration_but_has_no_latency() -> None:
    summary = run_small(small_fleet(workers=1), arrivals([0.0, 100.0], 8, [1, 0])).summary
    assert summary["completed_requests"] == 2
    assert summary["duration_ms"] == 110.0
    assert (summary["num_ttft_samples"], summary["num_tpot_samples"]) == (1, 0)
    assert summary["num_e2e_latency_samples"] == 1


def test_gpu_hours_weigh_pools_by_their_gpus() -> None:
    spec = small_fleet(prefill=1, decode=1, dp_size=2)
    launch = spec.fleet.model_dump()
    launch["decode"]["tensor_parallel_size"] = 4
    spec = type(spec).from_data({"fleet": launch})
    summary = run_small(spec, arrivals([0.0])).summary
    assert (summary["prefill_gpus_per_worker"], summary["decode_gpus_per_worker"]) == (2, 8)
    seconds = summary["prefill_worker_seconds"]
    assert seconds == summary["decode_worker_seconds"] == pytest.approx(0.013)
    assert summary["gpu_hours"] == (seconds * 2 + seconds * 8) / 3600.0


def test_reuse_counts_first_and_best_admission() -> None:
    requests = arrivals([0.0, 100.0], 10, 3, [[1, 2, 3]] * 2)
    summary = run_small(small_fleet(workers=1), requests).summary
    assert summary["prefix_cache_reused_ratio"] == 8 / 20
    assert summary["first_admission_prefix_cache_reused_ratio"] == 8 / 20


# Requests of example 1 in ms: ttft 10, 16, 11, 17; mean gaps 11, 6, 6, 1; e2e 32, 28, 23, 19.


@pytest.mark.parametrize(
    ("sla", "good"),
    [
        ({"ttft_ms": 16.0}, 3),
        ({"ttft_ms": 15.9}, 2),
        ({"itl_ms": 6.0}, 3),
        ({"itl_ms": 5.9}, 1),
        ({"ttft_ms": 16.0, "itl_ms": 6.0}, 2),
        ({"e2e_ms": 28.0}, 3),
        ({"e2e_ms": 18.0}, 0),
    ],
)
def test_goodput_counts_requests_within_every_bound(sla: dict[str, float], good: int) -> None:
    summary = run_small(small_fleet(workers=1, sla=sla), arrivals(every(5.0, 4))).summary
    assert summary["goodput_completed_requests"] == good
    assert summary["goodput_request_throughput_rps"] == good / 0.034
    assert summary["goodput_output_throughput_tok_s"] == 3 * good / 0.034


@pytest.mark.parametrize(
    ("sla", "good"),
    [({"ttft_ms": 1e9}, 1), ({"itl_ms": 1e9}, 1), ({"e2e_ms": 10.0}, 2), ({"e2e_ms": 9.0}, 0)],
)
def test_request_without_output_is_good_only_by_its_time_to_the_end(
    sla: dict[str, float], good: int
) -> None:
    spec = small_fleet(workers=1, sla=sla)
    summary = run_small(spec, arrivals([0.0, 100.0], 8, [1, 0])).summary
    assert summary["goodput_completed_requests"] == good


def test_paused_replay_is_summarized_as_far_as_it_got() -> None:
    replay = Replay(small_fleet(workers=1), arrivals(every(10.0, 6)), initial_tick_ms=33.0)
    assert replay.advance_to_tick() is not None
    report = summarize(replay)
    assert (report.summary["num_requests"], report.summary["completed_requests"]) == (4, 1)
    assert report.per_request is not None
    assert report.per_request.row.tolist() == [0]
    replay.apply({"target_prefill": None, "target_decode": None, "next_tick_ms": None})
    replay.advance_to_tick()
    assert len(report.per_request) == 1, "a report must not change with its replay"
    assert len(summarize(replay).per_request or ()) == 6


def test_nothing_is_captured_without_asking() -> None:
    spec = small_fleet(workers=1, capture_per_request=False, capture_planner_details=False)
    report = run_small(spec, arrivals(every(10.0, 3)), [(15.0, None, 2)]).report
    assert report.per_request is None
    assert (report.lifecycle_operations, report.ticks) == ([], ())
    assert report.coverage == {
        "capture_per_request": False,
        "capture_planner_details": False,
        "per_request_records": 0,
    }


def test_tick_history_is_part_of_the_report() -> None:
    report = run_small(small_fleet(workers=1), arrivals(every(10.0, 3)), [(15.0, None, 2)]).report
    assert [(tick.now_ms, tick.active_decode, tick.target_decode) for tick in report.ticks] == [
        (15.0, 1, 2)
    ]
    assert report.coverage["capture_planner_details"] is True

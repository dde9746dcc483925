"""Telemetry: when samples are taken, what they show, and that they change nothing.

Rules: replay-runtime.md §16. Samples written out here are those of the reference.
"""

import copy
import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import Case, cases, drive
from support.fleets import ScriptedTicks, Tick, arrivals, every, small_fleet
from support.laws import fewer
from support.pass_log import trace
from support.results import results
from support.two_modes import differing_parts

from aisim_gym.replay import Replay, ScalingDecision
from aisim_gym.replay.telemetry import Sample
from aisim_gym.report import summarize, write_report
from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import RequestTable


def sampled(interval_ms: float, workers: int | None = 1, **fleet: Any) -> ReplaySpec:
    """A small fleet of which samples are taken."""
    return small_fleet(workers=workers, telemetry_sample_interval_ms=interval_ms, **fleet)


def samples_of(
    spec: ReplaySpec, requests: RequestTable, ticks: Sequence[Tick] = ()
) -> list[Sample]:
    """Return the samples of a whole run."""
    return Replay.run(spec, ScriptedTicks(ticks) if ticks else None, requests).samples


def times(samples: list[Sample]) -> list[tuple[str, float, float]]:
    """Return kind, start of the interval and time of each sample."""
    return [(s["kind"], s["interval_start_ms"], s["sampled_at_ms"]) for s in samples]


def gauges(sample: Sample, pool: str = "decode") -> list[tuple[int, int, int, int]]:
    """Return (active blocks, inactive blocks, running, waiting) of each rank."""
    names = ("active_blocks", "inactive_blocks", "running_requests", "waiting_requests")
    rows = sample[f"{pool}_scheduler_metrics"]
    return [(row[names[0]], row[names[1]], row[names[2]], row[names[3]]) for row in rows]


# When samples are taken


def test_samples_come_at_multiples_of_the_interval_and_at_the_end() -> None:
    samples = samples_of(sampled(5.0), arrivals([0.0]))
    assert times(samples) == [
        ("baseline", 0.0, 0.0),
        ("periodic", 0.0, 5.0),
        ("periodic", 5.0, 10.0),
        ("final", 10.0, 12.0),
    ]
    assert [sample["sample_ordinal"] for sample in samples] == [0, 1, 2, 3]


def test_samples_between_events_are_taken_at_their_own_times() -> None:
    samples = samples_of(sampled(40.0), arrivals([0.0, 100.0]))
    assert times(samples)[1:] == [
        ("periodic", 0.0, 40.0),
        ("periodic", 40.0, 80.0),
        ("final", 80.0, 112.0),
    ]


def test_run_that_ends_with_a_sample_has_no_final_one() -> None:
    assert times(samples_of(sampled(6.0), arrivals([0.0])))[-1] == ("periodic", 6.0, 12.0)


def test_run_shorter_than_the_interval_has_a_baseline_and_a_final_sample() -> None:
    assert times(samples_of(sampled(100.0), arrivals([0.0]))) == [
        ("baseline", 0.0, 0.0),
        ("final", 0.0, 12.0),
    ]


def test_run_that_ends_at_time_zero_has_a_final_sample_if_anything_arrived() -> None:
    samples = samples_of(sampled(15.0, engine={"num_gpu_blocks": 1}), arrivals([0.0]))
    assert times(samples) == [("baseline", 0.0, 0.0), ("final", 0.0, 0.0)]
    assert [sample["traffic"]["arriving_requests"] for sample in samples] == [0, 1]


def test_times_are_multiples_not_sums() -> None:
    samples = samples_of(sampled(0.1), arrivals([0.0]))
    periodic = [sample["sampled_at_ms"] for sample in samples if sample["kind"] == "periodic"]
    assert periodic == [k * 0.1 for k in range(1, len(periodic) + 1)]
    assert len(periodic) == 120


@pytest.mark.parametrize(
    ("limit_ms", "last"),
    [
        (11.0, ("final", 10.0, 11.0)),
        (10.0, ("periodic", 5.0, 10.0)),
        (9.0, ("final", 0.0, 0.0)),  # the next event, at 10, is not reached: nor are samples before
    ],
)
def test_time_limit_ends_the_samples(limit_ms: float, last: tuple[str, float, float]) -> None:
    samples = samples_of(sampled(5.0, max_sim_time_ms=limit_ms), arrivals([0.0]))
    assert times(samples)[-1] == last


def test_sample_comes_before_the_tick_of_its_instant() -> None:
    samples = samples_of(sampled(5.0), arrivals([0.0]), [(0.0, None, 3), (5.0, None, 1)])
    assert [sample["active_decode_ids"] for sample in samples] == [[0], [0, 1, 2], [0], [0]]


def test_without_interval_there_are_no_samples() -> None:
    replay = Replay.run(small_fleet(workers=1), None, arrivals([0.0]))
    assert replay.samples == []
    assert summarize(replay).telemetry is None


# What they show


def test_keys_and_values_of_a_sample_are_those_of_the_reference() -> None:
    engine = {"num_gpu_blocks": 16}
    last = samples_of(sampled(6.0, engine=engine), arrivals([0.0]))[-1]
    idle = {"cache_hit_tokens": 0, "cache_total_tokens": 0, "preemptions": 0}
    expected = {
        "sample_ordinal": 2,
        "kind": "periodic",
        "interval_start_ms": 6.0,
        "sampled_at_ms": 12.0,
        "traffic": {
            "duration_s": 0.006,
            "arriving_requests": 0,
            "completed_requests": 1,
            "avg_isl": 8.0,
            "avg_osl": 3.0,
            "avg_ttft_ms": 10.0,
            "avg_itl_ms": 1.0,
            "ttft_count": 1,
            "itl_count": 1,
            "avg_router_kv_hit_rate": 0.0,
            "router_kv_hit_rate_count": 0,
            "avg_accept_length": 1.0,
            "accept_length_forward_count": 2,
        },
        "prefill_scheduler_metrics": [],
        "decode_scheduler_metrics": [
            {
                "worker_id": 0,
                "dp_rank": 0,
                "active_blocks": 0,
                "inactive_blocks": 2,
                "total_blocks": 16,
                "active_cache_usage": 0.0,
                "physical_cache_usage": 0.125,
                "running_requests": 0,
                "waiting_requests": 0,
            }
        ],
        "prefill_interval_metrics": idle,
        "decode_interval_metrics": idle,
        "router_pending_prefill_requests": 0,
        "router_pending_decode_requests": 0,
        "active_prefill_ids": [],
        "active_decode_ids": [0],
        "starting_prefill_ids": [],
        "starting_decode_ids": [],
        "draining_prefill_ids": [],
        "draining_decode_ids": [],
    }
    assert last == expected
    assert json.dumps(last) == json.dumps(expected)  # the order of the keys, types of the numbers


def test_pass_in_flight_does_not_show() -> None:
    """Right after the first pass has started the request is still waiting."""
    samples = samples_of(sampled(5.0), arrivals([0.0]))
    assert [gauges(sample) for sample in samples] == [
        [(0, 0, 0, 1)],
        [(0, 0, 0, 1)],
        [(2, 0, 1, 0)],
        [(0, 2, 0, 0)],
    ]


def test_command_during_a_pass_shows_the_state_after_the_start_of_the_pass() -> None:
    samples = samples_of(
        sampled(5.0, None, prefill=1, decode=1, transfer_gb_s=1.0),
        trace((0, 8, 3, [1, 2]), (1, 8, 3, [1, 2])),
    )
    assert [gauges(sample, "prefill") for sample in samples] == [
        *[[(0, 0, 0, 1)], [(2, 0, 0, 1)], [(2, 0, 0, 1)], [(2, 0, 0, 1)]],
        *[[(2, 1, 0, 0)], [(2, 1, 0, 0)], [(0, 3, 0, 0)], [(0, 3, 0, 0)]],
    ]
    assert [gauges(sample) for sample in samples] == [
        *[[(0, 0, 0, 0)], [(0, 0, 0, 0)], [(2, 0, 0, 1)], [(2, 0, 0, 1)]],
        *[[(3, 0, 1, 1)], [(2, 0, 0, 1)], [(3, 0, 1, 0)], [(0, 2, 0, 0)]],
    ]


def test_traffic_covers_the_interval_only_and_the_baseline_ends_none() -> None:
    samples = samples_of(sampled(5.0), arrivals(every(4.0, 3)))
    arriving = [sample["traffic"]["arriving_requests"] for sample in samples]
    completed = [sample["traffic"]["completed_requests"] for sample in samples]
    assert arriving[:3] == [0, 2, 1]
    assert (sum(arriving), sum(completed)) == (3, 3)
    assert samples[0]["traffic"]["duration_s"] == 0.0


def test_preemptions_are_counted_in_their_interval() -> None:
    engine = {"num_gpu_blocks": 7}
    rows = ((0, 8, 12, [1, 2]), (0, 9, 12, [3, 4, 5]))
    samples = samples_of(sampled(10.0, engine=engine), trace(*rows))
    counts = [sample["decode_interval_metrics"]["preemptions"] for sample in samples]
    assert counts == [0, 0, 1, 0, 0]


def test_sglang_counts_prompt_tokens_found_and_looked_up() -> None:
    engine = {"backend": "sglang", "num_gpu_blocks": 16}
    samples = samples_of(sampled(7.0, engine=engine), trace((0, 8, 3, [1, 2]), (20, 8, 3, [1, 2])))
    counts = [sample["decode_interval_metrics"] for sample in samples]
    assert [(c["cache_hit_tokens"], c["cache_total_tokens"]) for c in counts] == [
        *[(0, 0), (0, 0), (0, 8), (0, 0), (0, 0), (4, 8)]
    ]


def test_workers_are_listed_by_state_and_all_live_ones_have_gauges() -> None:
    spec = sampled(10.0, workers=2, startup_ms=12.0)
    ticks = [(9.0, None, 3), (12.0, None, 1)]
    samples = samples_of(spec, arrivals([0.0, 1.0]), ticks)
    seen = samples[1]
    assert (seen["active_decode_ids"], seen["starting_decode_ids"]) == ([0, 1], [2])
    assert len(seen["decode_scheduler_metrics"]) == 3
    spec = sampled(10.0, workers=2)
    seen = samples_of(spec, arrivals([0.0, 1.0]), [(9.0, None, 1)])[1]
    assert (seen["active_decode_ids"], seen["draining_decode_ids"]) == ([0], [1])
    assert [row["worker_id"] for row in seen["decode_scheduler_metrics"]] == [0, 1]


def test_ranks_have_gauges_of_their_own() -> None:
    sample = samples_of(sampled(10.0, dp_size=2), trace((0, 8, 3, [1, 2]), (0, 9, 3, [3, 4, 5])))[1]
    assert gauges(sample) == [(2, 0, 1, 0), (3, 0, 1, 0)]
    assert [row["dp_rank"] for row in sample["decode_scheduler_metrics"]] == [0, 1]


def test_report_holds_interval_and_samples() -> None:
    replay = Replay.run(sampled(5.0), None, arrivals([0.0]))
    telemetry = summarize(replay).telemetry
    assert telemetry == {"sample_interval_ms": 5.0, "samples": replay.samples}


# Independence

TELEMETRY_ONLY = (
    "telemetry.is_on",
    "telemetry.sample_origin_ms",
    "telemetry.sample_interval_ms",
    "telemetry.next_sample_ms",
    "telemetry.sample_ordinal",
    "pools.sample_hit_tokens",
    "pools.sample_total_tokens",
    "pools.sample_preemptions",
    "gauges.",
    "traffic.",
)
"""Fields in which a run with telemetry may differ from the same run without."""


@fewer(4)  # a sample may be taken every 0.3 ms
@given(cases(limited=True), st.sampled_from([0.3, 1.0, 7.5, 1000.0]))
def test_run_with_telemetry_is_the_run_without_it(case: Case, interval_ms: float) -> None:
    data = case.spec.model_dump()
    observed_spec = ReplaySpec.from_data({**data, "telemetry_sample_interval_ms": interval_ms})
    plain = case.replay()
    observed = replace(case, spec=observed_spec).replay()
    assert drive(observed, case) == drive(plain, case)
    assert results(observed) == results(plain)
    differing = differing_parts(observed.state, plain.state, is_settled=plain.is_done)
    assert [part for part in differing if not part.startswith(TELEMETRY_ONLY)] == []
    assert observed.state.world.traffic[0] == plain.state.world.traffic[0]
    ordinals = [sample["sample_ordinal"] for sample in observed.samples]
    assert ordinals == list(range(len(ordinals)))
    check_intervals(observed)


def check_intervals(replay: Replay) -> None:
    """Assert that intervals follow each other and add up to the run so far."""
    samples, rest = replay.samples, replay.state.world.traffic[1]
    starts = [sample["interval_start_ms"] for sample in samples[1:]]
    ends = [sample["sampled_at_ms"] for sample in samples]
    assert starts == ends[:-1]
    arriving = sum(sample["traffic"]["arriving_requests"] for sample in samples)
    assert arriving + rest.num_req == replay.state.world.clock.arrived_requests
    preemptions = sum(
        sample[f"{pool}_interval_metrics"]["preemptions"]
        for sample in samples
        for pool in ("prefill", "decode")
    )
    left = int(np.sum(replay.state.world.pools["sample_preemptions"]))
    assert preemptions + left == np.sum(replay.state.world.gauges["preemptions"])


# The callback


def test_callback_gets_every_sample_as_it_is_taken() -> None:
    got: list[tuple[Sample, int]] = []
    replay = Replay(sampled(5.0), arrivals([0.0]))
    replay.on_sample = lambda sample: got.append((sample, len(replay.samples)))
    replay.advance_to_tick()
    assert [sample for sample, _ in got] == replay.samples
    assert [count for _, count in got] == [1, 2, 3, 4]


def test_run_takes_a_callback() -> None:
    got: list[Sample] = []
    replay = Replay.run(sampled(5.0), None, arrivals([0.0]), on_sample=got.append)
    assert got == replay.samples


class OwnError(Exception):
    """Raised by a callback."""


@pytest.mark.parametrize("failing", [0, 1, 3])
def test_what_a_callback_raises_passes_through_and_the_run_can_go_on(failing: int) -> None:
    def fail(sample: Sample) -> None:
        if sample["sample_ordinal"] == failing:
            raise OwnError("my dashboard broke")

    straight = Replay(sampled(5.0), arrivals([0.0]))
    straight.advance_to_tick()
    replay = Replay(sampled(5.0), arrivals([0.0]))
    replay.on_sample = fail
    with pytest.raises(OwnError, match=r"^my dashboard broke$"):
        replay.advance_to_tick()
    assert replay.samples == straight.samples[: failing + 1]
    assert replay.advance_to_tick() is None
    assert replay.samples == straight.samples
    assert results(replay) == results(straight)


# Files and copies


def test_samples_are_written_one_per_line(tmp_path: Path) -> None:
    replay = Replay.run(sampled(5.0), None, arrivals([0.0]))
    written = write_report(summarize(replay), tmp_path)
    assert tmp_path / "telemetry.jsonl" in written
    lines = (tmp_path / "telemetry.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == replay.samples


def test_samples_of_another_run_do_not_stay_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "telemetry.jsonl").write_text("old")
    report = summarize(Replay.run(small_fleet(workers=1), None, arrivals([0.0])))
    assert tmp_path / "telemetry.jsonl" not in write_report(report, tmp_path)
    assert not (tmp_path / "telemetry.jsonl").exists()


def by_file(replay: Replay, path: Path) -> Replay:
    replay.save(path)
    return Replay.load(path)


COPIES: dict[str, Callable[[Replay, Path], Replay]] = {
    "fork": lambda replay, _: replay.fork(),
    "pickle": lambda replay, _: pickle.loads(pickle.dumps(replay)),
    "deepcopy": lambda replay, _: copy.deepcopy(replay),
    "file": by_file,
}


@pytest.mark.parametrize("make_copy", COPIES.values(), ids=COPIES)
def test_copy_keeps_the_samples_and_goes_on_with_its_own(
    make_copy: Callable[[Replay, Path], Replay], tmp_path: Path
) -> None:
    replay = Replay(sampled(4.0), arrivals(every(10.0, 3)), initial_tick_ms=13.0)
    replay.advance_to_tick()
    before = list(replay.samples)
    assert times(before)[-1] == ("periodic", 8.0, 12.0)
    copied = make_copy(replay, tmp_path / "run.npz")
    assert copied.samples == before
    for run in (copied, replay):
        run.apply(ScalingDecision(None, None, None))
        run.advance_to_tick()
    assert copied.samples == replay.samples
    assert len(copied.samples) > len(before)
    assert times(copied.samples)[-1][0] == "final"


def test_forks_that_scale_differently_have_different_samples() -> None:
    replay = Replay(sampled(4.0), arrivals(every(10.0, 3)), initial_tick_ms=13.0)
    replay.advance_to_tick()
    other = replay.fork()
    replay.apply(ScalingDecision(None, None, None))
    other.apply(ScalingDecision(None, 2, None))
    for run in (replay, other):
        run.advance_to_tick()
    assert replay.samples[-1]["active_decode_ids"] == [0]
    assert other.samples[-1]["active_decode_ids"] == [0, 1]

"""``size_fleet``: replays decide which fleet is the smallest (case G16)."""

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aisim_gym
from aisim_gym.replay import Progress, Replay
from aisim_gym.report import headline
from aisim_gym.sizing import FleetSize, MeasuredFleet, NoFleetError, engine_fleet, size_fleet
from aisim_gym.workload import RequestTable, read_simple_csv, requests_from_arrays, write_simple_csv

PROFILE = "h100-llama31-8b"
ENGINE = {"num_gpu_blocks": 512, "block_size": 64, "max_num_seqs": 4}


@pytest.fixture(scope="module")
def requests() -> RequestTable:
    """Two hundred requests in 20 s, in waves, for which some workers are needed."""
    rng = np.random.default_rng(5)
    arrival_ms = np.sort(rng.uniform(0.0, 20_000.0, 200))
    return requests_from_arrays(
        arrival_ms, rng.integers(200, 3000, 200), rng.integers(20, 120, 200)
    )


def attained(
    requests: RequestTable, fleet: dict[str, Any], ttft_ms: float, itl_ms: float
) -> tuple[float, float]:
    numbers = headline(Replay.run({"fleet": fleet}, requests=requests), ttft_ms, itl_ms)
    return numbers.slo_attainment_frac, numbers.gpu_hours


def test_g16_smallest_fleet_of_a_trace_equals_one_replay_per_size(
    requests: RequestTable, tmp_path: Path
) -> None:
    """Trace, engine, limits and share in; workers, GPUs, attainment, also of one worker fewer."""
    trace = tmp_path / "trace.csv"
    write_simple_csv(requests, trace)
    requests = read_simple_csv(trace)  # its clock starts at the first arrival
    sized = size_fleet(trace, ENGINE, ttft_ms=300.0, itl_ms=40.0, share=0.97, max_workers=24)
    fleet = engine_fleet("agg", ENGINE)
    curve = [
        attained(requests, {**fleet, "num_workers": count}, 300.0, 40.0) for count in range(1, 25)
    ]
    shares = [share for share, _ in curve]
    needed = next(index for index, share in enumerate(shares) if share >= 0.97) + 1
    assert needed > 3
    assert sized.workers == {"workers": needed}
    assert sized.gpus == needed
    assert (sized.attainment_frac, sized.gpu_hours) == curve[needed - 1]
    (smaller,) = sized.smaller
    assert smaller.size == FleetSize(0, needed - 1)
    assert (smaller.attainment_frac, smaller.gpu_hours) == curve[needed - 2]
    for measured in sized.measured:
        assert measured.attainment_frac == shares[measured.size.decode - 1]


def test_g16_smallest_disaggregated_fleet_is_the_smallest_of_all(requests: RequestTable) -> None:
    engines = {
        "prefill": {"engine": ENGINE, "tensor_parallel_size": 2},
        "decode": {**ENGINE, "max_num_seqs": 8},
    }
    limits: dict[str, Any] = {"ttft_ms": 500.0, "itl_ms": 40.0}
    sized = size_fleet(requests, engines, kind="disagg", share=0.9, max_workers=6, **limits)
    fleet = engine_fleet("disagg", engines)
    enough = {}
    for prefill in range(1, 7):
        for decode in range(1, 7):
            counts = {"num_prefill_workers": prefill, "num_decode_workers": decode}
            share, gpu_hours = attained(requests, {**fleet, **counts}, 500.0, 40.0)
            if share >= 0.9:
                gpus = 2 * prefill + decode
                enough[gpus, prefill] = (FleetSize(prefill, decode), share, gpu_hours)
    assert enough
    smallest = enough[min(enough)]
    assert smallest[0] > (1, 1)
    found = sized.fleet
    assert (found.size, found.attainment_frac, found.gpu_hours) == smallest
    assert (found.gpus, found.size.prefill) == min(enough)
    assert sized.workers == {"prefill": found.size.prefill, "decode": found.size.decode}
    assert [fleet.size for fleet in sized.smaller] == list(found.size.neighbours)
    assert all(fleet.attainment_frac < 0.9 for fleet in sized.smaller)


def test_every_size_is_replayed_once_and_told(requests: RequestTable) -> None:
    progress: list[tuple[FleetSize, Progress]] = []
    told: list[MeasuredFleet] = []
    sized = size_fleet(
        requests,
        PROFILE,
        ttft_ms=100.0,
        itl_ms=9.0,
        on_progress=lambda size, now: progress.append((size, now)),
        on_measured=told.append,
    )
    started = [size for size, now in progress if now.arrived == 0]
    assert started == [fleet.size for fleet in told]
    assert len(told) == len({fleet.size for fleet in told})
    assert sorted(told, key=lambda fleet: fleet.gpus) == list(sized.measured)
    assert progress[-1] == (told[-1].size, replace(progress[-1][1], arrived=200, total=200))


def test_smallest_possible_fleet_has_no_smaller_one(requests: RequestTable) -> None:
    one = size_fleet(requests, PROFILE, ttft_ms=60_000.0)
    assert (one.workers, one.smaller, len(one.measured)) == ({"workers": 1}, (), 1)
    two = size_fleet(requests, PROFILE, ttft_ms=60_000.0, kind="disagg")
    assert (two.workers, two.smaller) == ({"prefill": 1, "decode": 1}, ())


def test_a_spec_gives_workload_and_limits_and_arguments_win(requests: RequestTable) -> None:
    spec = {
        "fleet": {**engine_fleet("agg", PROFILE), "num_workers": 7},
        "sla": {"ttft_ms": 0.001},
        "ticks": {"initial_tick_ms": 5.0},  # no one answers ticks here
    }
    sized = size_fleet(requests, spec=spec, ttft_ms=60_000.0)
    assert (sized.workers, sized.sla.ttft_ms) == ({"workers": 1}, 60_000.0)
    table = {"generator": {"kind": "chat-wave", "duration_s": 20.0}}
    with_table = size_fleet(table, PROFILE, itl_ms=1000.0)
    assert with_table == size_fleet(
        spec={"fleet": engine_fleet("agg", PROFILE), "workload": table}, itl_ms=1000.0
    )


def test_impossible_share_says_what_the_best_fleet_reaches(requests: RequestTable) -> None:
    with pytest.raises(NoFleetError) as caught:
        size_fleet(requests, ENGINE, ttft_ms=30.0, share=0.99, max_workers=8)
    error = caught.value
    share, _ = attained(requests, {**engine_fleet("agg", ENGINE), "num_workers": 8}, 30.0, 1e9)
    assert error.best.attainment_frac == max(f.attainment_frac for f in error.measured) >= share
    text = str(error)
    assert "no fleet of at most 8 workers keeps TTFT 30 ms for 99 % of the requests" in text
    assert f"{error.best.size} on {error.best.gpus} GPUs" in text
    assert f"{100.0 * error.best.attainment_frac:.2f} %" in text
    assert pickle.loads(pickle.dumps(error)).best == error.best


def test_gpu_limit_bounds_the_search(requests: RequestTable) -> None:
    limits: dict[str, Any] = {"ttft_ms": 300.0, "itl_ms": 40.0}
    sized = size_fleet(requests, ENGINE, max_workers=24, **limits)
    same = size_fleet(requests, ENGINE, max_gpus=sized.gpus, **limits)
    assert same.fleet == sized.fleet
    with pytest.raises(NoFleetError, match=f"at most 64 workers and {sized.gpus - 1} GPUs"):
        size_fleet(requests, ENGINE, max_gpus=sized.gpus - 1, **limits)


def test_an_interrupt_leaves_what_was_told(requests: RequestTable) -> None:
    told: list[MeasuredFleet] = []

    def interrupt(size: FleetSize, progress: Progress) -> None:
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        size_fleet(
            requests,
            ENGINE,
            ttft_ms=300.0,
            itl_ms=40.0,
            on_progress=interrupt,
            on_measured=told.append,
        )
    assert [fleet.size for fleet in told] == [(0, 1), (0, 2)]


def test_result_is_plain_data(requests: RequestTable) -> None:
    sized = size_fleet(requests, PROFILE, ttft_ms=300.0, itl_ms=20.0, kind="disagg", max_workers=8)
    data = json.loads(json.dumps(sized.to_dict()))
    assert data["fleet"]["workers"] == sized.workers
    assert data["sla"] == {"ttft_ms": 300.0, "itl_ms": 20.0, "e2e_ms": None}
    assert len(data["smaller"]) == len(sized.smaller)
    assert [fleet["gpus"] for fleet in data["measured"]] == [f.gpus for f in sized.measured]
    assert pickle.loads(pickle.dumps(sized)) == sized


def test_public_name_is_the_function() -> None:
    assert aisim_gym.size_fleet is size_fleet
    assert "size_fleet" in dir(aisim_gym)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"share": 95}, "share: got 95, expected a number in (0, 1]; 0.95 is 95 %"),
        ({"share": 0.0}, "share: got 0, expected a number in (0, 1]"),
        ({"share": "all"}, "share: got 'all', expected a number"),
        ({"ttft_ms": None}, "got no limits, expected ttft_ms, itl_ms or both"),
        ({"ttft_ms": 0.0}, "sla.ttft_ms must be finite and positive"),
        ({"max_workers": 0}, "max_workers: got 0, expected an integer from 1 to"),
        ({"max_workers": 2.0}, "max_workers: got 2.0, expected an integer"),
        ({"max_gpus": 1, "kind": "disagg"}, "max_gpus: got 1, but the smallest fleet has 2"),
        ({"engine": "h100"}, "unknown engine profile 'h100'"),
        ({"engine": 3}, "engine: got 3, expected the name of a profile or a table"),
        ({"engine": None}, "expected engine or spec, got neither"),
        ({"spec": {"fleet": {"kind": "agg"}}}, "expected engine or spec, got both"),
        ({"kind": "aggregated"}, "kind: got 'aggregated', expected 'agg' or 'disagg'"),
        ({"engine": {"prefill": PROFILE}, "kind": "disagg"}, "expected prefill and decode"),
        ({"engine": {"prefill": PROFILE, "decode": PROFILE}}, "expected one engine"),
        ({"workload": None}, "workload: got None without spec"),
        ({"workload": 3}, "workload: got int, expected a RequestTable"),
        ({"workload": "nowhere.jsonl"}, "nowhere.jsonl"),
        (
            {"engine": None, "spec": {"fleet": {"kind": "agg"}}, "kind": "disagg"},
            "kind: got 'disagg', but the fleet of spec is 'agg'",
        ),
        ({"workload": requests_from_arrays([], [], [])}, "the workload has no requests"),
    ],
)
def test_bad_arguments_say_what_is_allowed(arguments: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "workload": requests_from_arrays([0.0], [100], [10]),
        "engine": PROFILE,
        "ttft_ms": 1000.0,
    }
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        size_fleet(**{**good, **arguments})

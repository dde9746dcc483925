"""Runs in which a worker is busy for ever without getting anywhere end with an error.

Rules: engine-vllm-trtllm.md §13, engine-sglang.md §8.2, §8.3, rulings.md 1 and 2. The reference
hangs in many of them. So that a hang is a failure here, too, all cases run in a process of their
own with a time limit.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.effort import HANG_S
from support.fleets import ScriptedTicks, small_fleet
from support.pass_log import Row, trace

from aisim_gym.errors import ReplayError
from aisim_gym.fleet.group_pass import MAX_RETRIES
from aisim_gym.replay import FleetDescription, Replay, ScalingDecision, ScalingSnapshot
from aisim_gym.spec import ReplaySpec

DRAFTING = {"aic_nextn": 2, "aic_nextn_accept_rates": "1,1"}
UNCHUNKED = {"max_num_batched_tokens": 16, "enable_chunked_prefill": False}
SGLANG = {"backend": "sglang", "num_gpu_blocks": 16}


def request(input_tokens: int, output_tokens: int, at_ms: float = 0.0) -> Row:
    """Return a request that shares nothing with those of other lengths."""
    first = 1000 * input_tokens
    return (at_ms, input_tokens, output_tokens, range(first, first + -(-input_tokens // 4)))


def worker(engine: dict[str, Any], **options: Any) -> ReplaySpec:
    return small_fleet(workers=1, engine=engine, **options)


def pair(
    engine: dict[str, Any],
    prefill: dict[str, Any] | None = None,
    decode: dict[str, Any] | None = None,
) -> ReplaySpec:
    """One prefill and one decode worker; the decode worker's passes take 3 ms."""
    return small_fleet(
        prefill=1,
        decode=1,
        decode_ms=3.0,
        transfer_gb_s=1.0,
        engine=engine,
        prefill_engine=prefill,
        decode_engine=decode,
    )


CASES: dict[str, tuple[ReplaySpec, tuple[Row, ...], str]] = {
    "vllm: prompt over the budget": (worker(UNCHUNKED), (request(17, 2),), "aggregated 0.0"),
    "vllm: output over the pool": (
        worker({"num_gpu_blocks": 8}),
        (request(10, 24),),
        "aggregated 32.0",
    ),
    "vllm drafting: output over the pool": (
        worker({"num_gpu_blocks": 8, **DRAFTING}),
        (request(10, 24),),
        "aggregated 17.0",
    ),
    "vllm drafting without cache: output over the pool": (
        worker({"num_gpu_blocks": 8, "enable_prefix_caching": False, **DRAFTING}),
        (request(10, 24),),
        r"aggregated 102\d7.0",  # every pass computes the prompt again, in 10 ms
    ),
    "vllm drafting, passes without duration": (
        worker({"num_gpu_blocks": 8, **DRAFTING}, prefill_ms=0.0, decode_ms=0.0),
        (request(10, 24),),
        "aggregated 0.0",
    ),
    "vllm prefill worker: prompt over the budget": (
        pair({}, prefill=UNCHUNKED),
        (request(17, 2),),
        "prefill 0.0",
    ),
    "vllm decode worker: output over the pool": (
        pair({}, decode={"num_gpu_blocks": 8}),
        (request(10, 24),),
        "decode 89.0",
    ),
    "vllm drafting decode worker: output over the pool": (
        pair({}, decode={"num_gpu_blocks": 8, **DRAFTING}),
        (request(10, 24),),
        "decode 41.0",
    ),
    "trtllm: prompt over the budget": (
        worker({"backend": "trtllm", **UNCHUNKED}),
        (request(17, 2),),
        "aggregated 0.0",
    ),
    "trtllm drafting: prompt over the budget": (
        worker({"backend": "trtllm", **UNCHUNKED, **DRAFTING}),
        (request(17, 2),),
        "aggregated 0.0",
    ),
    "trtllm prefill worker: prompt over the budget": (
        pair({"backend": "trtllm"}, prefill=UNCHUNKED),
        (request(17, 2),),
        "prefill 0.0",
    ),
    "sglang: pool too small for the prompt": (
        worker({**SGLANG, "num_gpu_blocks": 1, "sglang": {"chunked_prefill_size": 8}}),
        (request(8, 2),),
        "aggregated 0.0",
    ),
    "sglang: prompt and reserved output over the pool": (
        worker(SGLANG),
        (request(60, 4),),
        "aggregated 0.0",
    ),
    "sglang: prefill budget below a chunk": (
        worker({**SGLANG, "sglang": {"max_prefill_tokens": 4}}),
        (request(8, 2),),
        "aggregated 0.0",
    ),
    "sglang: retracted request that cannot come back": (
        worker(
            {
                "backend": "sglang",
                "num_gpu_blocks": 64,
                "block_size": 1,
                "enable_prefix_caching": False,
                "sglang": {"clip_max_new_tokens": 6, "schedule_conservativeness": 0.01},
            }
        ),
        (request(1, 20), request(54, 10, at_ms=11.0)),
        "aggregated 39.0",
    ),
    "sglang prefill worker: prompt over the pool": (
        pair(SGLANG, decode={"num_gpu_blocks": 64}),
        (request(63, 3),),
        "prefill 0.0",
    ),
    "sglang: lone request that cannot grow": (
        worker({**SGLANG, "sglang": {"clip_max_new_tokens": 1}}),
        (request(9, 60),),
        "aggregated 64.0",
    ),
    "sglang drafting: lone request that cannot grow": (
        worker({**SGLANG, "sglang": {"clip_max_new_tokens": 1}, **DRAFTING}),
        (request(9, 60),),
        "aggregated 28.0",
    ),
    "sglang decode worker: reservations have taken all pages": (
        pair(SGLANG, decode={"num_gpu_blocks": 6}),
        (request(9, 20), request(12, 3, at_ms=12.0)),
        "decode 28.0",
    ),
}
"""Fleet, requests, and the worker that gets nowhere with the time from which (a pattern)."""

PRINT_ENDS = """
import json
from replay.test_livelocks import CASES, end_of
for name in CASES:
    print(json.dumps([name, end_of(name)]), flush=True)
"""


def end_of(name: str) -> str:
    """Return the message that ends a case."""
    spec, rows, _ = CASES[name]
    try:
        Replay.run(spec, None, trace(*rows))
    except ReplayError as error:
        return str(error)
    return "finished"


@pytest.fixture(scope="module")
def ends() -> dict[str, str]:
    """How all cases end."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", PRINT_ENDS],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=HANG_S,
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", CASES)
def test_worker_that_gets_nowhere_is_named_with_the_time(name: str, ends: dict[str, str]) -> None:
    """F52."""
    pool, at_ms = CASES[name][2].split()
    assert ends[name].startswith("replay invariant violated: offline ")
    assert " effect-free zero-duration pass with " in ends[name]
    assert f"on {pool} worker 0" in ends[name]
    assert re.search(rf"\(stuck at {at_ms} ms: ", ends[name])


# With a time limit


@pytest.mark.parametrize(
    "engine",
    [
        {"num_gpu_blocks": 8, "enable_prefix_caching": False, **DRAFTING},
        {
            "num_gpu_blocks": 8,
            "enable_prefix_caching": False,
            "preemption_mode": "fifo",
            **DRAFTING,
        },
    ],
)
def test_passes_that_take_time_go_on_to_the_time_limit(engine: dict[str, Any]) -> None:
    """The reference does so, too."""
    spec = worker(engine, max_sim_time_ms=30_000.0)
    replay = Replay.run(spec, None, trace(request(10, 24)))
    assert replay.hit_time_limit
    assert 29_980.0 < replay.now_ms <= 30_000.0
    assert replay.state.world.ranks[0].preemptions > MAX_RETRIES


@pytest.mark.parametrize(
    "name", ["vllm drafting: output over the pool", "sglang: lone request that cannot grow"]
)
def test_passes_without_duration_end_the_run_below_a_time_limit(name: str) -> None:
    spec, rows, _ = CASES[name]
    data = {**spec.model_dump(), "max_sim_time_ms": 30_000.0}
    with pytest.raises(ReplayError, match="on aggregated worker 0"):
        Replay.run(ReplaySpec.from_data(data), None, trace(*rows))


# How long it is tried


def test_ratio_that_still_falls_is_tried_again_a_bounded_number_of_times() -> None:
    counts = []
    for name in (
        "sglang: prompt and reserved output over the pool",
        "sglang: retracted request that cannot come back",
    ):
        spec, rows, _ = CASES[name]
        replay = Replay(spec, trace(*rows))
        with pytest.raises(ReplayError):
            replay.advance_to_tick()
        counts.append(int(replay.state.world.workers[0].retries))
    assert counts == [600, MAX_RETRIES]


def test_livelock_that_something_else_ends_is_none() -> None:
    """A single request that cannot be admitted yet, while another one decodes."""
    spec = worker({**SGLANG, "sglang": {"clip_max_new_tokens": 40}})
    replay = Replay.run(spec, None, trace(request(30, 20), request(28, 20, at_ms=1.0)))
    assert replay.state.world.requests["emitted_tokens"].tolist() == [20, 20]


# With ticks for ever


class TicksForever(ScriptedTicks):
    """Asks for another tick each 100 ms, without targets."""

    def on_tick(self, snapshot: ScalingSnapshot) -> ScalingDecision:
        """Keep the fleet."""
        return ScalingDecision(None, None, snapshot.now_ms + 100.0)

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    "name",
    [
        "sglang prefill worker: prompt over the pool",
        "trtllm prefill worker: prompt over the budget",
        "sglang decode worker: reservations have taken all pages",
    ],
)
def test_ticks_for_ever_do_not_keep_it_alive(name: str) -> None:
    spec, rows, expected = CASES[name]
    with pytest.raises(ReplayError, match=f"on {expected.split()[0]} worker 0"):
        Replay.run(spec, TicksForever([(100.0, None, None)]), trace(*rows))

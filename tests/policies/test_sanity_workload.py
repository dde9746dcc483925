"""The benchmark of policies.md §20: exact results of fixed splits, and where the HPA lands."""

import math
import random
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from aisim_gym.fleet.paid_time import pool_worker_seconds
from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.metrics.request_times import REQUEST_COMPLETED
from aisim_gym.policies import make_policy
from aisim_gym.replay import Replay, ScalingLimits, ScalingPolicy
from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import RequestTable, requests_from_mooncake_rows

pytestmark = pytest.mark.slow

TTFT_SLO_MS, ITL_SLO_MS = 500.0, 30.0


class SanityResult(NamedTuple):
    attainment: float
    gpu_hours: float
    p99_ttft_ms: float
    num_changes: int


@cache
def sanity_requests() -> RequestTable:
    rnd = random.Random(1)
    t = 0.0
    h = 0
    rows: list[dict[str, Any]] = []
    while t < 900_000:
        rate = 4 + 24 * (0.5 - 0.5 * math.cos(t / 450_000 * 2 * math.pi))
        if 300_000 < t < 330_000:
            rate *= 1.8
        t += rnd.expovariate(rate) * 1000
        isl = rnd.choice([256, 512, 1024, 2048, 3000])
        osl = rnd.choice([16, 64, 128, 256, 400])
        blocks = -(-isl // 512)
        ids = list(range(h, h + blocks))
        rows.append(
            {
                "timestamp": round(t, 2),
                "input_length": isl,
                "output_length": osl,
                "hash_ids": ids,
            }
        )
        h += blocks
    return requests_from_mooncake_rows(rows)


def sanity_spec(prefill: int, decode: int) -> ReplaySpec:
    def launch(worker_type: str) -> dict[str, Any]:
        engine = {
            "worker_type": worker_type,
            "block_size": 64,
            "num_gpu_blocks": 2048,
            "max_num_batched_tokens": 8192,
            "max_num_seqs": 256,
        }
        return {"engine": engine, "startup_time": 20.0}

    return ReplaySpec.from_data(
        {
            "fleet": {
                "kind": "disagg",
                "num_prefill_workers": prefill,
                "num_decode_workers": decode,
                "prefill": launch("prefill"),
                "decode": launch("decode"),
            },
            "sla": {"ttft_ms": TTFT_SLO_MS, "itl_ms": ITL_SLO_MS},
            "capture_per_request": False,
        }
    )


def run(policy: ScalingPolicy, prefill: int, decode: int) -> SanityResult:
    limits = ScalingLimits(tick_s=5.0, max_workers=12, max_gpus=16)
    spec = sanity_spec(prefill, decode)
    replay = Replay.run(spec, policy, sanity_requests(), limits=limits)
    rows = np.asarray(replay.state.world.requests)
    ttft_ms = rows["first_token_ms"] - rows["arrival_ms"]
    gaps = rows["emitted_tokens"] - 1
    itl_ms = (rows["last_token_ms"] - rows["first_token_ms"]) / np.maximum(gaps, 1)
    good = (rows["status"] == REQUEST_COMPLETED) & (ttft_ms <= TTFT_SLO_MS)
    good &= (gaps == 0) | (itl_ms <= ITL_SLO_MS)
    changes = [
        target
        for tick in replay.ticks
        for target in (tick.target_prefill, tick.target_decode)
        if target is not None
    ]
    world = replay.state.world
    paid_s = sum(pool_worker_seconds(world, pool_id) for pool_id in (PREFILL, DECODE))
    return SanityResult(
        attainment=float(good.mean()),
        gpu_hours=paid_s / 3600.0,
        p99_ttft_ms=float(np.percentile(ttft_ms, 99)),
        num_changes=len(changes),
    )


def test_workload_has_the_size_it_should() -> None:
    assert len(sanity_requests()) == 14_893


@pytest.mark.parametrize(
    ("prefill", "decode", "expected"),
    [
        (1, 2, ("0.3956", "0.751", "4753")),
        (2, 3, ("0.9425", "1.252", "190")),
        (2, 4, ("0.9983", "1.503", "171")),
        (3, 4, ("1.0000", "1.753", "118")),
    ],
)
def test_fixed_split_gives_the_results_of_the_reference(
    prefill: int, decode: int, expected: tuple[str, str, str]
) -> None:
    policy = make_policy("static", prefill=prefill, decode=decode)
    result = run(policy, prefill, decode)
    printed = (
        f"{result.attainment:.4f}",
        f"{result.gpu_hours:.3f}",
        f"{result.p99_ttft_ms:.0f}",
    )
    assert printed == expected
    assert result.num_changes == 0


def test_hpa_lands_where_the_prototype_did() -> None:
    # That row of the table was made with an evaluation at every tick of 5 s.
    result = run(make_policy("hpa", sync_period_s=5.0), 1, 1)
    assert result.attainment == pytest.approx(0.938, abs=0.001)
    assert result.gpu_hours == pytest.approx(1.443, rel=0.001)
    assert result.p99_ttft_ms == pytest.approx(520, rel=0.01)
    assert result.num_changes == 12

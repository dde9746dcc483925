"""Busy runs that use most of the kernel: preemption, eviction, transfers, scaling, sessions.

One per backend and, where it changes much, per topology.
"""

from random import Random

from support.cases import Arrival, Case
from support.fleets import BLOCK_SIZE, Tick, small_fleet

DRAFTS = {"aic_nextn": 3, "aic_nextn_accept_rates": "0.8,0.6,0.4"}


def _arrivals(seed: int, count: int = 120) -> tuple[Arrival, ...]:
    rng = Random(seed)
    rows = []
    at_ms = 0.0
    for index in range(count):
        at_ms += rng.choice([0.0, 1.0, 2.5, 8.0, 20.0])
        input_tokens = rng.randint(1, 30)
        blocks = -(-input_tokens // BLOCK_SIZE)
        common = rng.randint(0, blocks)
        own = range(1000 * (index + 1), 1000 * (index + 1) + blocks - common)
        rows.append((at_ms, input_tokens, rng.randint(0, 20), (*range(common), *own)))
    return tuple(rows)


def _turns(seed: int, count: int, sessions: int) -> tuple[Arrival, ...]:
    """Return requests of which the first ones start sessions and the others follow in turn."""
    rng = Random(seed)
    return tuple(
        arrival if at < sessions else (rng.choice([0.0, 1.0, 5.0]), *arrival[1:])
        for at, arrival in enumerate(_arrivals(seed, count))
    )


def _ticks(seed: int) -> tuple[Tick, ...]:
    rng = Random(seed)
    return tuple((25.0 * (at + 1), rng.randint(1, 4), rng.randint(1, 5)) for at in range(40))


BUSY_AGGREGATED = Case(
    small_fleet(
        workers=2,
        dp_size=2,
        startup_ms=40.0,
        engine={
            "num_gpu_blocks": 14,
            "max_num_batched_tokens": 24,
            "prefill_schedule_interval": 2,
            "timing_model": {"type": "polynomial"},
        },
    ),
    _arrivals(1),
    _ticks(2),
)

BUSY_DISAGGREGATED = Case(
    small_fleet(
        prefill=2,
        decode=2,
        startup_ms=40.0,
        transfer_gb_s=2.0,
        engine={"num_gpu_blocks": 16, "max_num_batched_tokens": 24},
        prefill_engine={"kv_transfer_timing_mode": "destination_missing"},
    ),
    _arrivals(3),
    _ticks(4),
)

BUSY_DRAFTING = Case(
    small_fleet(
        prefill=1,
        decode=2,
        startup_ms=40.0,
        transfer_gb_s=2.0,
        engine={"num_gpu_blocks": 24, **DRAFTS},
    ),
    _arrivals(5, 60),
    _ticks(6),
)

BUSY_TRTLLM = Case(
    small_fleet(
        workers=2,
        startup_ms=40.0,
        engine={"backend": "trtllm", "num_gpu_blocks": 18, "max_num_batched_tokens": 24, **DRAFTS},
        workload={"replay_concurrency": 12},
    ),
    _arrivals(7, 60),
    _ticks(8),
)

BUSY_SGLANG = Case(
    small_fleet(
        workers=2,
        dp_size=2,
        engine={
            "backend": "sglang",
            "num_gpu_blocks": 24,
            "prefill_decode_interval": 2,
            "sglang": {
                "schedule_policy": "lpm",
                "chunked_prefill_size": 32,
                "clip_max_new_tokens": 4,
            },
        },
    ),
    _turns(9, 100, sessions=25),
    _ticks(10),
    sessions=tuple(at % 25 for at in range(100)),
)

BUSY_SGLANG_HANDOFFS = Case(
    small_fleet(
        prefill=2,
        decode=2,
        startup_ms=40.0,
        transfer_gb_s=2.0,
        engine={"backend": "sglang", "num_gpu_blocks": 40, **DRAFTS},
        prefill_engine={"kv_transfer_timing_mode": "destination_missing"},
    ),
    _arrivals(11, 60),
    _ticks(12),
)

BUSY = {
    "agg": BUSY_AGGREGATED,
    "disagg": BUSY_DISAGGREGATED,
    "drafting": BUSY_DRAFTING,
    "trtllm": BUSY_TRTLLM,
    "sglang": BUSY_SGLANG,
    "sglang-disagg": BUSY_SGLANG_HANDOFFS,
}

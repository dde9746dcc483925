"""Two busy runs that use most of the kernel: preemption, eviction, transfers, scaling."""

from random import Random

from support.cases import Case
from support.fleets import BLOCK_SIZE, Tick, small_fleet

NUM_REQUESTS = 120


def _arrivals(seed: int) -> tuple[tuple[float, int, int, tuple[int, ...]], ...]:
    rng = Random(seed)
    rows = []
    at_ms = 0.0
    for index in range(NUM_REQUESTS):
        at_ms += rng.choice([0.0, 1.0, 2.5, 8.0, 20.0])
        input_tokens = rng.randint(1, 30)
        blocks = -(-input_tokens // BLOCK_SIZE)
        common = rng.randint(0, blocks)
        own = range(1000 * (index + 1), 1000 * (index + 1) + blocks - common)
        rows.append((at_ms, input_tokens, rng.randint(0, 20), (*range(common), *own)))
    return tuple(rows)


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

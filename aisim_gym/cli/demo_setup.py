"""Fleet and sizes of the demo, chosen to give a meaningful comparison for any workload.

Replays determine the setup: the latency of a single prompt gives the service level, and the
"well-sized" static fleet is the smallest one that meets it, found with hindsight.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from aisim_gym.replay import Progress, Replay
from aisim_gym.report import CompletedRequests
from aisim_gym.sizing import FleetSize, NoFleetError, size_fleet
from aisim_gym.spec import ReplaySpec, WorkloadSpec, load_spec
from aisim_gym.workload import RequestTable, requests_from_arrays

if TYPE_CHECKING:
    from aisim_gym.policies import HpaPolicy, StaticPolicy

BLOCK_SIZE = 64
PREFILL_SPEED, DECODE_SPEED = 0.2, 0.25
"""Speedup ratios for the reference's polynomial: about 10,000 prompt tokens/s, and 100 ms between
the tokens of a decode worker whose KV pool is half full. The fleet of such a large model has enough
workers to scale."""

STARTUP_S, TICK_S = 30.0, 15.0
KV_BYTES_PER_TOKEN, TRANSFER_GB_S = 163_840, 25.0
SMALLEST_POOL_BLOCKS, LONGEST_PER_POOL = 1024, 4
"""A KV pool holds 65,536 tokens, or four times the longest request."""

ITL_SLO_MS = 100.0
TTFT_SLO_FACTOR = 2.5
"""TTFT limit as a multiple of the TTFT of a p99 prompt alone in the fleet."""

SLO_SHARE = 0.99
"""Share of requests that a well-sized fleet serves within the service level."""

MOST_WORKERS = 64
GRACE_S = 300.0
"""A run ends this long after the last arrival, even if requests are unfinished."""

HPA_TTFT_FRAC, HPA_KV_FRAC = 0.15, 0.25
"""Targets of hpa: prefill work per worker as a share of the TTFT SLO, and the used share of decode
KV pools. They are half of what the SLO allows, because a new worker takes 30 s to start."""


class Split(NamedTuple):
    """Workers per pool."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        """Return text such as ``2P+4D``."""
        return f"{self.prefill}P+{self.decode}D"

    def half(self) -> "Split":
        """Return half the workers, at least one per pool."""
        return Split(max(1, self.prefill // 2), max(1, self.decode // 2))


@dataclass(frozen=True)
class DemoSetup:
    """Engine, service level and end of every run of a demo.

    Attributes:
        workload: Source of the requests.
        requests: Requests of the runs, the beginning of the workload.
        num_gpu_blocks: KV pool of a worker, blocks.
        ttft_slo_ms: Bound on the time to first token.
        mean_prefill_ms: Time to first token of a prompt of mean length, alone.
    """

    workload: WorkloadSpec
    requests: RequestTable
    num_gpu_blocks: int
    ttft_slo_ms: float
    mean_prefill_ms: float

    @classmethod
    def of(cls, workload: WorkloadSpec, requests: RequestTable) -> Self:
        """Choose the setup for a workload."""
        longest = int((requests.input_tokens + requests.output_tokens).max())
        wanted = max(SMALLEST_POOL_BLOCKS, LONGEST_PER_POOL * longest / BLOCK_SIZE)
        num_gpu_blocks = 2 ** math.ceil(math.log2(wanted))
        p99_tokens = int(np.percentile(requests.input_tokens, 99.0))
        slowest_ms = _alone_ttft_ms(num_gpu_blocks, p99_tokens)
        return cls(
            workload=workload,
            requests=requests,
            num_gpu_blocks=num_gpu_blocks,
            ttft_slo_ms=round_up_nicely(TTFT_SLO_FACTOR * slowest_ms),
            mean_prefill_ms=_alone_ttft_ms(num_gpu_blocks, int(requests.input_tokens.mean())),
        )

    def spec(self, split: Split, **options: Any) -> ReplaySpec:
        """Return the spec of a run that starts with ``split``."""
        end_ms = float(self.requests.start_ms.max()) + GRACE_S * 1000.0
        return load_spec(
            {
                "fleet": _fleet(split, self.num_gpu_blocks),
                "sla": {"ttft_ms": self.ttft_slo_ms, "itl_ms": ITL_SLO_MS},
                "max_sim_time_ms": end_ms,
                "workload": self.workload,
                "capture_per_request": False,  # saves tens of MB
                **options,
            }
        )

    def hpa(self) -> "HpaPolicy":
        """Return the ``hpa`` preset with targets that fit the service level."""
        from aisim_gym.policies import HpaPolicy

        prompts = HPA_TTFT_FRAC * self.ttft_slo_ms / self.mean_prefill_ms
        return HpaPolicy(
            metrics=[
                {"name": "conc", "prefill_target": prompts},
                {"name": "kv", "decode_target": HPA_KV_FRAC},
            ]
        )

    def size_fleet(self, on_try: Callable[[Split], None]) -> Split:
        """Return the smallest static fleet that serves 99 % of the requests within the SLO.

        If even 64 workers per pool do not suffice, return the best measured fleet.

        Args:
            on_try: Called with every fleet that is tried.
        """
        share, tried = SLO_SHARE, set[FleetSize]()

        def tell(size: FleetSize, _: Progress) -> None:
            if size not in tried:
                tried.add(size)
                on_try(Split(*size))

        while True:
            try:
                sized = size_fleet(
                    self.requests,
                    spec=self.spec(Split(1, 1)),
                    share=share,
                    max_workers=MOST_WORKERS,
                    on_progress=tell,
                )
            except NoFleetError as error:
                share = error.best.attainment_frac
                if not share:
                    return Split(*error.best.size)
            else:
                return Split(*sized.fleet.size)


def hold(split: Split) -> "StaticPolicy":
    """Return the planner of a static fleet; it keeps ticking, so the report has its ticks."""
    from aisim_gym.policies import StaticPolicy

    return StaticPolicy(prefill=split.prefill, decode=split.decode, keep_ticking=True)


def round_up_nicely(value: float) -> float:
    """Return the next number of the series 1, 2, 3, 5, 10, 20 and so on."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 3.0, 5.0, 10.0) if step * power >= value)


def _fleet(split: Split, num_gpu_blocks: int) -> dict[str, Any]:
    engine = {"num_gpu_blocks": num_gpu_blocks, "block_size": BLOCK_SIZE}
    transfer = {
        "kv_transfer_bytes_per_token": KV_BYTES_PER_TOKEN,
        "kv_transfer_bandwidth": TRANSFER_GB_S,
    }
    prefill = {"worker_type": "prefill", "speedup_ratio": PREFILL_SPEED, **engine, **transfer}
    decode = {"worker_type": "decode", "speedup_ratio": DECODE_SPEED, **engine}
    return {
        "kind": "disagg",
        "num_prefill_workers": split.prefill,
        "num_decode_workers": split.decode,
        "prefill": {"engine": prefill, "startup_time": STARTUP_S},
        "decode": {"engine": decode, "startup_time": STARTUP_S},
    }


def _alone_ttft_ms(num_gpu_blocks: int, input_tokens: int) -> float:
    """Return the time to first token of a single prompt in an idle fleet."""
    request = requests_from_arrays([0.0], [max(1, input_tokens)], [2])
    replay = Replay({"fleet": _fleet(Split(1, 1), num_gpu_blocks)}, request)
    replay.advance_to_tick()
    return float(CompletedRequests.of(replay.state).ttft_ms[0])

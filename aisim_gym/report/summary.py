"""Summary of a run, with the reference's keys in the reference's order.

Rules: replay-runtime.md §15.3, §15.5. Rates and latencies are over completed requests only.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aisim_gym.fleet.encoder import EncoderRow
from aisim_gym.fleet.paid_time import pool_worker_seconds
from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.metrics.gap_statistics import GAP, RATE, StatisticsRow
from aisim_gym.replay import Replay
from aisim_gym.report.completed import CompletedRequests
from aisim_gym.report.distribution import Distribution
from aisim_gym.spec import AggregatedFleet, ReplaySpec, SlaSpec
from aisim_gym.tables import Table

SHORTEST_DURATION_S = 1e-9
"""Minimum duration for rates: shorter runs are divided by this."""


def summarize_run(replay: Replay, completed: CompletedRequests) -> dict[str, Any]:
    """Return the summary of the run so far.

    Times are ms, rates per second of simulated time; ``processed_tokens_per_s`` and
    ``processed_output_tokens_per_s`` are per second of real time, ``wall_time_ms``.

    Args:
        replay: The run, finished or paused.
        completed: Its completed requests.
    """
    state = replay.state
    clock = state.world.clock
    input_tokens = int(completed.input_tokens.sum())
    output_tokens = int(completed.output_tokens.sum())
    duration_ms = float(completed.terminal_ms.max()) if len(completed) else 0.0
    duration_s = max(duration_ms / 1000.0, SHORTEST_DURATION_S)
    prefill_seconds, decode_seconds = (
        float(pool_worker_seconds(state.world, pool_id)) for pool_id in (PREFILL, DECODE)
    )
    prefill_gpus, decode_gpus = gpus_per_worker(replay.spec)
    encoder = state.world.encoder
    gpu_seconds = prefill_seconds * prefill_gpus + decode_seconds * decode_gpus
    encoder_seconds = int(encoder.num_gpus) * float(clock.now_ms) / 1000.0
    gpu_seconds += encoder_seconds
    gaps = state.gap_statistics() if replay.spec.capture_token_gaps else None
    return {
        "kv_eviction_policy": "lru",
        "committed_prefill_tokens": int(clock.committed_prefill_tokens),
        "num_requests": int(clock.arrived_requests),
        "completed_requests": len(completed),
        "total_input_tokens": input_tokens,
        "total_output_tokens": output_tokens,
        "duration_ms": duration_ms,
        "wall_time_ms": replay.wall_s * 1000.0,
        "request_throughput_rps": len(completed) / duration_s,
        "input_throughput_tok_s": input_tokens / duration_s,
        "output_throughput_tok_s": output_tokens / duration_s,
        "total_throughput_tok_s": (input_tokens + output_tokens) / duration_s,
        "prefill_worker_seconds": prefill_seconds,
        "decode_worker_seconds": decode_seconds,
        "prefill_gpus_per_worker": prefill_gpus,
        "decode_gpus_per_worker": decode_gpus,
        **_encoder_cost(encoder, encoder_seconds),
        "gpu_hours": gpu_seconds / 3600.0,
        **_goodput(completed, replay.spec.sla, duration_s),
        "power_w": None,
        "power_coverage": None,
        "processed_tokens": input_tokens + output_tokens,
        "processed_tokens_per_s": _per_second(input_tokens + output_tokens, replay.wall_s),
        "processed_output_tokens_per_s": _per_second(output_tokens, replay.wall_s),
        "prefix_cache_reused_ratio": _share(int(completed.reused_tokens.sum()), input_tokens),
        "first_admission_prefix_cache_reused_ratio": _share(
            int(completed.first_reused_tokens.sum()), input_tokens
        ),
        "num_ttft_samples": int((completed.output_tokens >= 1).sum()),
        "num_tpot_samples": int((completed.output_tokens >= 2).sum()),
        "num_e2e_latency_samples": int((completed.output_tokens >= 1).sum()),
        **Distribution.of_values(completed.ttft_ms).named("ttft_ms"),
        **Distribution.of_values(completed.ttst_ms).named("ttst_ms"),
        **Distribution.of_values(completed.tpot_ms).named("tpot_ms"),
        **_named_gaps(gaps, GAP, "itl_ms"),
        **Distribution.of_values(completed.e2e_ms).named("e2e_latency_ms"),
        **_named_gaps(gaps, RATE, "output_token_throughput_per_user"),
    }


def gpus_per_worker(spec: ReplaySpec) -> tuple[int, int]:
    """Return the GPUs of a prefill and of a decode worker; an aggregated fleet has only decode."""
    if isinstance(spec.fleet, AggregatedFleet):
        return 0, spec.fleet.engine.gpus_per_worker
    return spec.fleet.prefill.gpus_per_worker, spec.fleet.decode.gpus_per_worker


def _named_gaps(
    gaps: tuple[Table[StatisticsRow], NDArray[np.int64]] | None, sample: int, metric: str
) -> dict[str, float]:
    """Return the statistics of token gaps or their rates; empty unless they are captured."""
    if gaps is None:
        return {}
    statistics, buckets = gaps
    return Distribution.of_sketch(statistics, buckets, sample).named(metric)


def _encoder_cost(encoder: EncoderRow, encoder_seconds: float) -> dict[str, Any]:
    """Return the keys of the encoder pool; empty without one."""
    if encoder.num_instances == 0:
        return {}
    return {
        "encoder_gpus": int(encoder.num_gpus),
        "encoder_gpu_seconds": encoder_seconds,
    }


def _goodput(completed: CompletedRequests, sla: SlaSpec, duration_s: float) -> dict[str, Any]:
    """Return the goodput keys; empty without a service level."""
    if sla.ttft_ms is None and sla.itl_ms is None and sla.e2e_ms is None:
        return {}
    good = completed.are_good(sla.ttft_ms, sla.itl_ms, sla.e2e_ms)
    return {
        "goodput_completed_requests": int(good.sum()),
        "goodput_request_throughput_rps": int(good.sum()) / duration_s,
        "goodput_output_throughput_tok_s": int(completed.output_tokens[good].sum()) / duration_s,
    }


def _per_second(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0.0 else 0.0


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0

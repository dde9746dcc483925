"""The planner's snapshot of the fleet at a tick (replay-runtime.md §14.1)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from aisim_gym.fleet.tables import (
    DECODE,
    PREFILL,
    ROSTER_LIVE,
    WORKER_ACTIVE,
    WORKER_DRAINING,
    WORKER_STARTING,
)
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.metrics.traffic_window import TICK_WINDOW, TrafficRow


class ForwardPassMetrics(NamedTuple):
    """Latest pass of one rank since the last tick; all zero for an idle rank.

    Lengths and KV are in tokens, ``wall_time`` is in seconds, ``var_…`` are population variances.
    """

    worker_id: int
    dp_rank: int
    wall_time: float
    num_prefill_requests: int
    sum_prefill_tokens: int
    var_prefill_length: float
    sum_prefill_kv_tokens: int
    num_decode_requests: int
    sum_decode_kv_tokens: int
    var_decode_kv_tokens: float
    num_queued_prefill: int
    sum_queued_prefill_tokens: int
    var_queued_prefill_length: float
    num_queued_decode: int
    sum_queued_decode_kv_tokens: int
    var_queued_decode_kv_tokens: float


class TrafficStatistics(NamedTuple):
    """Demand and latency since the last tick; averages are 0.0 where their count is 0 (§12)."""

    duration_s: float
    num_req: int
    avg_isl: float
    avg_osl: float
    avg_ttft_ms: float
    avg_itl_ms: float
    shape_count: int
    ttft_count: int
    itl_count: int
    avg_accept_length: float | None
    avg_kv_hit_rate: float
    hit_rate_count: int
    accept_length_forward_count: int


@dataclass(frozen=True)
class PoolSnapshot:
    """One pool at a tick, with ascending worker ids and metrics in (worker, rank) order.

    An active worker without a finished pass and without a due idle record has no metrics.
    """

    active_ids: tuple[int, ...] = ()
    starting_ids: tuple[int, ...] = ()
    draining_ids: tuple[int, ...] = ()
    fpms: tuple[ForwardPassMetrics, ...] = ()

    @property
    def num_non_draining(self) -> int:
        """Active and starting workers, the number a target is compared with."""
        return len(self.active_ids) + len(self.starting_ids)

    @property
    def num_total(self) -> int:
        """All paid workers."""
        return self.num_non_draining + len(self.draining_ids)


@dataclass(frozen=True)
class ScalingSnapshot:
    """State of the fleet at a tick; an aggregated fleet is reported as ``decode``."""

    tick_ordinal: int
    now_ms: float
    prefill: PoolSnapshot
    decode: PoolSnapshot
    traffic: TrafficStatistics

    def to_dict(self) -> dict[str, Any]:
        """Return the exact mapping that the reference passes to a planner's ``on_tick``."""
        prefill, decode = self.prefill, self.decode
        result: dict[str, Any] = {
            "tick_ordinal": self.tick_ordinal,
            "now_ms": self.now_ms,
            "prefill_fpm_snapshots": [fpm._asdict() for fpm in prefill.fpms],
            "decode_fpm_snapshots": [fpm._asdict() for fpm in decode.fpms],
            "active_prefill_count": len(prefill.active_ids),
            "active_decode_count": len(decode.active_ids),
            "active_prefill_ids": list(prefill.active_ids),
            "active_decode_ids": list(decode.active_ids),
        }
        for state in ("starting", "draining"):
            ids = {name: list(getattr(pool, f"{state}_ids")) for name, pool in self._pools()}
            result |= {f"{state}_{name}_count": len(ids[name]) for name in ids}
            result |= {f"{state}_{name}_ids": ids[name] for name in ids}
        result |= {
            f"non_draining_{name}_count": pool.num_non_draining for name, pool in self._pools()
        }
        result |= {f"total_{name}_count": pool.num_total for name, pool in self._pools()}
        result["traffic"] = self.traffic._asdict()
        return result

    def _pools(self) -> tuple[tuple[str, PoolSnapshot], tuple[str, PoolSnapshot]]:
        return ("prefill", self.prefill), ("decode", self.decode)


def take_snapshot(state: WorldState) -> ScalingSnapshot:
    """Return the snapshot of the waiting tick without changing any state."""
    clock = state.world.clock
    return ScalingSnapshot(
        tick_ordinal=int(clock.tick_ordinal),
        now_ms=float(clock.now_ms),
        prefill=_pool_snapshot(state, PREFILL),
        decode=_pool_snapshot(state, DECODE),
        traffic=traffic_statistics(state.world.traffic[TICK_WINDOW], float(clock.now_ms)),
    )


def _pool_snapshot(state: WorldState, pool_id: int) -> PoolSnapshot:
    live = state.world.rosters[ROSTER_LIVE + pool_id, : state.world.pools[pool_id].live_count]
    workers = np.asarray(state.world.workers)[live]
    ids = {
        worker_state: tuple(workers["id"][workers["state"] == worker_state].tolist())
        for worker_state in (WORKER_ACTIVE, WORKER_STARTING, WORKER_DRAINING)
    }
    dp_size = int(state.world.engines[pool_id].dp_size)
    active = workers[workers["state"] == WORKER_ACTIVE]
    ranks = (active["first_rank"][:, None] + np.arange(dp_size)).reshape(-1)
    fpms = np.asarray(state.world.fpms)[ranks]
    is_new = fpms["is_new"]
    names = np.repeat(active["id"], dp_size)[is_new].tolist()
    dp_ranks = np.tile(np.arange(dp_size), len(active))[is_new].tolist()
    return PoolSnapshot(
        active_ids=ids[WORKER_ACTIVE],
        starting_ids=ids[WORKER_STARTING],
        draining_ids=ids[WORKER_DRAINING],
        fpms=tuple(
            ForwardPassMetrics(worker_id, dp_rank, *values[:-2])
            for worker_id, dp_rank, values in zip(
                names, dp_ranks, fpms[is_new].tolist(), strict=True
            )
        ),
    )


def traffic_statistics(traffic: TrafficRow, now_ms: float) -> TrafficStatistics:
    """Return the statistics of a traffic window up to ``now_ms``."""
    forwards = int(traffic.accept_forwards)
    return TrafficStatistics(
        duration_s=float(now_ms - traffic.window_start_ms) / 1000.0,
        num_req=int(traffic.num_req),
        avg_isl=_mean(traffic.input_tokens, traffic.shape_count),
        avg_osl=_mean(traffic.output_tokens, traffic.shape_count),
        avg_ttft_ms=_mean(traffic.ttft_sum_ms, traffic.ttft_count),
        avg_itl_ms=_mean(traffic.itl_sum_ms, traffic.itl_count),
        shape_count=int(traffic.shape_count),
        ttft_count=int(traffic.ttft_count),
        itl_count=int(traffic.itl_count),
        avg_accept_length=int(traffic.accepted_tokens) / forwards if forwards else None,
        avg_kv_hit_rate=0.0,
        hit_rate_count=0,
        accept_length_forward_count=forwards,
    )


def _mean(total: float, count: int) -> float:
    return float(total) / int(count) if count else 0.0

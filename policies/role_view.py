"""Signals of one role at a tick, for planners (policies.md §0.2, §0.3).

Metrics describe single passes and may be missing in a snapshot; a record stays valid until a newer
one arrives or its worker leaves the active set.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from aisim_gym.fleet.readings import kv_tokens, prefill_kv_tokens
from aisim_gym.policies.length_memory import LengthMemory
from aisim_gym.replay import (
    FleetDescription,
    ForwardPassMetrics,
    Pool,
    PoolSnapshot,
    RoleDescription,
    ScalingSnapshot,
)

Role = Literal["prefill", "decode", "agg"]


class WorkerSignals(NamedTuple):
    """Signals of an active worker; counts are sums over ranks, KV shares those of the fullest rank.

    Attributes:
        queue: Requests queued in the engine.
        conc: Requests running or queued.
        qtok: Tokens queued: prompts (prefill, agg) or KV to come back (decode).
        kv: Share of the KV pool in use, 0..1.
        kv_all: The same including queued requests, may exceed 1; equals ``kv`` for prefill.
        prefill_rate_tps: Prompt tokens per second of its latest pass, 0 after an idle second.
        decode_rate_tps: Output tokens per second of its latest pass, likewise.
    """

    queue: float
    conc: float
    qtok: float
    kv: float
    kv_all: float
    prefill_rate_tps: float
    decode_rate_tps: float


@dataclass(frozen=True)
class RoleView:
    """One role at a tick.

    Attributes:
        num_active: Workers that take requests.
        num_starting: Workers that are starting up.
        num_draining: Workers that only finish their requests.
        workers: Active workers with a valid record, by id.
        slots: Requests that a full worker holds.
        max_batched_tokens: Token budget of a pass.
    """

    num_active: int
    num_starting: int
    num_draining: int
    workers: tuple[WorkerSignals, ...]
    slots: float
    max_batched_tokens: int

    @property
    def num_non_draining(self) -> int:
        """Active and starting workers, comparable with targets."""
        return self.num_active + self.num_starting

    @property
    def num_silent(self) -> int:
        """Active workers without a record."""
        return self.num_active - len(self.workers)


class RoleObserver:
    """Tracks one role over a run."""

    def __init__(self, role: Role, description: RoleDescription) -> None:
        """Create an observer without records.

        Args:
            role: Role, which selects the metrics of a signal.
            description: Capacity of a worker.
        """
        self.role: Role = role
        self.pool: Pool = "prefill" if role == "prefill" else "decode"
        self._description = description
        self._records: dict[tuple[int, int], ForwardPassMetrics] = {}

    def observe(self, snapshot: ScalingSnapshot, lengths: LengthMemory) -> RoleView:
        """Return the role at this tick; records are carried forward."""
        pool = snapshot.prefill if self.pool == "prefill" else snapshot.decode
        self._take_records(pool)
        by_worker: dict[int, list[ForwardPassMetrics]] = {}
        for (worker_id, _), record in sorted(self._records.items()):
            by_worker.setdefault(worker_id, []).append(record)
        return RoleView(
            num_active=len(pool.active_ids),
            num_starting=len(pool.starting_ids),
            num_draining=len(pool.draining_ids),
            workers=tuple(self._signals(records) for records in by_worker.values()),
            slots=self._slots(lengths),
            max_batched_tokens=self._description.max_batched_tokens,
        )

    def _take_records(self, pool: PoolSnapshot) -> None:
        active = set(pool.active_ids)
        self._records = {key: fpm for key, fpm in self._records.items() if key[0] in active}
        for fpm in pool.fpms:
            if fpm.worker_id in active and all(map(math.isfinite, fpm)):
                self._records[fpm.worker_id, fpm.dp_rank] = fpm

    def _signals(self, records: list[ForwardPassMetrics]) -> WorkerSignals:
        ranks = [self._rank_signals(record) for record in records]
        return WorkerSignals(
            queue=sum(rank.queue for rank in ranks),
            conc=sum(rank.conc for rank in ranks),
            qtok=sum(rank.qtok for rank in ranks),
            kv=max(rank.kv for rank in ranks),
            kv_all=max(rank.kv_all for rank in ranks),
            prefill_rate_tps=sum(rank.prefill_rate_tps for rank in ranks),
            decode_rate_tps=sum(rank.decode_rate_tps for rank in ranks),
        )

    def _rank_signals(self, fpm: ForwardPassMetrics) -> WorkerSignals:
        """Return the signals of one record (table of §0.2)."""
        max_kv = self._description.max_kv_tokens / self._description.dp_size
        prefill_kv = prefill_kv_tokens(fpm)
        prefill_conc = fpm.num_prefill_requests + fpm.num_queued_prefill
        decode_conc = fpm.num_decode_requests + fpm.num_queued_decode
        decode_kv_all = fpm.sum_decode_kv_tokens + fpm.sum_queued_decode_kv_tokens
        queue, conc, qtok, kv, kv_all = {
            "prefill": (
                fpm.num_queued_prefill,
                prefill_conc,
                fpm.sum_queued_prefill_tokens,
                prefill_kv,
                prefill_kv,
            ),
            "decode": (
                fpm.num_queued_decode,
                decode_conc,
                fpm.sum_queued_decode_kv_tokens,
                fpm.sum_decode_kv_tokens,
                decode_kv_all,
            ),
            "agg": (
                fpm.num_queued_prefill + fpm.num_queued_decode,
                prefill_conc + decode_conc,
                fpm.sum_queued_prefill_tokens,
                kv_tokens(fpm),
                decode_kv_all + fpm.sum_queued_prefill_tokens,
            ),
        }[self.role]
        return WorkerSignals(
            queue=queue,
            conc=conc,
            qtok=qtok,
            kv=kv / max_kv,
            kv_all=kv_all / max_kv,
            prefill_rate_tps=_rate(fpm.sum_prefill_tokens, fpm.wall_time),
            decode_rate_tps=_rate(fpm.num_decode_requests, fpm.wall_time),
        )

    def _slots(self, lengths: LengthMemory) -> float:
        """Return the requests that a full worker holds, over all ranks (§0.2)."""
        capacity = self._description
        if self.role == "prefill":
            fit = capacity.max_batched_tokens / max(1.0, lengths.input_tokens)
            return max(1.0, fit) * capacity.dp_size
        context = max(1.0, lengths.input_tokens + lengths.output_tokens / 2.0)
        fit = min(float(capacity.max_seqs * capacity.dp_size), capacity.max_kv_tokens / context)
        return max(1.0, fit)


def make_observers(fleet: FleetDescription) -> list[RoleObserver]:
    """Return an observer per role: prefill and decode, or only the aggregated pool."""
    if fleet.prefill is None:
        return [RoleObserver("agg", fleet.decode)]
    return [RoleObserver("prefill", fleet.prefill), RoleObserver("decode", fleet.decode)]


def target_without_active_workers(
    view: RoleView, min_workers: int, snapshot: ScalingSnapshot
) -> int | None:
    """Return the target of a role without active workers, None to hold it (§0.3 rule 2)."""
    if view.num_non_draining < min_workers:
        return min_workers
    if view.num_starting > 0:
        return None
    return 1 if snapshot.traffic.num_req > 0 else None


def _rate(amount: int, wall_s: float) -> float:
    return amount / wall_s if wall_s > 0.0 else 0.0

"""Limits on targets: workers per pool and total GPUs (policies.md §0.4, §2.9).

Every planner applies them last, so that no rule needs its own limits.
"""

import math
from dataclasses import dataclass
from typing import Self

from aisim_gym.replay import (
    FleetDescription,
    Pool,
    ScalingDecision,
    ScalingLimits,
    ScalingSnapshot,
)


@dataclass(frozen=True)
class FleetBudget:
    """Bounds on targets, and the clamping to them.

    Attributes:
        limits: Workers per pool and GPUs of the fleet.
        decode_gpus: GPUs of a decode worker, or of a worker of an aggregated fleet.
        prefill_gpus: GPUs of a prefill worker; None for an aggregated fleet.
    """

    limits: ScalingLimits
    decode_gpus: int
    prefill_gpus: int | None = None

    def __post_init__(self) -> None:
        """Raise if even the smallest fleet violates the limits (§2.9)."""
        smallest = self._least("decode") * self.decode_gpus
        if self.prefill_gpus is not None:
            smallest += self._least("prefill") * self.prefill_gpus
        max_gpus = self.limits.max_gpus
        if max_gpus is not None and smallest > max_gpus:
            raise ValueError(
                f"max_gpus: got {max_gpus}, expected at least {smallest} for min_workers "
                f"{self.limits.min_workers}"
            )

    @classmethod
    def of(cls, fleet: FleetDescription) -> Self:
        """Return the budget of a fleet."""
        prefill = fleet.prefill
        return cls(
            limits=fleet.limits,
            decode_gpus=fleet.decode.gpus_per_worker,
            prefill_gpus=None if prefill is None else prefill.gpus_per_worker,
        )

    def clamp_pair(self, prefill: int, decode: int) -> tuple[int, int]:
        """Return both targets, clamped to the limits.

        Over the GPU ceiling, prefill shrinks in proportion and decode gets the remaining GPUs, as
        in the reference (§2.9).
        """
        assert self.prefill_gpus is not None
        prefill = self._clamp_workers("prefill", prefill)
        decode = self._clamp_workers("decode", decode)
        max_gpus = self.limits.max_gpus
        total = prefill * self.prefill_gpus + decode * self.decode_gpus
        if max_gpus is None or total <= max_gpus:
            return prefill, decode
        most = (max_gpus - self._least("decode") * self.decode_gpus) // self.prefill_gpus
        prefill = min(most, math.floor(prefill * (max_gpus / total)))
        prefill = max(self._least("prefill"), prefill)
        left = max_gpus - prefill * self.prefill_gpus
        return prefill, self._clamp_workers("decode", left // self.decode_gpus)

    def clamp_single(self, workers: int) -> int:
        """Return the target of an aggregated fleet, clamped to the limits."""
        workers = self._clamp_workers("decode", workers)
        if self.limits.max_gpus is None:
            return workers
        return min(workers, max(self._least("decode"), self.limits.max_gpus // self.decode_gpus))

    def decide(
        self,
        snapshot: ScalingSnapshot,
        prefill: int | None,
        decode: int | None,
        next_tick_ms: float | None,
    ) -> ScalingDecision:
        """Return a decision for the desired targets, clamped; an unchanged target is None.

        Args:
            snapshot: Snapshot of the tick.
            prefill: Desired prefill workers, None to hold them; ignored for an aggregated fleet.
            decode: Desired decode or aggregated workers, None to hold them.
            next_tick_ms: Time of the next tick.
        """
        prefill_now = snapshot.prefill.num_non_draining
        decode_now = snapshot.decode.num_non_draining
        decode = decode_now if decode is None else decode
        if self.prefill_gpus is None:
            decode = self.clamp_single(decode)
            return ScalingDecision(None, _unless_equal(decode, decode_now), next_tick_ms)
        prefill = prefill_now if prefill is None else prefill
        prefill, decode = self.clamp_pair(prefill, decode)
        return ScalingDecision(
            _unless_equal(prefill, prefill_now), _unless_equal(decode, decode_now), next_tick_ms
        )

    def _least(self, pool: Pool) -> int:
        return self.limits.of_pool(pool)[0]

    def _clamp_workers(self, pool: Pool, workers: int) -> int:
        least, most = self.limits.of_pool(pool)
        workers = max(workers, least)
        return workers if most is None else min(workers, most)


def _unless_equal(target: int, current: int) -> int | None:
    return None if target == current else target

"""A planner's decision at a tick (replay-runtime.md §14.3)."""

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, SupportsFloat, SupportsIndex

from aisim_gym.fleet.tick import KEEP
from aisim_gym.spec.fleet import MAX_WORKERS


@dataclass(frozen=True)
class ScalingDecision:
    """Worker targets and the time of the next tick.

    Attributes:
        target_prefill: Target number of active + starting prefill workers, None to keep the current
            number; ignored by an aggregated fleet.
        target_decode: Likewise for decode workers, or for the workers of an aggregated fleet.
        next_tick_ms: Absolute time of the next tick in ms. With None, or a value that is not finite
            or not later than now, ticks end and the replay runs to its end.
    """

    target_prefill: SupportsIndex | None = None
    target_decode: SupportsIndex | None = None
    next_tick_ms: SupportsFloat | SupportsIndex | None = None

    @classmethod
    def of(cls, answer: "ScalingDecision | Mapping[str, Any]") -> Self:
        """Return the validated decision in a planner's answer.

        Args:
            answer: A decision, or a mapping with all three keys (others are ignored).

        Raises:
            KeyError: If a key is missing.
            TypeError: If a target is not an integer or a time not a number.
            OverflowError: If a target is negative or too large.
        """
        if not isinstance(answer, ScalingDecision):
            answer = ScalingDecision(
                answer["target_prefill"], answer["target_decode"], answer["next_tick_ms"]
            )
        return cls(
            _target("target_prefill", answer.target_prefill),
            _target("target_decode", answer.target_decode),
            None if answer.next_tick_ms is None else checked_time_ms(answer.next_tick_ms),
        )

    def as_numbers(self) -> tuple[int, int, float]:
        """Return (prefill target, decode target, next tick), with ``KEEP`` and +inf for None."""
        return (
            KEEP if self.target_prefill is None else operator.index(self.target_prefill),
            KEEP if self.target_decode is None else operator.index(self.target_decode),
            math.inf if self.next_tick_ms is None else float(self.next_tick_ms),
        )


def checked_time_ms(value: Any) -> float:
    """Return a time as float, +inf if it is not finite.

    Raises:
        TypeError: If it is not a real number.
    """
    return float(value) if math.isfinite(value) else math.inf


def _target(name: str, value: SupportsIndex | None) -> int | None:
    if value is None:
        return None
    target = operator.index(value)
    if target < 0:
        raise OverflowError(
            f"can't convert negative int to unsigned: {name} is {target}, expected >= 0 or None"
        )
    if target > MAX_WORKERS:
        reason = "int too big to convert" if target >= 2**64 else "too many workers"
        raise OverflowError(f"{reason}: {name} is {target}, expected at most {MAX_WORKERS}")
    return target

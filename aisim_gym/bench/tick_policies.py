"""Cheap planners for benchmarks, so that the replay dominates the measured time.

``reference_worker.py`` has the same two planners for the reference's snapshots.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aisim_gym.replay import FleetDescription, ScalingDecision, ScalingSnapshot


class KeepFleet:
    """Reads the queues at every tick and leaves the fleet unchanged."""

    def __init__(self, every_ms: float) -> None:
        """Tick every ``every_ms`` of simulated time."""
        self.every_ms = every_ms
        self.queued = 0

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Restart from the first tick."""
        self.queued = 0

    def initial_tick_ms(self) -> float:
        """Return the first tick."""
        return self.every_ms

    def on_tick(self, snapshot: ScalingSnapshot) -> ScalingDecision:
        """Return a decision that changes nothing."""
        self.queued += sum(fpm.num_queued_prefill for fpm in snapshot.decode.fpms)
        return ScalingDecision(None, None, snapshot.now_ms + self.every_ms)


class PlayScript:
    """Returns the next decision of a list at every tick."""

    def __init__(self, initial_tick_ms: float, decisions: Sequence[Sequence[Any]]) -> None:
        """Create it from ``[target_prefill, target_decode, next_tick_ms]`` of each tick."""
        self._first_ms = initial_tick_ms
        self._decisions = decisions
        self._tick = 0

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Restart from the first tick."""
        self._tick = 0

    def initial_tick_ms(self) -> float:
        """Return the first tick."""
        return self._first_ms

    def on_tick(self, snapshot: ScalingSnapshot) -> Mapping[str, Any]:
        """Return the next decision."""
        decision = self._decisions[self._tick]
        self._tick += 1
        return dict(zip(("target_prefill", "target_decode", "next_tick_ms"), decision, strict=True))

"""The planners of benchmarks: they read little and decide little, so that the replay is measured.

``reference_worker.py`` has the same two for the reference's snapshots.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aisim_gym.replay import FleetDescription, ScalingDecision, ScalingSnapshot


class KeepFleet:
    """Looks at the queues and leaves the fleet as it is, tick after tick."""

    def __init__(self, every_ms: float) -> None:
        """Tick each ``every_ms`` of simulated time."""
        self.every_ms = every_ms
        self.queued = 0

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Start over."""
        self.queued = 0

    def initial_tick_ms(self) -> float:
        """Return the first tick."""
        return self.every_ms

    def on_tick(self, snapshot: ScalingSnapshot) -> ScalingDecision:
        """Return a decision that changes nothing."""
        self.queued += sum(fpm.num_queued_prefill for fpm in snapshot.decode.fpms)
        return ScalingDecision(None, None, snapshot.now_ms + self.every_ms)


class PlayScript:
    """Answers each tick with the next decision of a list."""

    def __init__(self, initial_tick_ms: float, decisions: Sequence[Sequence[Any]]) -> None:
        """Take ``[target_prefill, target_decode, next_tick_ms]`` of each tick."""
        self._first_ms = initial_tick_ms
        self._decisions = decisions
        self._tick = 0

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Start over."""
        self._tick = 0

    def initial_tick_ms(self) -> float:
        """Return the first tick."""
        return self._first_ms

    def on_tick(self, snapshot: ScalingSnapshot) -> Mapping[str, Any]:
        """Return the next decision."""
        decision = self._decisions[self._tick]
        self._tick += 1
        return dict(zip(("target_prefill", "target_decode", "next_tick_ms"), decision, strict=True))

"""Outcome of a step, the basis of rewards."""

from typing import NamedTuple


class StepOutcome(NamedTuple):
    """Outcome since the previous tick; the first step includes the time before the first tick.

    Attributes:
        duration_s: Simulated time.
        gpu_hours: Paid GPU time of starting, active and draining workers.
        gpu_usd: Its price.
        arrived: Requests that arrived.
        completed: Requests that completed.
        rejected: Requests that ended without completing.
        good: Completed requests within the TTFT and ITL limits, bounds included.
        violations: Completed or rejected requests that are not good; at the episode's end also
            unfinished ones, each by its excess over a limit, at most 1 (rulings.md 11).
        overdue_s: Request-seconds waited for a first token beyond the TTFT limit.
        churn: Total change of the targets by the action, over both pools.
        in_flight: Requests that have arrived but not ended, at the end of the step.
    """

    duration_s: float
    gpu_hours: float
    gpu_usd: float
    arrived: int
    completed: int
    rejected: int
    good: int
    violations: float
    overdue_s: float
    churn: int
    in_flight: int

    @property
    def mean_overdue(self) -> float:
        """Mean number of requests during the step that waited beyond the TTFT limit."""
        return self.overdue_s / self.duration_s if self.duration_s > 0.0 else 0.0

    @property
    def bad_frac(self) -> float:
        """Share of ended requests that are not good, 0 if none ended."""
        ended = self.completed + self.rejected
        return (ended - self.good) / ended if ended else 0.0


NOTHING = StepOutcome(0.0, 0.0, 0.0, 0, 0, 0, 0, 0.0, 0.0, 0, 0)
"""Empty outcome, for the observation at the start of an episode."""

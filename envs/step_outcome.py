"""What happened in a step: what rewards are made of."""

from typing import NamedTuple


class StepOutcome(NamedTuple):
    """What happened since the previous tick; the first step includes the time before it.

    Attributes:
        duration_s: Simulated time.
        gpu_hours: GPU time that is paid for: starting, active and draining workers.
        gpu_usd: Its price.
        arrived: Requests that arrived.
        completed: Requests that completed.
        rejected: Requests that ended without completing.
        good: Completed requests within the TTFT and ITL limits, bounds included.
        violations: Completed or rejected requests that are not good; at the episode's end also
            unfinished ones, each by how far it is past its limit, at most 1 (rulings.md 11).
        overdue_s: Request-seconds waited for a first token beyond the TTFT limit.
        churn: Workers by which the action moved the targets, both pools together.
        in_flight: Requests that arrived and did not end yet, at the end of the step.
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
        """Requests that waited for a first token beyond the TTFT limit, mean over the step."""
        return self.overdue_s / self.duration_s if self.duration_s > 0.0 else 0.0

    @property
    def bad_frac(self) -> float:
        """Share of the requests that ended which is not good, 0 if none ended."""
        ended = self.completed + self.rejected
        return (ended - self.good) / ended if ended else 0.0


NOTHING = StepOutcome(0.0, 0.0, 0.0, 0, 0, 0, 0, 0.0, 0.0, 0, 0)
"""Outcome of no step at all: what an observation is given at the start of an episode."""

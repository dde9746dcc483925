"""Request outcomes of a step, read from the request table of the replay.

A request is good if its time to the first token is within the TTFT limit and its mean gap between
tokens is within the ITL limit, inclusive (replay-runtime.md §15.5); every other end is a violation.
"""

from typing import NamedTuple

import numpy as np

from aisim_gym.fleet.readings import FleetNow, count_outcomes, end_of_arrivals
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.metrics.request_times import REQUEST_OPEN


class Outcomes(NamedTuple):
    """Counts of one step.

    Attributes:
        arrived: Requests that arrived.
        completed: Requests that ended with all their tokens.
        rejected: Requests that ended otherwise.
        good: Completed requests within both limits.
        overdue_s: Seconds that requests waited for their first token beyond the TTFT limit, summed
            over requests in the order of the table.
    """

    arrived: int = 0
    completed: int = 0
    rejected: int = 0
    good: int = 0
    overdue_s: float = 0.0

    @property
    def violations(self) -> int:
        """Requests that ended and are not good."""
        return self.completed + self.rejected - self.good

    def plus(self, other: "Outcomes") -> "Outcomes":
        """Return the sum of both counts."""
        return Outcomes(
            self.arrived + other.arrived,
            self.completed + other.completed,
            self.rejected + other.rejected,
            self.good + other.good,
            self.overdue_s + other.overdue_s,
        )


class OutcomeLedger:
    """Counts every request once, in the step in which it ends.

    A step scans only requests from the oldest open one on, so its cost scales with the requests in
    flight.
    """

    def __init__(self, ttft_slo_ms: float, itl_slo_ms: float) -> None:
        """Create an empty ledger at time 0."""
        self._ttft_slo_ms = float(ttft_slo_ms)
        self._itl_slo_ms = float(itl_slo_ms)
        self._first = 0  # requests before it are counted
        self._is_counted = np.zeros(0, np.bool_)  # by request
        self._num_arrived = 0
        self._now_ms = 0.0

    def count_step(self, state: WorldState) -> tuple[Outcomes, FleetNow]:
        """Return the outcomes since the last call, and the current fleet."""
        if len(self._is_counted) < len(state.world.requests):
            is_counted = np.zeros(len(state.world.requests), np.bool_)
            is_counted[: len(self._is_counted)] = self._is_counted
            self._is_counted = is_counted
        self._first, num_arrived, completed, rejected, good, overdue_ms, fleet = count_outcomes(
            state.world,
            self._is_counted,
            self._first,
            self._now_ms,
            self._ttft_slo_ms,
            self._itl_slo_ms,
        )
        arrived = num_arrived - self._num_arrived
        now = FleetNow(*fleet)
        self._num_arrived, self._now_ms = num_arrived, now.now_ms
        return Outcomes(arrived, completed, rejected, good, overdue_ms / 1000.0), now

    def late_frac_of_unfinished(self, state: WorldState) -> float:
        """Return the violations counted for unfinished requests that have arrived (rulings.md 11).

        Each counts the excess over a limit in units of that limit, at most 1: of the time to the
        first token, or of the mean gap if the next token came now, whichever is larger.
        """
        rows = np.asarray(state.world.requests)[self._first : end_of_arrivals(state.world)]
        rows = rows[(rows["status"] == REQUEST_OPEN) & rows["is_arrived"]]
        now_ms = float(state.world.clock.now_ms)
        has_token = rows["emitted_tokens"] > 0
        first_ms = np.where(has_token, rows["first_token_ms"], now_ms)
        ttft_ratio = (first_ms - rows["arrival_ms"]) / self._ttft_slo_ms
        gap_ms = (now_ms - first_ms) / np.maximum(rows["emitted_tokens"], 1)
        late = np.maximum(ttft_ratio, gap_ms / self._itl_slo_ms) - 1.0
        return float(np.clip(late, 0.0, 1.0).sum())

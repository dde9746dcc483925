"""What became of the requests in a step, read from the request table of the replay.

A request is good if its first token came within the TTFT limit and its mean gap between tokens is
within the ITL limit, bounds included (replay-runtime.md §15.5); every other end is a violation.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aisim_gym.fleet.world_state import WorldState
from aisim_gym.metrics.request_times import REQUEST_COMPLETED, REQUEST_OPEN


@dataclass(frozen=True)
class Outcomes:
    """Counts of one step.

    Attributes:
        arrived: Requests that arrived.
        completed: Requests that ended with all their tokens.
        rejected: Requests that ended otherwise.
        good: Completed requests within both limits.
        overdue_s: Seconds that requests waited for their first token beyond the TTFT limit, summed
            over requests.
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
        """Return the counts of both."""
        return Outcomes(
            arrived=self.arrived + other.arrived,
            completed=self.completed + other.completed,
            rejected=self.rejected + other.rejected,
            good=self.good + other.good,
            overdue_s=self.overdue_s + other.overdue_s,
        )


class OutcomeLedger:
    """Counts every request once, in the step in which it ends.

    Only rows from the oldest open request on are looked at, so a step costs what is in flight.
    """

    def __init__(self, ttft_slo_ms: float, itl_slo_ms: float) -> None:
        """Start at time 0 with nothing counted."""
        self._ttft_slo_ms = ttft_slo_ms
        self._itl_slo_ms = itl_slo_ms
        self._first = 0  # rows before it are counted
        self._counted = np.zeros(0, np.bool_)  # of the rows from there on
        self._num_arrived = 0
        self._now_ms = 0.0

    def count_step(self, state: WorldState) -> Outcomes:
        """Return what happened since the last call; arrays of earlier calls are not modified."""
        clock = state.clock[0]
        now_ms = float(clock.now_ms)
        rows = self._open_rows(state)
        ended = rows["status"] != REQUEST_OPEN
        fresh = ended.copy()
        fresh[: len(self._counted)] &= ~self._counted
        completed = fresh & (rows["status"] == REQUEST_COMPLETED)
        num_completed = int(np.count_nonzero(completed))
        outcomes = Outcomes(
            arrived=int(clock.arrived_requests) - self._num_arrived,
            completed=num_completed,
            rejected=int(np.count_nonzero(fresh)) - num_completed,
            good=self._num_good(rows[completed]),
            overdue_s=self._overdue_ms(rows[rows["is_arrived"] == 1], now_ms) / 1000.0,
        )
        num_settled = len(rows) if ended.all() else int(np.argmin(ended))
        self._num_arrived = int(clock.arrived_requests)
        self._first += num_settled
        self._counted = ended[num_settled:]
        self._now_ms = now_ms
        return outcomes

    def late_frac_of_unfinished(self, state: WorldState) -> float:
        """Return the violations that arrived but unfinished requests count for (rulings.md 11).

        Each counts by how far it already is past a limit, in units of that limit and at most 1:
        waiting for (or having waited for) the first token, or the mean gap if the next token came
        now; the worse of the two.
        """
        rows = self._open_rows(state)
        rows = rows[(rows["status"] == REQUEST_OPEN) & (rows["is_arrived"] == 1)]
        now_ms = float(state.clock[0].now_ms)
        has_token = rows["emitted_tokens"] > 0
        first_ms = np.where(has_token, rows["first_token_ms"], now_ms)
        ttft_ratio = (first_ms - rows["arrival_ms"]) / self._ttft_slo_ms
        gap_ms = (now_ms - first_ms) / np.maximum(rows["emitted_tokens"], 1)
        late = np.maximum(ttft_ratio, gap_ms / self._itl_slo_ms) - 1.0
        return float(np.clip(late, 0.0, 1.0).sum())

    def _open_rows(self, state: WorldState) -> NDArray[np.void]:
        """Return the rows that may still change: of a list, only what has arrived."""
        end = len(state.requests) if len(state.sessions) else int(state.clock[0].next_arrival)
        return np.asarray(state.requests)[self._first : end]

    def _num_good(self, rows: NDArray[np.void]) -> int:
        tokens = rows["emitted_tokens"]
        has_token = tokens > 0
        first_ms = rows["first_token_ms"]
        with np.errstate(invalid="ignore"):  # NaN where no token was emitted
            in_time = first_ms - rows["arrival_ms"] <= self._ttft_slo_ms
            mean_gap_ms = (rows["last_token_ms"] - first_ms) / np.maximum(tokens - 1, 1)
            steady = (tokens <= 1) | (mean_gap_ms <= self._itl_slo_ms)
        return int(np.count_nonzero(has_token & in_time & steady))

    def _overdue_ms(self, rows: NDArray[np.void], now_ms: float) -> float:
        """Return how long the requests waited past the TTFT limit in this step."""
        waits_until_ms = np.where(
            rows["emitted_tokens"] > 0,
            rows["first_token_ms"],
            np.where(rows["status"] == REQUEST_OPEN, now_ms, rows["terminal_ms"]),
        )
        due_ms = np.maximum(rows["arrival_ms"] + self._ttft_slo_ms, self._now_ms)
        return float(np.maximum(waits_until_ms - due_ms, 0.0).sum())

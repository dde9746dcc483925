"""What became of the requests in a step, read from the request table of the replay.

A request is good if its first token came within the TTFT limit and its mean gap between tokens is
within the ITL limit, bounds included (replay-runtime.md §15.5); every other end is a violation.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aisim_gym.fleet.world import World
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.metrics.request_times import REQUEST_COMPLETED, REQUEST_OPEN, RequestRow


class Outcomes(NamedTuple):
    """Counts of one step.

    Attributes:
        arrived: Requests that arrived.
        completed: Requests that ended with all their tokens.
        rejected: Requests that ended otherwise.
        good: Completed requests within both limits.
        overdue_s: Seconds that requests waited for their first token beyond the TTFT limit, summed
            over requests in the order of their rows.
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
            self.arrived + other.arrived,
            self.completed + other.completed,
            self.rejected + other.rejected,
            self.good + other.good,
            self.overdue_s + other.overdue_s,
        )


class OutcomeLedger:
    """Counts every request once, in the step in which it ends.

    Only rows from the oldest open request on are looked at, so a step costs what is in flight.
    """

    def __init__(self, ttft_slo_ms: float, itl_slo_ms: float) -> None:
        """Start at time 0 with nothing counted."""
        self._ttft_slo_ms = float(ttft_slo_ms)
        self._itl_slo_ms = float(itl_slo_ms)
        self._first = 0  # rows before it are counted
        self._is_counted = np.zeros(0, np.bool_)  # by row
        self._num_arrived = 0
        self._now_ms = 0.0

    def count_step(self, state: WorldState) -> Outcomes:
        """Return what happened since the last call."""
        if len(self._is_counted) < len(state.world.requests):
            is_counted = np.zeros(len(state.world.requests), np.bool_)
            is_counted[: len(self._is_counted)] = self._is_counted
            self._is_counted = is_counted
        arrived_before = self._num_arrived
        (
            self._first,
            self._num_arrived,
            self._now_ms,
            completed,
            rejected,
            good,
            overdue_ms,
        ) = count_outcomes(
            state.world,
            self._is_counted,
            self._first,
            self._now_ms,
            self._ttft_slo_ms,
            self._itl_slo_ms,
        )
        arrived = self._num_arrived - arrived_before
        return Outcomes(arrived, completed, rejected, good, overdue_ms / 1000.0)

    def late_frac_of_unfinished(self, state: WorldState) -> float:
        """Return the violations that arrived but unfinished requests count for (rulings.md 11).

        Each counts by how far it already is past a limit, in units of that limit and at most 1:
        waiting for (or having waited for) the first token, or the mean gap if the next token came
        now; the worse of the two.
        """
        rows = np.asarray(state.world.requests)[self._first : _end_of_arrivals(state.world)]
        rows = rows[(rows["status"] == REQUEST_OPEN) & (rows["is_arrived"] == 1)]
        now_ms = float(state.world.clock.now_ms)
        has_token = rows["emitted_tokens"] > 0
        first_ms = np.where(has_token, rows["first_token_ms"], now_ms)
        ttft_ratio = (first_ms - rows["arrival_ms"]) / self._ttft_slo_ms
        gap_ms = (now_ms - first_ms) / np.maximum(rows["emitted_tokens"], 1)
        late = np.maximum(ttft_ratio, gap_ms / self._itl_slo_ms) - 1.0
        return float(np.clip(late, 0.0, 1.0).sum())


@entry_point
def count_outcomes(
    w: World,
    is_counted: NDArray[np.bool_],
    first: int,
    since_ms: float,
    ttft_slo_ms: float,
    itl_slo_ms: float,
) -> tuple[int, int, float, int, int, int, float]:
    """Count the requests that ended since the last call.

    Args:
        w: Only read.
        is_counted: Shape (requests,), whether a request was counted; modified in place.
        first: Rows before it are counted.
        since_ms: Time of the last call.
        ttft_slo_ms: Limit on the time to the first token.
        itl_slo_ms: Limit on the mean gap between tokens.

    Returns:
        The next call's ``first``; requests arrived so far; the time now; of this step completed,
        rejected and good requests, and the time in ms waited beyond the TTFT limit.
    """
    now_ms = float(w.clock.now_ms)
    completed, rejected, good, overdue_ms = 0, 0, 0, 0.0
    first_open = first
    end = _end_of_arrivals(w)
    for i in range(first, end):
        request = w.requests[i]
        if request.is_arrived:
            due_ms = max(request.arrival_ms + ttft_slo_ms, since_ms)
            overdue_ms += max(_waits_until_ms(request, now_ms) - due_ms, 0.0)
        if request.status == REQUEST_OPEN:
            continue
        if not is_counted[i]:
            is_counted[i] = True
            if request.status == REQUEST_COMPLETED:
                completed += 1
                good += int(_is_good(request, ttft_slo_ms, itl_slo_ms))
            else:
                rejected += 1
        if i == first_open:
            first_open += 1
    arrived = int(w.clock.arrived_requests)
    return first_open, arrived, now_ms, completed, rejected, good, float(overdue_ms)


@kernel
def _end_of_arrivals(w: World) -> int:
    """Return the row behind the last that may have arrived: of a list, what has arrived."""
    return len(w.requests) if len(w.sessions) > 0 else int(w.clock.next_arrival)


@kernel
def _waits_until_ms(request: RequestRow, now_ms: float) -> float:
    """Return until when a request waited, or waits, for its first token."""
    if request.emitted_tokens > 0:
        return request.first_token_ms
    return now_ms if request.status == REQUEST_OPEN else request.terminal_ms


@kernel
def _is_good(request: RequestRow, ttft_slo_ms: float, itl_slo_ms: float) -> bool:
    """Return whether a completed request kept both limits; without a token it kept none."""
    tokens = request.emitted_tokens
    if tokens == 0 or not request.first_token_ms - request.arrival_ms <= ttft_slo_ms:
        return False
    if tokens == 1:
        return True
    return (request.last_token_ms - request.first_token_ms) / (tokens - 1) <= itl_slo_ms

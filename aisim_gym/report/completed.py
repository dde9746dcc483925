"""The completed requests of a run: sizes, latencies and service levels.

Rules: replay-runtime.md §15.2 (only these enter aggregates, in order of their ids), §15.3, §15.5.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from aisim_gym.fleet.world_state import WorldState
from aisim_gym.metrics.request_times import REQUEST_COMPLETED
from aisim_gym.metrics.service_level import keeps_itl, keeps_ttft
from aisim_gym.report.request_ids import request_numbers


@dataclass(frozen=True, eq=False)
class CompletedRequests:
    """Columns of the same length, one element per completed request.

    Times are ms; NaN if a request has too few tokens.

    Attributes:
        input_tokens: Prompt tokens.
        output_tokens: Tokens that reached the client.
        reused_tokens: Prompt tokens found in a prefix cache, maximum over all admissions.
        first_reused_tokens: The same at the first admission.
        terminal_ms: Time of the end.
        wait_ms: Arrival to the end.
        ttft_ms: Arrival to the first token.
        ttst_ms: First to the second token.
        tpot_ms: Mean gap between tokens.
        e2e_ms: Arrival to the last token.
    """

    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    reused_tokens: NDArray[np.int64]
    first_reused_tokens: NDArray[np.int64]
    terminal_ms: NDArray[np.float64]
    wait_ms: NDArray[np.float64]
    ttft_ms: NDArray[np.float64]
    ttst_ms: NDArray[np.float64]
    tpot_ms: NDArray[np.float64]
    e2e_ms: NDArray[np.float64]

    @classmethod
    def of(cls, state: WorldState) -> Self:
        """Return the requests completed so far."""
        requests = np.asarray(state.world.requests)[np.argsort(request_numbers(state))]
        requests = requests[requests["status"] == REQUEST_COMPLETED]
        arrival_ms, first_ms = requests["arrival_ms"], requests["first_token_ms"]
        last_ms = requests["last_token_ms"]
        gaps = requests["emitted_tokens"].astype(np.float64) - 1.0
        gaps[gaps <= 0.0] = np.nan
        return cls(
            input_tokens=requests["input_tokens"].astype(np.int64),
            output_tokens=requests["emitted_tokens"].astype(np.int64),
            reused_tokens=np.maximum(
                requests["most_reused_tokens"], requests["decode_reused_tokens"]
            ).astype(np.int64),
            first_reused_tokens=requests["first_reused_tokens"].astype(np.int64),
            terminal_ms=requests["terminal_ms"],
            wait_ms=requests["terminal_ms"] - arrival_ms,
            ttft_ms=np.maximum(first_ms - arrival_ms, 0.0),
            ttst_ms=np.maximum(requests["second_token_ms"] - first_ms, 0.0),
            tpot_ms=np.maximum((last_ms - first_ms) / gaps, 0.0),
            e2e_ms=np.maximum(last_ms - arrival_ms, 0.0),
        )

    def __len__(self) -> int:
        """Return the number of completed requests."""
        return self.terminal_ms.size

    def are_good(
        self,
        ttft_ms: float | None = None,
        itl_ms: float | None = None,
        e2e_ms: float | None = None,
    ) -> NDArray[np.bool_]:
        """Return a mask of the requests within all given bounds, inclusive.

        A request without output has neither a first token nor gaps, so it never meets a bound on
        them; ``e2e_ms`` bounds its time to the end. A single token has no gap, so the gap bound is
        ignored.
        """
        good = np.ones(len(self), np.bool_)
        if ttft_ms is not None:
            good &= keeps_ttft(self.output_tokens, self.ttft_ms, ttft_ms)
        if itl_ms is not None:
            mean_gap_ms = (self.e2e_ms - self.ttft_ms) / np.maximum(self.output_tokens - 1, 1)
            good &= keeps_itl(self.output_tokens, mean_gap_ms, itl_ms)
        if e2e_ms is not None:
            good &= np.where(self.output_tokens == 0, self.wait_ms, self.e2e_ms) <= e2e_ms
        return good

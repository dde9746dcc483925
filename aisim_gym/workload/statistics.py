"""Workload statistics: rates, bursts, lengths, shared prefixes (traffic-data.md §1 to §3).

*CV* is the standard deviation of the gaps between arrivals over their mean; *IDC(T)*, the index of
dispersion for counts, is the variance of the number of arrivals in back-to-back windows of T
seconds over its mean. Both are 1 for a Poisson process, for every T. All deviations divide by n.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import WorkloadError
from aisim_gym.workload.request_table import RequestTable

MINUTE_S = 60.0
LEAST_GAPS_IN_MINUTE = 20
"""Minimum gaps of a minute that counts for the CV within minutes."""


@dataclass(frozen=True)
class LengthStatistics:
    """Lengths in tokens; quantiles are linearly interpolated.

    Attributes:
        mean: Mean.
        std: Standard deviation.
        q1: 1 % quantile.
        q5: 5 % quantile.
        q25: 25 % quantile.
        q50: Median.
        q75: 75 % quantile.
        q95: 95 % quantile.
        q99: 99 % quantile.
        max: Longest.
    """

    mean: float
    std: float
    q1: float
    q5: float
    q25: float
    q50: float
    q75: float
    q95: float
    q99: float
    max: int

    @classmethod
    def of(cls, tokens: NDArray[np.int64]) -> Self:
        """Return the statistics of at least one length."""
        q1, q5, q25, q50, q75, q95, q99 = np.percentile(tokens, [1, 5, 25, 50, 75, 95, 99]).tolist()
        mean, std, longest = float(tokens.mean()), float(tokens.std()), int(tokens.max())
        return cls(mean, std, q1, q5, q25, q50, q75, q95, q99, longest)


@dataclass(frozen=True)
class TraceStatistics:
    """Statistics of a request table; None where the table has too little data.

    Arrivals are those of requests, or starts of sessions.

    Attributes:
        requests: Number of requests.
        sessions: Number of sessions, 0 in a list.
        duration_s: From the first arrival to the last.
        mean_rate_rps: Arrivals over the duration.
        peak_1s_rps: Most arrivals in a whole window of 1 s after the first arrival, per second.
        peak_10s_rps: The same with windows of 10 s.
        peak_60s_rps: The same with windows of 60 s.
        cv: CV of the gaps between arrivals.
        cv_in_minute: CV of the gaps within a minute, averaged over whole minutes with at least 20
            gaps and weighted by their gaps; it excludes slow changes of the rate.
        idc_1s: IDC in whole windows of 1 s.
        idc_10s: In windows of 10 s.
        idc_60s: In windows of 60 s.
        idc_300s: In windows of 300 s.
        input_tokens: Lengths of prompts.
        output_tokens: Lengths of outputs.
        block_references: Hash ids of all prompts.
        distinct_blocks: Number of distinct hash ids.
        reusable_frac: Share of input tokens in leading blocks that an earlier request contains: the
            savings of an unlimited cache. None for delta sessions, whose prompts are only partly
            known.
        requests_with_reuse_frac: Share of requests with such tokens.
    """

    requests: int
    sessions: int
    duration_s: float
    mean_rate_rps: float | None
    peak_1s_rps: float | None
    peak_10s_rps: float | None
    peak_60s_rps: float | None
    cv: float | None
    cv_in_minute: float | None
    idc_1s: float | None
    idc_10s: float | None
    idc_60s: float | None
    idc_300s: float | None
    input_tokens: LengthStatistics
    output_tokens: LengthStatistics
    block_references: int
    distinct_blocks: int
    reusable_frac: float | None
    requests_with_reuse_frac: float | None


def trace_statistics(requests: RequestTable) -> TraceStatistics:
    """Return the statistics of a workload.

    Raises:
        WorkloadError: If the table has no requests.

    Example:
        >>> from aisim_gym.workload import requests_from_arrays
        >>> statistics = trace_statistics(requests_from_arrays([0.0, 500.0], [8, 12], [1, 3]))
        >>> statistics.mean_rate_rps, statistics.input_tokens.mean
        (4.0, 10.0)
    """
    if len(requests) == 0:
        raise WorkloadError("statistics: the table has no requests")
    at_s = arrivals_s(requests)
    reusable = None if requests.is_delta else reusable_tokens(requests)
    return TraceStatistics(
        requests=len(requests),
        sessions=requests.num_sessions,
        duration_s=requests.duration_s,
        mean_rate_rps=requests.mean_rate_rps,
        peak_1s_rps=_peak_rate(at_s, 1.0),
        peak_10s_rps=_peak_rate(at_s, 10.0),
        peak_60s_rps=_peak_rate(at_s, 60.0),
        cv=_variation(np.diff(at_s)),
        cv_in_minute=_variation_in_minutes(at_s),
        idc_1s=_dispersion(at_s, 1.0),
        idc_10s=_dispersion(at_s, 10.0),
        idc_60s=_dispersion(at_s, 60.0),
        idc_300s=_dispersion(at_s, 300.0),
        input_tokens=LengthStatistics.of(requests.input_tokens),
        output_tokens=LengthStatistics.of(requests.output_tokens),
        block_references=requests.prompt_ids.size,
        distinct_blocks=np.unique(requests.prompt_ids).size,
        reusable_frac=None if reusable is None else _share(reusable, requests.input_tokens),
        requests_with_reuse_frac=None if reusable is None else float((reusable > 0).mean()),
    )


def arrivals_s(requests: RequestTable) -> NDArray[np.float64]:
    """Return arrivals in seconds since the first, ascending; none if a session has no start."""
    starts_ms = np.sort(requests.start_ms)
    if starts_ms.size == 0 or np.isnan(starts_ms[-1]):
        return np.empty(0)
    since_first_s: NDArray[np.float64] = (starts_ms - starts_ms[0]) / 1000.0
    return since_first_s


def reusable_tokens(requests: RequestTable) -> NDArray[np.int64]:
    """Return the leading input tokens of each request whose blocks an earlier request contains.

    "Earlier" refers to the table's order: by arrival, or session by session. Blocks are compared by
    hash id, including a partial last block of a prompt.

    Raises:
        WorkloadError: If the table has delta sessions.
    """
    if requests.is_delta:
        raise WorkloadError("reusable tokens: delta sessions do not give whole prompts")
    ids, starts = requests.prompt_ids, requests.prompt_starts
    is_new = np.zeros(ids.size, np.bool_)
    is_new[np.unique(ids, return_index=True)[1]] = True
    new_at = np.append(np.flatnonzero(is_new), ids.size)
    first_new = new_at[np.searchsorted(new_at, starts[:-1])]
    known_blocks = np.minimum(first_new, starts[1:]) - starts[:-1]
    known_tokens: NDArray[np.int64] = known_blocks * requests.trace_block_size
    return np.minimum(known_tokens, requests.input_tokens)


def window_counts(at_s: NDArray[np.float64], window_s: float) -> NDArray[np.int64]:
    """Return the arrivals in each whole window of ``window_s`` seconds, up to the last arrival."""
    if at_s.size == 0:
        return np.empty(0, np.int64)
    num_windows = int(at_s[-1] // window_s)
    window = (at_s // window_s).astype(np.int64)
    return np.bincount(window[window < num_windows], minlength=num_windows)


def _peak_rate(at_s: NDArray[np.float64], window_s: float) -> float | None:
    counts = window_counts(at_s, window_s)
    return float(counts.max() / window_s) if counts.size else None


def _dispersion(at_s: NDArray[np.float64], window_s: float) -> float | None:
    counts = window_counts(at_s, window_s)
    return float(counts.var() / counts.mean()) if counts.size > 1 and counts.any() else None


def _variation(gaps_s: NDArray[np.float64]) -> float | None:
    return float(gaps_s.std() / gaps_s.mean()) if gaps_s.size > 1 and gaps_s.any() else None


def _variation_in_minutes(at_s: NDArray[np.float64]) -> float | None:
    ends = np.cumsum(window_counts(at_s, MINUTE_S))
    weighted, num_gaps = 0.0, 0
    for minute in np.split(at_s[: ends[-1]] if ends.size else at_s[:0], ends[:-1]):
        gaps_s = np.diff(minute)
        variation = _variation(gaps_s)
        if variation is not None and gaps_s.size >= LEAST_GAPS_IN_MINUTE:
            weighted += variation * gaps_s.size
            num_gaps += gaps_s.size
    return weighted / num_gaps if num_gaps else None


def _share(part: NDArray[np.int64], whole: NDArray[np.int64]) -> float:
    return float(part.sum() / whole.sum())

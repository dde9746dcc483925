"""Key numbers of a run for comparing planners (policies.md §18.3)."""

import math
from dataclasses import dataclass

from aisim_gym.replay import Replay
from aisim_gym.report.report import Report, summarize


@dataclass(frozen=True)
class Headline:
    """One line of a comparison.

    Attributes:
        gpu_hours: Paid GPU time, starting and draining workers included.
        arrived: Requests that have arrived.
        completed: Requests that have completed.
        slo_attainment_frac: Share of the arrived requests that completed within every bound
            (inclusive): rejected, failed and unfinished requests are not good. 0.0 without
            arrivals.
        ttft_p50_ms: Median time to first token of completed requests.
        ttft_p99_ms: Its 99th percentile.
        itl_p50_ms: Median of all gaps between tokens of completed requests, to 0.1 %.
        itl_p99_ms: Its 99th percentile.
        num_scale_events: Workers started, cancelled and drained by scaling, together.
    """

    gpu_hours: float
    arrived: int
    completed: int
    slo_attainment_frac: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    itl_p50_ms: float
    itl_p99_ms: float
    num_scale_events: int


def headline(
    run: Report | Replay,
    ttft_slo_ms: float | None = None,
    itl_slo_ms: float | None = None,
) -> Headline:
    """Return the headline numbers of a run.

    Args:
        run: A replay, finished or paused, or its report.
        ttft_slo_ms: Bound on the time to first token.
        itl_slo_ms: Bound on a request's mean gap between tokens. Without either bound, the bounds
            of the spec apply; if it has none, every completed request is good.
    """
    report = summarize(run) if isinstance(run, Replay) else run
    bounds: tuple[float | None, ...] = (ttft_slo_ms, itl_slo_ms)
    if ttft_slo_ms is None and itl_slo_ms is None:
        bounds = (report.sla.ttft_ms, report.sla.itl_ms, report.sla.e2e_ms)
    good = int(report.completed.are_good(*bounds).sum())
    summary = report.summary
    return Headline(
        gpu_hours=summary["gpu_hours"],
        arrived=summary["num_requests"],
        completed=summary["completed_requests"],
        slo_attainment_frac=good / max(summary["num_requests"], 1),
        ttft_p50_ms=summary["median_ttft_ms"],
        ttft_p99_ms=summary["p99_ttft_ms"],
        itl_p50_ms=summary.get("median_itl_ms", math.nan),
        itl_p99_ms=summary.get("p99_itl_ms", math.nan),
        num_scale_events=report.scale_events.total,
    )

"""Results table of ``aisim-gym replay``: the headline numbers of one run."""

import numpy as np
from rich.table import Table

from aisim_gym.metrics.request_times import (
    REQUEST_CANCELED,
    REQUEST_FAILED,
    REQUEST_OPEN,
    REQUEST_REJECTED,
)
from aisim_gym.replay import Replay
from aisim_gym.report import Headline, Report, headline

NO_SAMPLES = "–"  # noqa: RUF001


def results_table(replay: Replay, report: Report) -> Table:
    """Return the results of a run, finished or not; a dash marks numbers without samples.

    Requests that did not complete have a line per reason, if any.
    """
    numbers = headline(report)
    table = Table("measure", "value", title="Replay")
    for name, value in (*_run_rows(replay, numbers), *_result_rows(report, numbers)):
        table.add_row(name, value)
    return table


def _run_rows(replay: Replay, numbers: Headline) -> list[tuple[str, str]]:
    state = "finished" if replay.is_done else "partial"
    if replay.hit_time_limit:
        state = "partial: stopped at max_sim_time_ms"
    rows = [
        ("state", state),
        ("simulated time", f"{replay.now_ms / 1000.0:,.1f} s"),
        ("replayed in", f"{replay.wall_s:.2f} s"),
    ]
    rows.append(("requests completed", f"{numbers.completed:,} of {numbers.arrived:,} arrived"))
    status = np.asarray(replay.state.world.requests)["status"]
    ends = np.bincount(status[: numbers.arrived], minlength=REQUEST_CANCELED + 1)
    for name, count in (
        ("requests rejected", ends[REQUEST_REJECTED]),
        ("requests failed", ends[REQUEST_FAILED]),
        ("requests canceled", ends[REQUEST_CANCELED]),
        ("requests unfinished", ends[REQUEST_OPEN]),
        ("requests not arrived", status.size - numbers.arrived),
    ):
        if count:
            rows.append((name, f"{count:,}"))
    return rows


def _result_rows(report: Report, numbers: Headline) -> list[tuple[str, str]]:
    summary = report.summary
    rows = [
        ("GPU-hours", f"{numbers.gpu_hours:.3f}"),
        (
            "output tokens/s",
            _measured(f"{summary['output_throughput_tok_s']:,.1f}", numbers.completed),
        ),
    ]
    if "goodput_request_throughput_rps" in summary:
        share = f"{100.0 * numbers.slo_attainment_frac:.2f} % of requests"
        goodput = f"{summary['goodput_request_throughput_rps']:.3f} requests/s"
        rows.append(("SLO met by", _measured(share, numbers.arrived)))
        rows.append(("goodput", _measured(goodput, numbers.completed)))
    ttft = f"{numbers.ttft_p50_ms:,.1f} / {numbers.ttft_p99_ms:,.1f} ms"
    itl = f"{numbers.itl_p50_ms:,.2f} / {numbers.itl_p99_ms:,.2f} ms"
    return [
        *rows,
        ("TTFT p50 / p99", _measured(ttft, summary["num_ttft_samples"])),
        ("ITL p50 / p99", _measured(itl, summary["num_tpot_samples"])),
        ("scale events", "{} started, {} cancelled, {} drained".format(*report.scale_events)),
    ]


def _measured(text: str, num_samples: int) -> str:
    return text if num_samples else NO_SAMPLES

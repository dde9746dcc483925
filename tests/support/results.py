"""What a run says, without what depends on the machine."""

from typing import Any

from aisim_gym.replay import Replay
from aisim_gym.report import summarize

WALL_CLOCK = ("wall_time_ms", "processed_tokens_per_s", "processed_output_tokens_per_s")


def results(replay: Replay) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return summary, records and lifecycle operations of a run."""
    report = summarize(replay)
    assert report.per_request is not None
    summary = {name: value for name, value in report.summary.items() if name not in WALL_CLOCK}
    return summary, list(report.per_request), report.lifecycle_operations

"""The results of a replay in one object: ``summarize(replay)``."""

from dataclasses import dataclass, field
from typing import Any

from aisim_gym.replay import Replay, TickRecord
from aisim_gym.replay.lifecycle_log import lifecycle_operations
from aisim_gym.report.completed import CompletedRequests
from aisim_gym.report.per_request import RequestRecords
from aisim_gym.report.scaling import ScaleEvents
from aisim_gym.report.summary import summarize_run
from aisim_gym.spec import SlaSpec


@dataclass(frozen=True, eq=False)
class Report:
    """Results of a run so far; a copy, unaffected if the replay continues.

    Attributes:
        summary: The reference's run summary (replay-runtime.md §15.3).
        per_request: A record per ended request, None without ``capture_per_request``.
        lifecycle_operations: Lifecycle operations of workers, empty without
            ``capture_planner_details`` or without ticks (replay-runtime.md §8).
        ticks: Observations and decisions of the planner per tick; empty without
            ``capture_planner_details``.
        coverage: What was captured, as the reference reports it (§15.7).
        completed: Sizes and latencies of the completed requests, regardless of capture options.
        scale_events: Workers started, cancelled and drained by scaling.
        telemetry: ``{sample_interval_ms, samples}`` (replay-runtime.md §16), None without
            ``telemetry_sample_interval_ms``.
        sla: The service level of the spec.
    """

    summary: dict[str, Any]
    per_request: RequestRecords | None = field(repr=False)
    lifecycle_operations: list[dict[str, Any]] = field(repr=False)
    ticks: tuple[TickRecord, ...] = field(repr=False)
    coverage: dict[str, Any]
    completed: CompletedRequests = field(repr=False)
    scale_events: ScaleEvents
    telemetry: dict[str, Any] | None = field(repr=False)
    sla: SlaSpec


def summarize(replay: Replay) -> Report:
    """Return the results of a finished or paused replay.

    Requests that have arrived but not ended count only in ``num_requests``.
    """
    spec, state = replay.spec, replay.state
    completed = CompletedRequests.of(state)
    records = RequestRecords(state, replay.session_ids) if spec.capture_per_request else None
    interval_ms = spec.telemetry_sample_interval_ms
    return Report(
        summary=summarize_run(replay, completed),
        per_request=records,
        lifecycle_operations=lifecycle_operations(state),
        ticks=tuple(replay.ticks),
        coverage={
            "capture_per_request": spec.capture_per_request,
            "capture_planner_details": bool(state.world.options.captures_operations),
            "per_request_records": 0 if records is None else len(records),
        },
        completed=completed,
        scale_events=ScaleEvents.of(replay),
        telemetry=(
            None
            if interval_ms is None
            else {"sample_interval_ms": interval_ms, "samples": list(replay.samples)}
        ),
        sla=spec.sla,
    )

"""Run the scenario of a golden file and compare the results, field by field."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from aisim_gym.conformance.difference import ABSENT, Difference, first_difference
from aisim_gym.conformance.golden import Golden
from aisim_gym.conformance.scenario_run import ScenarioRun, run_scenario
from aisim_gym.conformance.scripted_policy import ScriptEndedError
from aisim_gym.errors import UnsupportedError
from aisim_gym.report import RequestRecords

WALL_CLOCK_KEYS = frozenset(
    {"wall_time_ms", "processed_tokens_per_s", "processed_output_tokens_per_s"}
)
"""Keys of our summary that goldens do not have."""

OPTIONAL_COLUMNS = frozenset({"routing_history", "admission_history"})
"""Columns that large goldens omit."""


class Status(StrEnum):
    """Result of a comparison."""

    PASSED = "PASS"
    FAILED = "FAIL"
    SKIPPED = "SKIP"


@dataclass(frozen=True)
class Outcome:
    """Result of one golden file.

    Attributes:
        path: The file.
        name: The scenario.
        status: Passed, failed, or skipped (not compared).
        num_ticks: Recorded ticks.
        num_requests: Requests of the workload.
        difference: The first difference, if any.
        reason: Why it was skipped, if so.
        notes: Parts excluded from the comparison.
        exception: Exception that ended our run, or None.
    """

    path: Path
    name: str
    status: Status
    num_ticks: int
    num_requests: int
    difference: Difference | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    exception: Exception | None = None

    def __str__(self) -> str:
        """Return the outcome in one line."""
        if self.status is Status.FAILED:
            return f"{self.status} {self.name}: {self.difference}"
        if self.status is Status.SKIPPED:
            return f"{self.status} {self.name}: {self.reason}"
        details = (f"{self.num_ticks} ticks", f"{self.num_requests} requests", *self.notes)
        return f"{self.status} {self.name} ({', '.join(details)})"


def check_golden(source: str | Path | Golden) -> Outcome:
    """Run the scenario of a golden file and compare it with the recorded run.

    A scenario that this version does not replay is skipped.

    Args:
        source: A path, or a loaded golden file.

    Raises:
        GoldenError: If the file cannot be read or its scenario is not valid.
    """
    golden = source if isinstance(source, Golden) else Golden.read(source)
    try:
        run = run_scenario(golden)
    except UnsupportedError as error:
        return _outcome(golden, Status.SKIPPED, reason=str(error))
    difference = find_difference(golden, run)
    return _outcome(
        golden,
        Status.PASSED if difference is None else Status.FAILED,
        difference=difference,
        notes=_notes(golden),
        exception=run.exception,
    )


def find_difference(golden: Golden, run: ScenarioRun) -> Difference | None:
    """Return where our run of a scenario first differs from the recorded one, or None.

    The order of comparison is: snapshots, the error that ended the run, number of decisions,
    records per request, summary, lifecycle operations, telemetry.
    """
    return next(_differences(golden, run), None)


def _outcome(golden: Golden, status: Status, **results: Any) -> Outcome:
    return Outcome(
        golden.path, golden.name, status, golden.num_ticks, golden.num_requests, **results
    )


def _notes(golden: Golden) -> tuple[str, ...]:
    notes = []
    if golden.error is None:
        if golden.snapshots is None:
            notes.append("no snapshots recorded")
        if golden.per_request is None:
            notes.append("no records recorded")
        elif golden.per_request["row"] and not golden.per_request.keys() >= OPTIONAL_COLUMNS:
            notes.append("no histories recorded")
    return tuple(notes)


def _differences(golden: Golden, run: ScenarioRun) -> Iterator[Difference]:
    """Yield differences in the order of comparison; only the first is meaningful."""
    if golden.snapshots is not None:
        # Not strict: a different number of ticks is reported below.
        for ordinal, (got, expected) in enumerate(zip(run.seen, golden.snapshots, strict=False)):
            yield from _found(first_difference(f"tick {ordinal}", got, expected))
    if not isinstance(run.exception, ScriptEndedError):
        yield from _error_differences(golden, run.exception)
    if len(run.seen) != golden.num_ticks:
        yield Difference("run", "number of decisions", len(run.seen), golden.num_ticks)
    if (report := run.report) is not None and golden.error is None:
        if golden.per_request is not None:
            assert report.per_request is not None
            yield from _record_differences(golden.per_request, report.per_request)
        yield from _summary_differences(golden, report.summary)
        yield from _operation_differences(golden, report.lifecycle_operations)
        if golden.telemetry is not None:
            yield from _telemetry_differences(golden.telemetry, report.telemetry)


def _found(difference: Difference | None) -> Iterator[Difference]:
    if difference is not None:
        yield difference


def _error_differences(golden: Golden, exception: Exception | None) -> Iterator[Difference]:
    """Compare errors: our message must contain the recorded one; ``Exception`` matches any type."""
    expected = golden.error
    got_text = None if exception is None else f"{type(exception).__name__}: {exception}"
    if expected is None or exception is None:
        if expected is not None or exception is not None:
            expected_text = expected and f"{expected['type']}: {expected['message']}"
            yield Difference("run", "error", got_text, expected_text)
        return
    type_names = [base.__name__ for base in type(exception).__mro__]
    if expected["type"] not in type_names:
        yield Difference("run", "error.type", type_names[0], expected["type"])
    if expected["message"] not in str(exception):
        yield Difference("run", "error.message", str(exception), expected["message"])


def _record_differences(
    expected: dict[str, list[Any]], records: RequestRecords
) -> Iterator[Difference]:
    order = np.argsort(records.row).tolist()
    rows = records.row[order].tolist()
    if rows != expected["row"]:
        row = min(set(rows) ^ set(expected["row"]))
        found = (ABSENT, "a record") if row in expected["row"] else ("a record", ABSENT)
        yield Difference(f"request row {row}", "", *found)
        return
    ours = {name: values for name, values in records.columns.items() if name != "uuid"}
    names = [*ours, *(name for name in expected if name not in ours and name != "row")]
    names = [name for name in names if name in expected or name not in OPTIONAL_COLUMNS]
    for position, (row, index) in enumerate(zip(rows, order, strict=True)):
        for name in names:
            got = _without_nulls(ours[name][index]) if name in ours else ABSENT
            if name in expected:
                wanted = expected[name][position]
            else:  # goldens omit all-null columns; ours may contain empty lists
                got, wanted = got or None, None
            yield from _found(first_difference(f"request row {row}", got, wanted, name))


def _without_nulls(value: Any) -> Any:
    """Remove null values from the entries of a history, as in goldens."""
    if not isinstance(value, list):
        return value
    return [{key: item for key, item in entry.items() if item is not None} for entry in value]


def _summary_differences(golden: Golden, summary: dict[str, Any]) -> Iterator[Difference]:
    ours = {key: value for key, value in summary.items() if key not in WALL_CLOCK_KEYS}
    yield from _found(first_difference("summary", ours, golden.summary))


def _operation_differences(
    golden: Golden, operations: list[dict[str, Any]]
) -> Iterator[Difference]:
    expected = golden.lifecycle_operations or []
    pairs = zip_longest(map(_with_rows, operations), expected, fillvalue=ABSENT)
    for ordinal, (got, wanted) in enumerate(pairs):
        yield from _found(first_difference(f"operation {ordinal}", got, wanted))


def _with_rows(operation: dict[str, Any]) -> dict[str, Any]:
    """Identify released requests by their rows, as in goldens."""
    operation = dict(operation)
    uuids = operation.pop("topology_released_request_uuids")
    return {**operation, "topology_released_rows": [UUID(uuid).int - 1 for uuid in uuids]}


def _telemetry_differences(
    expected: dict[str, Any], telemetry: dict[str, Any] | None
) -> Iterator[Difference]:
    if telemetry is None:
        yield Difference("telemetry", "", ABSENT, "samples")
        return
    pairs = zip_longest(telemetry["samples"], expected["samples"], fillvalue=ABSENT)
    for ordinal, (got, wanted) in enumerate(pairs):
        yield from _found(first_difference(f"sample {ordinal}", got, wanted))
    yield from _found(
        first_difference(
            "telemetry",
            telemetry["sample_interval_ms"],
            expected["sample_interval_ms"],
            "sample_interval_ms",
        )
    )

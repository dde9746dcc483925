"""Running the scenario of a golden file and comparing the results, field by field."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np

from aisim_gym.conformance.difference import ABSENT, Difference, first_difference
from aisim_gym.conformance.golden import Golden, GoldenError
from aisim_gym.conformance.scripted_policy import ScriptedPolicy, ScriptEndedError
from aisim_gym.errors import UnsupportedError
from aisim_gym.replay import Replay
from aisim_gym.report import Report, RequestRecords, summarize

WALL_CLOCK_KEYS = frozenset(
    {"wall_time_ms", "processed_tokens_per_s", "processed_output_tokens_per_s"}
)
"""Keys of our summary that no golden has."""

OPTIONAL_COLUMNS = frozenset({"routing_history", "admission_history"})
"""Columns that large goldens leave out although the run had them."""


class Status(StrEnum):
    """How a comparison ended."""

    PASSED = "PASS"
    FAILED = "FAIL"
    SKIPPED = "SKIP"


@dataclass(frozen=True)
class Outcome:
    """Result of one golden file.

    Attributes:
        path: The file.
        name: The scenario.
        status: Passed, failed, or skipped: not compared, so not passed either.
        num_ticks: Recorded ticks.
        num_requests: Requests of the workload.
        difference: The first difference, if it failed.
        reason: Why it was skipped, if it was.
        notes: What was left out of the comparison.
        exception: What ended our run, or None.
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
    """Run the scenario of a golden file and compare it with what was recorded.

    Compared are, in this order and up to the first difference: the snapshots, the error that ended
    the run, the number of decisions, the records per request, the summary, the lifecycle
    operations. A scenario that this version does not replay is skipped.

    Args:
        source: A file, or one already read.

    Raises:
        GoldenError: If the file cannot be read or its scenario is not valid.
    """
    golden = source if isinstance(source, Golden) else Golden.read(source)
    policy = ScriptedPolicy(golden) if golden.has_policy else None
    report: Report | None = None
    exception: Exception | None = None
    try:
        spec = golden.spec()
        requests = golden.requests(spec)
        report = summarize(Replay.run(spec, policy, requests))
    except UnsupportedError as error:
        return _outcome(golden, Status.SKIPPED, reason=str(error))
    except GoldenError:
        raise
    except Exception as error:  # whatever ends a run is a result to compare
        exception = error
    seen = [] if policy is None else policy.seen
    difference = next(_differences(golden, seen, exception, report), None)
    return _outcome(
        golden,
        Status.PASSED if difference is None else Status.FAILED,
        difference=difference,
        notes=_notes(golden),
        exception=exception,
    )


def _outcome(golden: Golden, status: Status, **results: Any) -> Outcome:
    return Outcome(
        golden.path, golden.name, status, golden.num_ticks, golden.num_requests, **results
    )


def _notes(golden: Golden) -> tuple[str, ...]:
    notes = []
    if golden.has_telemetry:
        notes.append("telemetry not compared")
    if golden.error is None:
        if golden.snapshots is None:
            notes.append("no snapshots recorded")
        if golden.per_request is None:
            notes.append("no records recorded")
        elif golden.per_request["row"] and not golden.per_request.keys() >= OPTIONAL_COLUMNS:
            notes.append("no histories recorded")
    return tuple(notes)


def _differences(
    golden: Golden,
    seen: list[dict[str, Any]],
    exception: Exception | None,
    report: Report | None,
) -> Iterator[Difference]:
    """Yield differences in the order of comparison; only the first means something."""
    if golden.snapshots is not None:
        # Not strict: a run that saw too few or too many ticks is told below.
        for ordinal, (got, expected) in enumerate(zip(seen, golden.snapshots, strict=False)):
            yield from _found(first_difference(f"tick {ordinal}", got, expected))
    if not isinstance(exception, ScriptEndedError):
        yield from _error_differences(golden, exception)
    if len(seen) != golden.num_ticks:
        yield Difference("run", "decisions asked for", len(seen), golden.num_ticks)
    if report is not None and golden.error is None:
        if golden.per_request is not None:
            assert report.per_request is not None
            yield from _record_differences(golden.per_request, report.per_request)
        yield from _summary_differences(golden, report.summary)
        yield from _operation_differences(golden, report.lifecycle_operations)


def _found(difference: Difference | None) -> Iterator[Difference]:
    if difference is not None:
        yield difference


def _error_differences(golden: Golden, exception: Exception | None) -> Iterator[Difference]:
    """Our message contains the recorded one; a plain ``Exception`` may be of any type here."""
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
            else:  # a column that is null everywhere is left out; ours may be an empty list
                got, wanted = got or None, None
            yield from _found(first_difference(f"request row {row}", got, wanted, name))


def _without_nulls(value: Any) -> Any:
    """Leave null values out of the entries of a history, as goldens do."""
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
    for ordinal in range(max(len(operations), len(expected))):
        got = _with_rows(operations[ordinal]) if ordinal < len(operations) else ABSENT
        wanted = expected[ordinal] if ordinal < len(expected) else ABSENT
        yield from _found(first_difference(f"operation {ordinal}", got, wanted))


def _with_rows(operation: dict[str, Any]) -> dict[str, Any]:
    """Name released requests by their rows, as goldens do."""
    operation = dict(operation)
    uuids = operation.pop("topology_released_request_uuids")
    return {**operation, "topology_released_rows": [UUID(uuid).int - 1 for uuid in uuids]}

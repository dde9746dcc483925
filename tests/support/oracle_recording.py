"""From an answer of the reference to a golden: requests are named by their rows.

The records of the reference carry random ids. Turns of sessions are found by session and turn. In
a plain list some requests may differ in nothing but their prompts' content; those are paired with
ours in the order of everything that the records say.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.oracle import VERSION

from aisim_gym.conformance import Golden, ScenarioRun
from aisim_gym.conformance.compare import OPTIONAL_COLUMNS, WALL_CLOCK_KEYS
from aisim_gym.conformance.golden import FORMAT

Record = dict[str, Any]

NOWHERE = Path("<memory>")
"""Path of a golden that is in no file."""


def unrecorded_data(scenario: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a golden file whose scenario has no results."""
    return {"format": FORMAT, "scenario": scenario, "snapshots": []}


def unrecorded(scenario: dict[str, Any]) -> Golden:
    """Return a scenario that has not been run yet."""
    return Golden.from_data(unrecorded_data(scenario), NOWHERE)


def golden_data(golden: Golden, answer: dict[str, Any], run: ScenarioRun) -> dict[str, Any]:
    """Return the content of the golden file of a scenario.

    Args:
        golden: The scenario.
        answer: What the reference made of it (``Oracle.run``).
        run: What we made of it.
    """
    snapshots = answer["snapshots"]
    data = {
        "format": FORMAT,
        "reference": f"ai-dynamo-runtime {VERSION}",
        "scenario": {**golden.scenario, "ticks": _asked_for(golden, len(snapshots))},
        "error": answer["error"],
        "snapshots": snapshots,
    }
    if answer["error"] is not None:
        return data
    records = answer["per_request"]
    uuids = [record["uuid"] for record in records]
    row_of = dict(zip(uuids, _rows(golden, records, run), strict=True))
    return {
        **data,
        "per_request": _columns(records, row_of),
        "summary": {
            key: value for key, value in answer["summary"].items() if key not in WALL_CLOCK_KEYS
        },
        "lifecycle_operations": [
            _with_rows(operation, row_of) for operation in answer["lifecycle_operations"]
        ],
        "telemetry": answer["telemetry"],
    }


def _asked_for(golden: Golden, num_ticks: int) -> dict[str, Any] | None:
    """Return the script without the decisions that the run did not ask for."""
    if not golden.has_policy:
        return None
    ticks: dict[str, Any] = golden.scenario["ticks"]
    return {**ticks, "decisions": golden.decisions[: golden.raise_at or num_ticks][:num_ticks]}


def _rows(golden: Golden, records: list[Record], run: ScenarioRun) -> list[int]:
    """Return the row of each record."""
    if any(record["session_id"] is not None for record in records):
        return _rows_of_turns(golden.scenario["workload"]["rows"], records)
    return _rows_of_requests(golden.num_requests, records, run)


def _rows_of_turns(rows: list[dict[str, Any]], records: list[Record]) -> list[int]:
    row_of: dict[tuple[str, int], int] = {}
    turns: dict[str, int] = defaultdict(int)
    for index, row in enumerate(rows):
        session = row.get("session_id") or f"request_{index + 1}"
        row_of[session, turns[session]] = index
        turns[session] += 1
    return [row_of[record["session_id"], record["turn_index"]] for record in records]


def _rows_of_requests(num_requests: int, records: list[Record], run: ScenarioRun) -> list[int]:
    ours: dict[Any, list[tuple[str, int]]] = defaultdict(list)
    our_records = run.report and run.report.per_request
    if our_records:
        for row, record in zip(our_records.row.tolist(), our_records, strict=True):
            ours[_looks(record)].append((_content(record), row))
    theirs: dict[Any, list[tuple[str, int]]] = defaultdict(list)
    for index, record in enumerate(records):
        theirs[_looks(record)].append((_content(record), index))
    row_of = {
        index: row
        for looks, group in theirs.items()
        for (_, index), (_, row) in zip(sorted(group), sorted(ours[looks]), strict=False)
    }
    # Where the runs differ, a record may have no partner: any row will do.
    left = iter(sorted(set(range(num_requests)) - set(row_of.values())))
    return [row_of[index] if index in row_of else next(left) for index in range(len(records))]


def _looks(record: Record) -> tuple[Any, ...]:
    """Return what is known of a request before it runs."""
    return tuple(
        record[name] for name in ("arrival_time_ms", "input_length", "requested_output_length")
    )


def _content(record: Record) -> str:
    """Return everything that a record says of a run."""
    return json.dumps({**record, "uuid": None}, sort_keys=True)


def _columns(records: list[Record], row_of: dict[str, int]) -> dict[str, list[Any]]:
    """Return the records by row, without their ids and without columns that say nothing."""
    ordered = sorted(records, key=lambda record: row_of[record["uuid"]])
    columns: dict[str, list[Any]] = {"row": [row_of[record["uuid"]] for record in ordered]}
    for name in ordered[0] if ordered else ():
        values = [_without_nulls(record[name]) for record in ordered]
        if name in OPTIONAL_COLUMNS or (name != "uuid" and any(map(_says_something, values))):
            columns[name] = values
    return columns


def _says_something(value: Any) -> bool:
    return value is not None and value != []


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [
        {key: item for key, item in entry.items() if item is not None}
        if isinstance(entry, dict)
        else entry
        for entry in value
    ]


def _with_rows(operation: dict[str, Any], row_of: dict[str, int]) -> dict[str, Any]:
    operation = dict(operation)
    released: Iterable[str] = operation.pop("topology_released_request_uuids")
    return {**operation, "topology_released_rows": [row_of[uuid] for uuid in released]}

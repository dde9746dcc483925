"""Write a report to a folder, as JSON, CSV and Parquet."""

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from aisim_gym.replay import TickRecord
from aisim_gym.report.atomic_file import replace_file
from aisim_gym.report.per_request import RequestRecords
from aisim_gym.report.report import Report

SUMMARY, LIFECYCLE, TICKS = "summary.json", "lifecycle.json", "ticks.csv"
TELEMETRY = "telemetry.jsonl"
REQUESTS_CSV, REQUESTS_JSONL = "requests.csv", "requests.jsonl"
REQUESTS_PARQUET = "requests.parquet"


def write_report(report: Report, folder: str | Path, *, parquet: bool = False) -> list[Path]:
    """Write a report to ``folder``, which is created if missing.

    =====================  =====================================================================
    ``summary.json``       the summary
    ``ticks.csv``          observations and decisions of the planner, a line per tick
    ``lifecycle.json``     lifecycle operations of workers, a list
    ``telemetry.jsonl``    a telemetry sample per line, as the reference's ``telemetry_jsonl_path``
    ``requests.jsonl``     a full record per line, as the reference's ``report_jsonl_path``
    ``requests.csv``       the same without the histories; an empty cell is null
    ``requests.parquet``   like the CSV, typed; optional
    =====================  =====================================================================

    Text is UTF-8, and floats read back equal. Each file appears complete or not at all; files of an
    earlier report in the folder are replaced, or removed if this report has no data for them.

    Args:
        report: The report.
        folder: Destination; ``~`` is expanded.
        parquet: Whether to also write ``requests.parquet``; needs the extra ``parquet``.

    Returns:
        The files written.

    Raises:
        ImportError: If ``parquet`` is true and pyarrow is not installed; nothing is written.
    """
    if parquet:
        _import_pyarrow()
    folder = Path(folder).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    for name in (TELEMETRY, REQUESTS_JSONL, REQUESTS_CSV, REQUESTS_PARQUET):
        (folder / name).unlink(missing_ok=True)
    written = [
        _write_json(folder / SUMMARY, report.summary),
        _write_csv(folder / TICKS, TickRecord._fields, report.ticks),
        _write_json(folder / LIFECYCLE, report.lifecycle_operations),
    ]
    if report.telemetry is not None:
        written.append(_write_jsonl(folder / TELEMETRY, report.telemetry["samples"]))
    records = report.per_request
    if records is not None:
        columns = records.flat_columns
        rows = zip(*columns.values(), strict=True)
        written.append(write_records_jsonl(records, folder / REQUESTS_JSONL))
        written.append(_write_csv(folder / REQUESTS_CSV, tuple(columns), rows))
        if parquet:
            written.append(_write_parquet(folder / REQUESTS_PARQUET, columns))
    return written


def write_records_jsonl(records: RequestRecords, path: str | Path) -> Path:
    """Write one JSON object per record and line, like the reference's ``report_jsonl_path``."""
    return _write_jsonl(Path(path).expanduser(), records)


def _write_jsonl(target: Path, objects: Iterable[dict[str, Any]]) -> Path:
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    with replace_file(target) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(encoder.encode(item) + "\n" for item in objects)
    return target


def _write_json(path: Path, value: Any) -> Path:
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with replace_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    return path


def _write_csv(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    with replace_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
    return path


def _write_parquet(path: Path, columns: dict[str, list[Any]]) -> Path:
    pyarrow, parquet = _import_pyarrow()
    table = pyarrow.table({name: _typed(pyarrow, name, values) for name, values in columns.items()})
    with replace_file(path) as temporary:
        parquet.write_table(table, temporary)
    return path


def _typed(pyarrow: Any, name: str, values: list[Any]) -> Any:
    """Return a column whose type is the same even if all values are null."""
    if name.endswith("_ms"):
        return pyarrow.array(values, pyarrow.float64())
    if name in ("session_id", "uuid", "terminal_status"):
        return pyarrow.array(values, pyarrow.string())
    return pyarrow.array(values, pyarrow.int64())


def _import_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(
            f"writing {REQUESTS_PARQUET} needs pyarrow, which is not installed: "
            "pip install 'aisim-gym[parquet]'"
        ) from error
    return pyarrow, pyarrow.parquet

"""CSV files that grow during training; their first column is ``steps``."""

import csv
from collections.abc import Sequence
from pathlib import Path

from aisim_gym.report.atomic_file import replace_file


def start_rows(path: Path, columns: Sequence[str], from_steps: int) -> None:
    """Create a file, or continue it from a step.

    Args:
        path: The file.
        columns: Names of its columns, ``steps`` first.
        from_steps: Later rows are removed, because their steps are repeated.
    """
    kept: list[list[str]] = []
    if from_steps > 0 and path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            kept = [row for row in list(csv.reader(file))[1:] if int(row[0]) <= from_steps]
    with replace_file(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *kept])


def append_rows(path: Path, rows: Sequence[Sequence[object]]) -> None:
    """Add rows to the end of a file."""
    if rows:
        with path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)


def read_rows(path: Path) -> list[dict[str, float]]:
    """Return the rows of a file of numbers."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]

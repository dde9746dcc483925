"""Golden files for tests: where they lie, and changed copies of them."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

GOLDENS = Path(__file__).parents[1] / "conformance" / "data" / "goldens"
"""The recorded runs that this version must reproduce."""

ERROR_PROBES = GOLDENS.parent / "errors.json"
"""The reference's answers to invalid, odd or impossible input."""

FOUND = GOLDENS.parent / "found"
"""Runs of the reference recorded where random comparisons once found a difference."""


def golden_path(name: str) -> Path:
    """Return the file of a scenario."""
    return GOLDENS / f"{name}.json.gz"


def write_changed(name: str, folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Write a copy of a golden file into ``folder`` with ``change`` applied to its content."""
    with gzip.open(golden_path(name), "rt", encoding="utf-8") as file:
        content = json.load(file)
    change(content)
    path = folder / f"{name}.json.gz"
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        json.dump(content, file)
    return path

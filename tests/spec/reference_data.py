"""Where the reference's recorded behaviour lies, and how the probes in errors.json are read."""

import gzip
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from support.goldens import ERROR_PROBES
from support.shared_folder import require_shared


def load_probes() -> dict[str, Any]:
    """Return errors.json with ``{"$float": "nan"}`` resolved."""
    probes: dict[str, Any] = json.loads(ERROR_PROBES.read_text("utf-8"), object_hook=_resolve_float)
    return probes


def probes_of(stage: str) -> list[Any]:
    """Return the cases of one stage as pytest parameters named by their ids."""
    cases = load_probes()["cases"]
    return [pytest.param(case, id=case["id"]) for case in cases if case["stage"] == stage]


def golden_scenarios() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and scenario of every golden run, the speed scenarios included."""
    folder = require_shared("goldens")
    for path in sorted((*folder.glob("*.json.gz"), *folder.glob("bench/*.json.gz"))):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            yield path.name, json.load(file)["scenario"]


def patched(config: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``config`` with ``changes`` applied; a changed timing model replaces the old one."""
    result = dict(config)
    for key, change in changes.items():
        nested = isinstance(change, Mapping) and key != "timing_model"
        result[key] = patched(config[key], change) if nested else change
    return result


def _resolve_float(value: dict[str, Any]) -> Any:
    return float(value["$float"]) if value.keys() == {"$float"} else value

"""Every ``workload`` probe of errors.json: verdict and wording (workloads.md §14)."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.goldens import ERROR_PROBES

from aisim_gym.errors import WorkloadError
from aisim_gym.spec.workload import WorkloadSpec
from aisim_gym.workload import load_workload


def load_probes() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(ERROR_PROBES.read_text(encoding="utf-8"))["cases"]
    return [case for case in cases if case["stage"] == "workload"]


PROBES = load_probes()


def load_probe(probe: dict[str, Any], path: Path) -> list[tuple[int, int]]:
    """Write the probe's rows, load them, return (input, output) tokens of the requests."""
    rows = probe["input"]["rows"]
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    table = load_workload(WorkloadSpec(trace_files=(path,), **probe["input"]["kwargs"]))
    return list(zip(table.input_tokens.tolist(), table.output_tokens.tolist(), strict=True))


def test_probes_are_there() -> None:
    assert len(PROBES) >= 37


@pytest.mark.parametrize(
    "probe",
    [probe for probe in PROBES if probe["result"]["status"] == "error"],
    ids=lambda probe: str(probe["id"]),
)
def test_invalid_rows_are_refused_in_the_words_of_the_reference(
    probe: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    with pytest.raises(WorkloadError) as caught:
        load_probe(probe, path)
    assert probe["result"]["message"].replace("<trace>", str(path)) in str(caught.value)


@pytest.mark.parametrize(
    "probe",
    [probe for probe in PROBES if probe["result"]["status"] == "ok"],
    ids=lambda probe: str(probe["id"]),
)
def test_valid_rows_are_loaded(probe: dict[str, Any], tmp_path: Path) -> None:
    expected = [(length, output) for length, output, _ in probe["result"]["terminal"]]
    assert sorted(load_probe(probe, tmp_path / "t.jsonl")) == sorted(expected)

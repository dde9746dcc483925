"""Every probe of invalid, odd or impossible input, from the call to the end of its run.

A probe is a configuration, or keyword arguments of an entry point of the reference with a trace and
a policy. Ours must end in the same way: the same exception type where Python names one, with the
reference's text in the message, or the same configuration, or the same requests with the same
outcomes after the same number of ticks. The types that are ours are listed in
``docs/differences.md``.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from spec.reference_data import load_probes, patched
from support.source_tree import ROOT

from aisim_gym.replay import FleetDescription, Replay, ScalingSnapshot
from aisim_gym.report import summarize
from aisim_gym.spec import (
    parse_launch_config,
    replay_spec_from_reference_arguments,
    replay_spec_from_synthetic_arguments,
)

DEFAULT_CONFIG = load_probes()["default_config"]
PROBES = load_probes()["cases"]

pytestmark = pytest.mark.filterwarnings("ignore:the workload's mean rate:UserWarning")


class ProbePolicy:
    """Answers every tick as the probe says.

    Attributes:
        ticks: How often it was asked.
    """

    def __init__(self, probe: dict[str, Any]) -> None:
        self.probe = probe
        self.ticks = 0

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        self.ticks = 0

    def initial_tick_ms(self) -> Any:
        if "initial_raises" in self.probe:
            raise RuntimeError(self.probe["initial_raises"])
        return self.probe["initial"]

    def on_tick(self, snapshot: ScalingSnapshot) -> Any:
        self.ticks += 1
        if "raises" in self.probe:
            raise RuntimeError(self.probe["raises"])
        if self.probe.get("once") and self.ticks == 3:
            return dict.fromkeys(("target_prefill", "target_decode", "next_tick_ms"))
        return self.probe["returns"]


def policy_of(probe: dict[str, Any]) -> Any:
    """Return the policy object of a probe, None without one."""
    policy = probe["input"].get("policy")
    if policy is None:
        return None
    return object() if policy.get("object") else ProbePolicy(policy)


def run_probe(probe: dict[str, Any], path: Path, policy: Any) -> Any:
    """Return the normalized configuration of a probe, or its replay; its trace is at ``path``."""
    given = probe["input"]
    if probe["stage"] == "config":
        return parse_launch_config(given["config"]).normalized()
    if probe["stage"] == "synthetic":
        arguments = {"capture_per_request": True, **given["kwargs"]}
        return Replay.run(replay_spec_from_synthetic_arguments(*given["args"], **arguments))
    rows = given.get("rows", ())
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    arguments = {"trace_files": ["$trace"], **given["kwargs"]}
    arguments["trace_files"] = [
        path if file == "$trace" else file for file in arguments["trace_files"]
    ]
    spec = replay_spec_from_reference_arguments(
        **arguments, scaling_policy=policy, capture_per_request=True
    )
    return Replay.run(spec, policy)


def error_of(probe: dict[str, Any], path: Path) -> Exception | None:
    """Return what ends the run of a probe, None if it runs."""
    try:
        run_probe(probe, path, policy_of(probe))
    except Exception as error:
        return error
    return None


def probes(status: str, *, config: bool | None = None) -> list[Any]:
    """Return the probes that end as ``error`` or ``ok``: configurations, runs or both."""
    return [
        pytest.param(probe, id=probe["id"])
        for probe in PROBES
        if probe["result"]["status"] == status and config in (None, probe["stage"] == "config")
    ]


@pytest.mark.parametrize("probe", probes("error"))
def test_probe_fails_like_the_reference(probe: dict[str, Any], tmp_path: Path) -> None:
    expected, path = probe["result"], tmp_path / "trace.jsonl"
    error = error_of(probe, path)
    assert expected["type"] in [base.__name__ for base in type(error).__mro__], error
    assert expected["message"].replace("<trace>", str(path)) in str(error)


@pytest.mark.parametrize("probe", probes("ok", config=True))
def test_configuration_is_normalized_like_the_reference(probe: dict[str, Any]) -> None:
    changes = probe["result"]["normalized_changes"]
    assert run_probe(probe, Path(), None) == patched(DEFAULT_CONFIG, changes)


@pytest.mark.parametrize("probe", probes("ok", config=False))
def test_probe_runs_like_the_reference(probe: dict[str, Any], tmp_path: Path) -> None:
    expected, policy = probe["result"], policy_of(probe)
    report = summarize(run_probe(probe, tmp_path / "trace.jsonl", policy))
    assert report.per_request is not None
    columns = report.per_request.columns
    names = ("input_length", "output_length", "terminal_status")
    assert sorted(map(list, zip(*(columns[name] for name in names), strict=True))) == sorted(
        expected["terminal"]
    )
    assert report.summary["completed_requests"] == expected["completed"]
    if "ticks" in expected:
        assert policy.ticks == expected["ticks"]


def test_no_probe_is_left_out() -> None:
    assert len(PROBES) == 218
    tried = [*probes("error"), *probes("ok", config=True), *probes("ok", config=False)]
    assert len(tried) == 218


def test_page_of_differences_lists_the_exception_types_of_all_probes(tmp_path: Path) -> None:
    """It counts the probes by the type that the reference raises and the one that we raise."""
    found: Counter[tuple[str, str]] = Counter()
    for probe in PROBES:
        if probe["result"]["status"] == "error":
            error = error_of(probe, tmp_path / "trace.jsonl")
            found[probe["result"]["type"], type(error).__name__] += 1
    text = (ROOT / "docs" / "differences.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)`[^|]*\| (\d+) \|", text, re.MULTILINE)
    assert {(theirs, ours): int(count) for theirs, ours, count in rows} == found
    num_equal = len(PROBES) - found.total()
    assert f"{found.total()} end in an error" in text
    assert f"{num_equal} are valid" in text

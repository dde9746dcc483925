"""Every probe of invalid, odd or impossible input that needs a whole run.

A probe is a trace, keyword arguments of the reference's entry point and a policy. Ours must end in
the same way: the same exception type where Python names one, with the reference's text in the
message, or the same requests with the same outcomes after the same number of ticks. Probes of
stage ``config`` and the refusals of stage ``replay`` are in ``tests/spec``.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from spec.reference_data import load_probes

from aisim_gym.errors import UnsupportedError
from aisim_gym.replay import FleetDescription, Replay, ScalingSnapshot
from aisim_gym.report import summarize
from aisim_gym.spec import replay_spec_from_reference_arguments

STAGES = ("decision", "runtime", "workload", "replay")

NOT_REPLAYED = {
    "runtime/prompt-exceeds-cache-sglang": "backend",
    "runtime/generation-exceeds-cache-sglang": "backend",
    "runtime/prompt-exceeds-max-model-len-sglang": "backend",
    "runtime/prompt-exceeds-cache-disagg-sglang": "backend",
    "runtime/sglang-prompt-exceeds-max-prefill": "backend",
    "runtime/prompt-exceeds-cache-trtllm": "backend",
    "runtime/generation-exceeds-cache-trtllm": "backend",
    "runtime/prompt-exceeds-max-model-len-trtllm": "backend",
    "runtime/prompt-exceeds-cache-disagg-trtllm": "backend",
    "runtime/unchunked-prompt-exceeds-budget-trtllm": "backend",
    "workload/missing-timestamp-concurrency": "closed loop",
    "workload/second-turn-without-timing": "session with two turns",
    "workload/second-turn-delay-and-timestamp": "session with two turns",
}
"""Valid probes that this version refuses to run, and what for."""

PROBES = [case for case in load_probes()["cases"] if case["stage"] in STAGES]
OURS = [probe for probe in PROBES if probe["id"] not in NOT_REPLAYED]


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
    policy = probe["input"]["policy"]
    if policy is None:
        return None
    return object() if policy.get("object") else ProbePolicy(policy)


def run_probe(probe: dict[str, Any], path: Path, policy: Any) -> Replay:
    """Write the trace of a probe to ``path`` and replay it."""
    rows = probe["input"]["rows"]
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    arguments: dict[str, Any] = {"trace_files": [path], **probe["input"]["kwargs"]}
    if "trace_files" in probe["input"]["kwargs"]:
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


def probe_id(probe: dict[str, Any]) -> str:
    return str(probe["id"])


@pytest.mark.filterwarnings("ignore:the workload's mean rate:UserWarning")
@pytest.mark.parametrize(
    "probe", [probe for probe in OURS if probe["result"]["status"] == "error"], ids=probe_id
)
def test_probe_fails_like_the_reference(probe: dict[str, Any], tmp_path: Path) -> None:
    expected, path = probe["result"], tmp_path / "trace.jsonl"
    error = error_of(probe, path)
    assert expected["type"] in [base.__name__ for base in type(error).__mro__], error
    assert expected["message"].replace("<trace>", str(path)) in str(error)


@pytest.mark.filterwarnings("ignore:the workload's mean rate:UserWarning")
@pytest.mark.parametrize(
    "probe", [probe for probe in OURS if probe["result"]["status"] == "ok"], ids=probe_id
)
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


@pytest.mark.parametrize("probe_name", NOT_REPLAYED)
def test_probe_that_is_not_replayed_says_so(probe_name: str, tmp_path: Path) -> None:
    probe = next(probe for probe in PROBES if probe["id"] == probe_name)
    with pytest.raises(UnsupportedError):
        run_probe(probe, tmp_path / "trace.jsonl", policy_of(probe))


def test_no_probe_is_left_out() -> None:
    assert len(PROBES) == 127
    assert NOT_REPLAYED.keys() <= {probe["id"] for probe in PROBES}

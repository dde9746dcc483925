"""Runs the reference call by call: one JSON object per line in, one per line out.

A script for an interpreter that has ``dynamo`` (ai-dynamo-runtime); it needs nothing else. The
reference can loop forever, where no Python code could stop it: a call that takes too long ends
this process by a signal.
"""

import json
import math
import os
import signal
import sys
import tempfile
from typing import Any

from dynamo._core import run_mocker_trace_replay

POLICY_FAILURE = "scripted policy failure"


class OraclePolicy:
    """Answers each tick with the next decision of a script and keeps what it saw."""

    def __init__(self, ticks: dict[str, Any]) -> None:
        self.ticks = ticks
        self.seen: list[dict[str, Any]] = []

    def initial_tick_ms(self) -> float:
        first_ms = self.ticks["initial_tick_ms"]
        return math.inf if first_ms is None else float(first_ms)

    def on_tick(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        ordinal = len(self.seen)
        self.seen.append(snapshot)
        if ordinal == self.ticks.get("raise_at"):
            raise RuntimeError(POLICY_FAILURE)
        names = ("target_prefill", "target_decode", "next_tick_ms")
        return dict(zip(names, self.ticks["decisions"][ordinal], strict=True))


def answer(call: dict[str, Any]) -> dict[str, Any]:
    """Return what came of one call."""
    policy = None if call["ticks"] is None else OraclePolicy(call["ticks"])
    result: dict[str, Any] = {"error": None}
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
        trace.writelines(json.dumps(row) + "\n" for row in call["rows"])
        trace.flush()
        try:
            outcome = run_mocker_trace_replay(
                [trace.name],
                scaling_policy=policy,
                capture_planner_details=True,
                **call["arguments"],
            )
        except BaseException as error:  # a panic of the reference is no Exception
            result["error"] = {"type": type(error).__name__, "message": str(error)}
        else:
            for name in ("summary", "per_request", "lifecycle_operations", "telemetry"):
                result[name] = getattr(outcome, name)
    result["snapshots"] = [] if policy is None else policy.seen
    return result


def limit_time(cpu_s: float, wall_s: float) -> None:
    """End this process after so many seconds from now; 0 = never."""
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wall_s)


def main() -> None:
    """Answer calls until standard input ends."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever the reference prints
        for line in sys.stdin:
            call = json.loads(line)
            limit_time(call["cpu_limit_s"], 30.0 * call["cpu_limit_s"])
            result = answer(call)
            limit_time(0.0, 0.0)
            print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()

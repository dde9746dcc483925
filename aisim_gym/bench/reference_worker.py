"""Run and time reference calls: one JSON object per line in, one per line out.

A script for an interpreter that has ``dynamo`` (ai-dynamo-runtime); it needs no other package, not
even this one. Its first output line gives the version.
"""

import json
import os
import sys
import time
from importlib.metadata import version
from typing import Any


class ReferenceKeepFleet:
    """Reads the queues at every tick and leaves the fleet unchanged."""

    def __init__(self, every_ms: float) -> None:
        """Tick every ``every_ms`` of simulated time."""
        self.every_ms = every_ms
        self.queued = 0

    def initial_tick_ms(self) -> float:
        """Return the first tick."""
        return self.every_ms

    def on_tick(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Return a decision that changes nothing."""
        self.queued += sum(fpm["num_queued_prefill"] for fpm in snapshot["decode_fpm_snapshots"])
        return {
            "target_prefill": None,
            "target_decode": None,
            "next_tick_ms": snapshot["now_ms"] + self.every_ms,
        }


class ReferencePlayScript:
    """Returns the next decision of a list at every tick."""

    def __init__(self, initial_tick_ms: float, decisions: list[list[Any]]) -> None:
        """Create it from ``[target_prefill, target_decode, next_tick_ms]`` of each tick."""
        self.first_ms = initial_tick_ms
        self.decisions = decisions
        self.tick = 0

    def initial_tick_ms(self) -> float:
        """Return the first tick."""
        return self.first_ms

    def on_tick(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Return the next decision."""
        decision = self.decisions[self.tick]
        self.tick += 1
        return dict(zip(("target_prefill", "target_decode", "next_tick_ms"), decision))  # noqa: B905


def main() -> None:
    """Answer calls until standard input ends."""
    from dynamo._core import run_mocker_trace_replay

    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # redirects output of the reference
        print(json.dumps({"version": version("ai-dynamo-runtime")}), file=answers, flush=True)
        for line in sys.stdin:
            call = json.loads(line)
            policy = None
            if (ticks := call["ticks"]) is not None:
                policy = (
                    ReferenceKeepFleet(**ticks)
                    if "every_ms" in ticks
                    else ReferencePlayScript(**ticks)
                )
            started_s = time.perf_counter()
            outcome = run_mocker_trace_replay(
                [call["trace"]], scaling_policy=policy, **call["arguments"]
            )
            call_s = time.perf_counter() - started_s
            print(
                json.dumps({"summary": outcome.summary, "call_s": call_s}), file=answers, flush=True
            )


if __name__ == "__main__":
    main()

"""Running the scenario of a golden file and comparing the results, field by field."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from aisim_gym.conformance.difference import ABSENT, Difference, first_difference
from aisim_gym.conformance.golden import Golden
from aisim_gym.conformance.scripted_policy import ScriptedPolicy, ScriptEndedError
from aisim_gym.errors import UnsupportedError
from aisim_gym.replay import Replay
from aisim_gym.report import Report, RequestRecords, summarize

WALL_CLOCK_KEYS = frozenset(
    {"wall_time_ms", "processed_tokens_per_s", "processed_output_tokens_per_s"}
)
"""Keys of our summary that no golden has."""

OPTIONAL_HISTORIES = frozenset({"routing_history", "admission_history"})
"""Columns that large goldens leave out although the run had them."""

SAME_TYPE = frozenset({"KeyError", "OverflowError", "RuntimeError", "TypeError", "ValueError"})
"""Errors whose type must be that of the reference, or derived from it; a plain ``Exception`` of the
reference says nothing about the type."""


class Status(StrEnum):
    """How a comparison ended."""

    PASSED = "PASS"
    FAILED = "FAIL"
    SKIPPED = "SKIP"


@dataclass(frozen=True)
class Outcome:
    """Result of one golden file.

    Attributes:
        path: The file.
        name: The scenario.
        status: Passed, failed, or skipped: not compared, so not passed either.
        num_ticks: Recorded ticks.
        num_requests: Requests of the workload.
        difference: The first difference, if failed.
        reason: Why it was skipped, if it was.
        notes: What was left out of the comparison.
        exception: What ended our run, or None.
    """

    path: Path
    name: str
    status: Status
    num_ticks: int
    num_requests: int
    difference: Difference | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    exception: Exception | None = None

    def __str__(self) -> str:
        """Return the outcome in one line."""
        if self.status is Status.FAILED:
            return f"{self.status} {self.name}: {self.difference}"
        if self.status is Status.SKIPPED:
            return f"{self.status} {self.name}: {self.reason}"
        notes = "".join(f"; {note}" for note in self.notes)
        return f"{self.status} {self.name} ({self.num_ticks} ticks, {self.num_requests} requests{notes})"


def check_golden(source: str | Path | Golden) -> Outcome:
    """Run the scenario of a golden file and compare it with what was recorded.

    Compared are, in this order and up to the first difference: the snapshots, the number of
    decisions, the error, the records per request, the summary, the lifecycle operations.

    Args:
        source: A file, or one already read.

    Raises:
        GoldenError: If the file cannot be read or its scenario is not valid.
    """
    golden = source if isinstance(source, Golden) else Golden.read(source)
    policy = ScriptedPolicy(golden) if golden.has_policy else None
    try:
        spec = golden.spec()
        replay = _Run(Replay.run, spec, policy, golden.requests(spec))
    except UnsupportedError as error:
        return _outcome(golden, Status.SKIPPED, reason=str(error))
    seen = [] if policy is None else policy.seen
    difference = _compare(golden, seen, replay)
    return _outcome(
        golden,
        Status.PASSED if difference is None else Status.FAILED,
        difference=difference,
        notes=_notes(golden),
        exception=replay.exception,
    )

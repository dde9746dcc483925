"""A workload and a fleet that the reference and this package can run, and the expected result."""

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from aisim_gym.bench.tick_policies import KeepFleet, PlayScript
from aisim_gym.conformance import Golden
from aisim_gym.conformance.compare import WALL_CLOCK_KEYS
from aisim_gym.conformance.difference import first_difference
from aisim_gym.errors import AisimError
from aisim_gym.replay import ScalingPolicy
from aisim_gym.spec import ReplaySpec
from aisim_gym.spec.reference_arguments import replay_spec_from_reference_arguments
from aisim_gym.workload import RequestTable, read_mooncake

NO_CAPTURE = {"capture_per_request": False, "capture_planner_details": False}
"""Capture only what the summary needs."""

MOONCAKE_WORKERS, MOONCAKE_BLOCK_SIZE, MOONCAKE_TICK_MS = 8, 512, 5000.0


class TimedRun(NamedTuple):
    """One timed run of a case.

    Attributes:
        seconds: The compared time.
        details: Other times of the same run, ms, by name.
        summary: Summary of the run.
    """

    seconds: float
    details: dict[str, float]
    summary: dict[str, Any]


class WrongResultError(AisimError, RuntimeError):
    """A timed run gave a wrong result, so its time is meaningless."""


@dataclass(frozen=True)
class BenchCase:
    """One case.

    Attributes:
        name: Its name.
        arguments: Keyword arguments of the reference's call, without trace file and policy.
        requests: The workload.
        ticks: None without a planner; ``{"every_ms": …}``, or ``{"initial_tick_ms": …,
            "decisions": […]}``, as ``reference_worker.py`` takes them.
        write_trace: Writes the workload to a file for the reference.
        summary: Expected summary, None if unknown.
    """

    name: str
    arguments: dict[str, Any]
    requests: RequestTable
    ticks: dict[str, Any] | None
    write_trace: Callable[[Path], None]
    summary: dict[str, Any] | None

    @classmethod
    def of_golden(cls, golden: Golden) -> "BenchCase":
        """Return the case of a recorded run."""
        ticks = None
        if golden.has_policy:
            ticks = {"initial_tick_ms": golden.initial_tick_ms, "decisions": golden.decisions}

        def write_trace(path: Path) -> None:
            rows = golden.scenario["workload"]["rows"]
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")

        return cls(
            name=golden.name,
            arguments=golden.reference_arguments() | NO_CAPTURE,
            requests=golden.requests(golden.spec()),
            ticks=ticks,
            write_trace=write_trace,
            summary=golden.summary,
        )

    @classmethod
    def of_mooncake(cls, trace: Path) -> "BenchCase":
        """Return eight aggregated workers that serve a Mooncake trace under a planner.

        Raises:
            WorkloadError: If the trace is not valid.
        """

        def write_trace(path: Path) -> None:
            with trace.open("rb") as file:
                is_packed = file.read(2) == b"\x1f\x8b"
            with (gzip.open if is_packed else open)(trace, "rb") as source, path.open("wb") as copy:
                shutil.copyfileobj(source, copy)

        return cls(
            name=trace.name.split(".")[0],
            arguments={
                "num_workers": MOONCAKE_WORKERS,
                "trace_block_size": MOONCAKE_BLOCK_SIZE,
                **NO_CAPTURE,
            },
            requests=read_mooncake(trace, MOONCAKE_BLOCK_SIZE),
            ticks={"every_ms": MOONCAKE_TICK_MS},
            write_trace=write_trace,
            summary=None,
        )

    @cached_property
    def spec(self) -> ReplaySpec:
        """Spec equivalent to ``arguments``."""
        return replay_spec_from_reference_arguments(**self.arguments)

    def make_policy(self) -> ScalingPolicy | None:
        """Return a new planner, or None."""
        if self.ticks is None:
            return None
        return KeepFleet(**self.ticks) if "every_ms" in self.ticks else PlayScript(**self.ticks)

    def check(self, who: str, summary: dict[str, Any], expected: dict[str, Any] | None) -> None:
        """Raise if a summary differs from the expected one.

        Args:
            who: Owner of the summary, for the message.
            summary: Summary of the run; wall-clock times are not compared.
            expected: Expected summary; None skips the comparison.

        Raises:
            WrongResultError: Names the first key that differs.
        """
        if expected is None:
            return
        got, wanted = (
            {key: value for key, value in side.items() if key not in WALL_CLOCK_KEYS}
            for side in (summary, expected)
        )
        if (difference := first_difference("summary", got, wanted)) is not None:
            raise WrongResultError(f"{self.name}, run by {who}: {difference}")


def read_scenarios() -> list[BenchCase]:
    """Return the bundled recorded scenarios, in order of their names."""
    folder = files("aisim_gym.bench") / "scenarios"
    paths = sorted(Path(str(entry)) for entry in folder.iterdir())
    return [BenchCase.of_golden(Golden.read(path)) for path in paths]

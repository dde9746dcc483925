"""Golden files: recorded runs of the reference, format ``aisim-golden/1``."""

import gzip
import json
import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from aisim_gym.errors import AisimError, UnsupportedError, WorkloadError
from aisim_gym.spec import ReplaySpec, replay_spec_from_reference_arguments
from aisim_gym.workload import RequestTable, requests_from_mooncake_rows

FORMAT = "aisim-golden/1"
SUFFIX = ".json.gz"
DELTA_FORMAT = "mooncake-delta"
ROW_FORMATS = ("mooncake", DELTA_FORMAT)

_PARTS: dict[str, type] = {
    "scenario": dict,
    "scenario.name": str,
    "scenario.topology": dict,
    "scenario.engine_overrides": dict,
    "scenario.workload": dict,
    "scenario.workload.block_size": int,
    "scenario.workload.rows": list,
    "scenario.replay": dict,
}
_TICK_PARTS: dict[str, type] = {"scenario.ticks": dict, "scenario.ticks.decisions": list}
_KIND_NAMES = {dict: "an object", list: "a list", str: "a string", int: "an integer"}


class GoldenError(AisimError, ValueError):
    """A path is not a readable golden file, or matches none."""


@dataclass(frozen=True, repr=False)
class Golden:
    """One recorded run: its scenario and its results.

    Attributes:
        path: The file.
        name: Name of the scenario.
        scenario: Everything needed to repeat the run.
        error: ``{type, message}`` of the exception that ended the run, or None.
        snapshots: Snapshots passed to the policy, per tick; None if the file has only their number.
        num_ticks: Number of decisions in the run.
        per_request: Columns of the records, sorted by ``row``; None if there are none.
        summary: Summary without wall-clock keys; None after an error.
        lifecycle_operations: None after an error.
        telemetry: ``{sample_interval_ms, samples}``, None if no samples were taken.
    """

    path: Path
    name: str
    scenario: dict[str, Any]
    error: dict[str, str] | None
    snapshots: list[dict[str, Any]] | None
    num_ticks: int
    per_request: dict[str, list[Any]] | None
    summary: dict[str, Any] | None
    lifecycle_operations: list[dict[str, Any]] | None
    telemetry: dict[str, Any] | None

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a golden file.

        Raises:
            GoldenError: If the file cannot be read or is not a golden file; names the file.
        """
        path = Path(path).expanduser()
        return cls.from_data(_read_object(path), path)

    @classmethod
    def from_data(cls, data: dict[str, Any], path: Path) -> Self:
        """Return the golden of a JSON object; ``path`` is for messages.

        Raises:
            GoldenError: If the object is not a golden.
        """
        if data.get("format") != FORMAT:
            raise GoldenError(f"{path}: got format {data.get('format')!r}, expected {FORMAT!r}")
        for part, kind in _PARTS.items():
            _check_part(path, data, part, kind)
        scenario = data["scenario"]
        if scenario.get("ticks") is not None:
            for part, kind in _TICK_PARTS.items():
                _check_part(path, data, part, kind)
        snapshots = data.get("snapshots")
        num_ticks = data.get("snapshot_count") if snapshots is None else len(snapshots)
        if not isinstance(num_ticks, int):
            raise GoldenError(f"{path}: got neither snapshots nor snapshot_count")
        return cls(
            path=path,
            name=scenario["name"],
            scenario=scenario,
            error=data.get("error"),
            snapshots=snapshots,
            num_ticks=num_ticks,
            per_request=data.get("per_request"),
            summary=data.get("summary"),
            lifecycle_operations=data.get("lifecycle_operations"),
            telemetry=data.get("telemetry"),
        )

    @property
    def num_requests(self) -> int:
        """Requests of the workload."""
        return len(self.scenario["workload"]["rows"])

    def reference_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the reference's call, without trace file and policy.

        Raises:
            KeyError: If the scenario is incomplete.
        """
        return {
            **self._fleet_arguments(),
            **self._telemetry_arguments(),
            **self.scenario["replay"],
            "trace_block_size": self.scenario["workload"]["block_size"],
            "capture_per_request": True,
        }

    def spec(self) -> ReplaySpec:
        """Return the spec of the run.

        Raises:
            GoldenError: If the scenario is not valid.
            UnsupportedError: If it is valid, but a spec cannot express it.
        """
        try:
            return replay_spec_from_reference_arguments(**self.reference_arguments())
        except UnsupportedError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise GoldenError(f"{self.path}: scenario: {error}") from error

    def requests(self, spec: ReplaySpec) -> RequestTable:
        """Return the workload; row k of the file is request k.

        Raises:
            GoldenError: If a row is not valid.
            UnsupportedError: If the replay cannot run such a workload.
        """
        workload = spec.workload
        if workload.trace_format not in ROW_FORMATS:
            raise UnsupportedError(f"trace_format='{workload.trace_format}' is not replayed yet")
        try:
            return requests_from_mooncake_rows(
                self.scenario["workload"]["rows"],
                workload.trace_block_size,
                workload.arrival_speedup_ratio,
                is_delta=workload.trace_format == DELTA_FORMAT,
                is_closed_loop=workload.replay_concurrency is not None,
                source=str(self.path),
            )
        except WorkloadError as error:
            raise GoldenError(f"{self.path}: scenario.workload: {error}") from error

    @property
    def has_policy(self) -> bool:
        """Whether a policy was attached."""
        return self.scenario.get("ticks") is not None

    @property
    def initial_tick_ms(self) -> float:
        """First tick, +inf for none."""
        first_ms = self.scenario["ticks"]["initial_tick_ms"]
        return math.inf if first_ms is None else float(first_ms)

    @property
    def decisions(self) -> list[list[Any]]:
        """``[target_prefill, target_decode, next_tick_ms]`` of each tick."""
        decisions: list[list[Any]] = self.scenario["ticks"]["decisions"]
        return decisions

    @property
    def raise_at(self) -> int | None:
        """The tick at which the policy raised, or None."""
        ordinal: int | None = self.scenario["ticks"].get("raise_at")
        return ordinal

    def _fleet_arguments(self) -> dict[str, Any]:
        topology, overrides = self.scenario["topology"], self.scenario["engine_overrides"]
        if topology["kind"] == "agg":
            return {"extra_engine_args": overrides["agg"], "num_workers": topology["num_workers"]}
        return {
            "prefill_engine_args": overrides["prefill"],
            "decode_engine_args": overrides["decode"],
            "num_prefill_workers": topology["num_prefill_workers"],
            "num_decode_workers": topology["num_decode_workers"],
        }

    def _telemetry_arguments(self) -> dict[str, Any]:
        if self.telemetry is None:
            return {}
        return {
            "capture_telemetry": True,
            "telemetry_sample_interval_ms": self.telemetry["sample_interval_ms"],
        }


def _read_object(path: Path) -> dict[str, Any]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GoldenError(f"{path}: cannot be read: {reason}") from error
    except ValueError as error:
        raise GoldenError(f"{path}: no golden file: invalid JSON: {error}") from error
    if not isinstance(data, dict):
        raise GoldenError(f"{path}: no golden file: got {_kind(data)}, expected a JSON object")
    return data


def _check_part(path: Path, data: dict[str, Any], part: str, kind: type) -> None:
    value: Any = data
    for name in part.split("."):
        value = value.get(name)
    if not isinstance(value, kind):
        raise GoldenError(f"{path}: {part}: got {_kind(value)}, expected {_KIND_NAMES[kind]}")


def _kind(value: Any) -> str:
    """Return the JSON type of ``value``."""
    return "nothing" if value is None else _KIND_NAMES.get(type(value), "something else")

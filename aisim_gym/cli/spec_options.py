"""Build a replay spec from a spec file and flags; flags override the file."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aisim_gym.errors import SpecError
from aisim_gym.spec import ReplaySpec
from aisim_gym.spec.loading import read_spec_data
from aisim_gym.workload import detect_trace_format

Data = dict[str, Any]


@dataclass(frozen=True)
class SpecOptions:
    """Spec settings given by flags; None if a flag is not given.

    Attributes:
        trace: Trace file instead of the file's workload.
        trace_format: Its format; by default detected from its first line.
        trace_block_size: Tokens per hash id.
        speedup: Divides arrival times.
        concurrency: Concurrent requests or sessions, instead of arrival times.
        workers: Workers of an aggregated fleet.
        prefill: Prefill workers of a disaggregated fleet.
        decode: Decode workers of a disaggregated fleet.
        backend: Backend of every pool.
        startup_s: Startup time of every pool, seconds.
        ttft_slo_ms: Bound on the time to first token.
        itl_slo_ms: Bound on the mean gap between tokens.
        max_sim_time_ms: Simulated time at which the run stops.
        telemetry_ms: Simulated time between telemetry samples.
        settings: Texts ``path=value``, applied last.
    """

    trace: Path | None = None
    trace_format: str | None = None
    trace_block_size: int | None = None
    speedup: float | None = None
    concurrency: int | None = None
    workers: int | None = None
    prefill: int | None = None
    decode: int | None = None
    backend: str | None = None
    startup_s: float | None = None
    ttft_slo_ms: float | None = None
    itl_slo_ms: float | None = None
    max_sim_time_ms: float | None = None
    telemetry_ms: float | None = None
    settings: Sequence[str] = ()


def build_spec(file: Path | None, options: SpecOptions) -> ReplaySpec:
    """Return the spec of a file and flags; without a file, flags change the defaults.

    Raises:
        SpecError: If the file or the result is not valid, or a flag does not fit the fleet.
        WorkloadError: If the format of the trace is unknown.
    """
    data: Any = {} if file is None else read_spec_data(file.expanduser())
    if file is None and options.prefill is None and options.decode is None:
        data["fleet"] = {"kind": "agg"}
    if isinstance(data, dict):
        _apply_topology(data, options)
        _apply_workload(data, options)
        _apply_rest(data, options)
        for name, value in parse_assignments("--set", options.settings):
            _assign(data, name, value)
    folder = None if file is None else file.expanduser().parent
    spec = ReplaySpec.from_data(data, source="" if file is None else str(file), folder=folder)
    if not spec.workload.trace_files and spec.workload.generator is None:
        raise SpecError(
            "no workload: give --trace FILE, or a spec file whose workload has trace_files or "
            "a generator (--set workload.generator.kind=chat-wave for the built-in one)"
        )
    return spec


def parse_assignments(flag: str, texts: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of texts ``name=value``; a value is JSON or else a string.

    Raises:
        SpecError: If a text has no name or no ``=``.
    """
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise SpecError(f"{flag}: got {text!r}, expected name=value")
        try:
            yield name, json.loads(value)
        except ValueError:
            yield name, value


def _apply_topology(data: Data, options: SpecOptions) -> None:
    wants_disagg = options.prefill is not None or options.decode is not None
    if options.workers is not None and wants_disagg:
        raise SpecError(
            "--workers is for an aggregated fleet, --prefill and --decode are for a disaggregated "
            "one: got both"
        )
    if options.workers is None and not wants_disagg:
        return
    flags, wanted = ("--prefill, --decode", "disagg") if wants_disagg else ("--workers", "agg")
    given = _table(data, "fleet").get("kind", wanted)
    if given != wanted:
        raise SpecError(f"{flags}: fleet.kind in the spec file is {given!r}, expected {wanted!r}")
    _assign(data, "fleet.kind", wanted)
    for name, count in (
        ("num_workers", options.workers),
        ("num_prefill_workers", options.prefill),
        ("num_decode_workers", options.decode),
    ):
        if count is not None:
            _assign(data, f"fleet.{name}", count)
    for role in ("prefill", "decode") if wants_disagg else ():
        if "worker_type" not in _table(data, f"fleet.{role}.engine"):
            _assign(data, f"fleet.{role}.engine.worker_type", role)


def _apply_workload(data: Data, options: SpecOptions) -> None:
    if options.trace is not None:
        trace = options.trace.expanduser().absolute()  # not relative to the spec file
        trace_format = options.trace_format or detect_trace_format(trace)
        _assign(data, "workload.trace_files", [str(trace)])
        _assign(data, "workload.trace_format", trace_format)
        data["workload"].pop("generator", None)
    elif options.trace_format is not None:
        _assign(data, "workload.trace_format", options.trace_format)
    if options.trace_block_size is not None:
        _assign(data, "workload.trace_block_size", options.trace_block_size)
    if options.speedup is not None:
        _assign(data, "workload.arrival_speedup_ratio", options.speedup)
    if options.concurrency is not None:
        _assign(data, "workload.replay_concurrency", options.concurrency)


def _apply_rest(data: Data, options: SpecOptions) -> None:
    kind = _table(data, "fleet").get("kind")
    for pool in ("prefill", "decode") if kind == "disagg" else ("engine",):
        if options.backend is not None:
            _assign(data, f"fleet.{pool}.engine.backend", options.backend)
        if options.startup_s is not None:
            _assign(data, f"fleet.{pool}.startup_time", options.startup_s)
    for name, value in (
        ("sla.ttft_ms", options.ttft_slo_ms),
        ("sla.itl_ms", options.itl_slo_ms),
        ("max_sim_time_ms", options.max_sim_time_ms),
        ("telemetry_sample_interval_ms", options.telemetry_ms),
    ):
        if value is not None:
            _assign(data, name, value)


def _table(data: Data, path: str) -> Mapping[str, Any]:
    """Return the table at a dotted path, empty if missing."""
    found: Any = data
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _assign(data: Data, path: str, value: Any) -> None:
    """Set the value at a dotted path, creating missing tables."""
    *parents, last = path.split(".")
    table = data
    for depth, key in enumerate(parents, 1):
        inner = table.setdefault(key, {})
        if not isinstance(inner, dict):
            place = ".".join(parents[:depth])
            raise SpecError(f"{path}: {place} is {inner!r}, expected a table")
        table = inner
    table[last] = value

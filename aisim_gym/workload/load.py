"""Load the request table of a workload spec with the matching reader or generator."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path

from aisim_gym.errors import UnsupportedError, WorkloadError
from aisim_gym.spec.generator import GeneratorSpec
from aisim_gym.spec.synthetic import SyntheticSpec
from aisim_gym.spec.traffic import TrafficSpec
from aisim_gym.spec.workload import TIME_UNIT_OF_FORMAT, TimeUnit, WorkloadSpec
from aisim_gym.workload.azure import AZURE_HEADER, read_azure_csv
from aisim_gym.workload.burstgpt import BURSTGPT_COLUMNS, read_burstgpt
from aisim_gym.workload.generator import generate_requests
from aisim_gym.workload.mooncake import read_mooncake
from aisim_gym.workload.request_table import RequestTable
from aisim_gym.workload.simple_csv import UNIT_OF_ARRIVAL, read_simple_csv
from aisim_gym.workload.synthetic import generate_synthetic
from aisim_gym.workload.trace_file import (
    TracePath,
    absolute_path,
    empty_trace_error,
    read_trace_lines,
)
from aisim_gym.workload.transforms import (
    clip_lengths,
    drop_longer_than,
    limits_text,
    scale_rate,
    slice_requests,
    speed_up,
    spread_stamps,
)


def _read_mooncake(spec: WorkloadSpec, path: Path) -> RequestTable:
    return read_mooncake(
        path,
        spec.trace_block_size,
        spec.arrival_speedup_ratio,
        is_delta=spec.trace_format == "mooncake-delta",
        is_closed_loop=spec.is_closed_loop,
        time_unit=_time_unit(spec),
    )


def _read_azure(spec: WorkloadSpec, path: Path) -> RequestTable:
    return read_azure_csv(path, _speedup_ratio(spec))


def _read_burstgpt(spec: WorkloadSpec, path: Path) -> RequestTable:
    return read_burstgpt(path, _speedup_ratio(spec), _time_unit(spec))


def _read_csv(spec: WorkloadSpec, path: Path) -> RequestTable:
    return read_simple_csv(path, spec.trace_block_size, _speedup_ratio(spec))


TRACE_READERS: dict[str, Callable[[WorkloadSpec, Path], RequestTable]] = {
    "mooncake": _read_mooncake,
    "mooncake-delta": _read_mooncake,
    "azure": _read_azure,
    "burstgpt": _read_burstgpt,
    "csv": _read_csv,
}
"""Reader of each trace format; the spec accepts further formats that are not replayed yet."""

LOWEST_USUAL_RPS, HIGHEST_USUAL_RPS = 0.01, 10_000.0
"""Mean rates outside these bounds are legal but usually mean seconds read as ms, or the reverse."""


def load_workload(spec: WorkloadSpec, engine_block_size: int | None = None) -> RequestTable:
    """Read or generate the requests of a workload.

    With ``replay_concurrency``, a Mooncake file becomes sessions even if each has one turn, and
    arrival times are neither shifted nor sped up: the replay starts the next session when a slot is
    free. CSV files and generators of lists stay lists.

    Changes are applied in this order: times in ``time_unit``, relative to the earliest arrival of a
    trace; ``spread_ms``; ``start_s`` and ``duration_s``; ``rate_scale``; ``max_input_tokens`` and
    ``max_total_tokens``; ``arrival_speedup_ratio``. All of them therefore refer to the trace's own
    time.

    Warns (``UserWarning``) if the mean rate of requests or sessions is below 0.01 or above 10,000
    per second, or if requests are too long.

    Args:
        spec: The workload.
        engine_block_size: Tokens per block of the engine that prefills
            (``ReplaySpec.engine_block_size``): shared prefixes of the synthetic generator are whole
            blocks. Not used otherwise.

    Raises:
        WorkloadError: If a file is missing, or the file or one of its rows is not valid.
        UnsupportedError: If the workload is valid but cannot be replayed yet.
    """
    # The speed-up is the last change; without changes the reader applies it, as the reference does.
    source = spec.model_copy(update={"arrival_speedup_ratio": 1.0}) if spec.is_changed else spec
    if spec.generator is not None:
        requests = _generate(source, spec.generator, engine_block_size)
    else:
        requests = _read_trace(source)
    if not spec.is_closed_loop:
        _warn_about_odd_rate(requests, spec)
    return _change(requests, spec) if spec.is_changed else requests


def detect_trace_format(path: TracePath) -> str:
    """Return the ``trace_format`` of a file, detected from its first non-blank line.

    Raises:
        WorkloadError: If the file cannot be read, is empty or has no known format.
    """
    _, line = next(read_trace_lines(path), (0, ""))
    first = line.strip()
    if not first:
        raise empty_trace_error(str(absolute_path(path)))
    if first.startswith("{"):
        return _json_format(first)
    names = {name.strip() for name in first.split(",")}
    if first.split(",")[0].strip() == AZURE_HEADER[0]:
        return "azure"
    if names.issuperset(BURSTGPT_COLUMNS):
        return "burstgpt"
    if names & {*UNIT_OF_ARRIVAL}:
        return "csv"
    raise WorkloadError(
        f"unknown trace format: {absolute_path(path)} begins with {first[:60]!r}, known: "
        f"mooncake (one JSON object per line), azure (CSV with header {','.join(AZURE_HEADER)}), "
        f"burstgpt (CSV with columns {', '.join(BURSTGPT_COLUMNS)}), "
        "csv (CSV with columns arrival_s or arrival_ms, input_tokens, output_tokens)"
    )


def _json_format(line: str) -> str:
    """Return the format of a file whose first line looks like a JSON object."""
    try:
        schema = str(json.loads(line).get("schema", ""))
    except ValueError:
        return "mooncake"  # its reader reports errors of the line
    if schema.startswith("dynamo.agentic_mooncake"):
        return "agentic_mooncake"
    return "dynamo" if schema.startswith("dynamo.request.trace") else "mooncake"


def _read_trace(spec: WorkloadSpec) -> RequestTable:
    if not spec.trace_files:
        raise WorkloadError(
            "trace replay requires at least one trace file (workload: got no trace_files and no "
            "generator)"
        )
    reader = TRACE_READERS.get(spec.trace_format)
    if reader is None:
        raise UnsupportedError(
            f"trace_format='{spec.trace_format}' is not replayed yet; "
            f"replayed: {', '.join(TRACE_READERS)}"
        )
    return reader(spec, spec.trace_files[0])


def _generate(
    spec: WorkloadSpec,
    generator: GeneratorSpec | SyntheticSpec | TrafficSpec,
    engine_block_size: int | None,
) -> RequestTable:
    ratio = _speedup_ratio(spec)
    if isinstance(generator, SyntheticSpec):
        return generate_synthetic(generator, ratio, engine_block_size)
    return speed_up(generate_requests(generator), ratio)


def _speedup_ratio(spec: WorkloadSpec) -> float:
    return 1.0 if spec.is_closed_loop else spec.arrival_speedup_ratio


def _time_unit(spec: WorkloadSpec) -> TimeUnit:
    return spec.time_unit or TIME_UNIT_OF_FORMAT[spec.trace_format]


def _change(requests: RequestTable, spec: WorkloadSpec) -> RequestTable:
    """Apply the changes of the spec in the order documented in :func:`load_workload`."""
    if spec.spread_ms > 0.0:
        requests = spread_stamps(requests, spec.spread_ms)
    if spec.start_s > 0.0 or spec.duration_s is not None:
        requests = slice_requests(requests, spec.start_s, spec.duration_s)
    requests = scale_rate(requests, spec.rate_scale, spec.rate_seed)
    limits = (spec.max_input_tokens, spec.max_total_tokens)
    if limits != (None, None):
        shorten = clip_lengths if spec.overlong == "clip" else drop_longer_than
        total = len(requests)
        requests, num_changed = shorten(requests, *limits)
        if num_changed:
            what = "cut" if spec.overlong == "clip" else "left out"
            warnings.warn(
                f"{num_changed} of {total} requests are longer than allowed "
                f"({limits_text(*limits)}) and {what}",
                UserWarning,
                stacklevel=3,
            )
    return speed_up(requests, _speedup_ratio(spec))


def _warn_about_odd_rate(requests: RequestTable, spec: WorkloadSpec) -> None:
    rate_rps = requests.mean_rate_rps
    if rate_rps is not None and not LOWEST_USUAL_RPS <= rate_rps <= HIGHEST_USUAL_RPS:
        what = "sessions" if requests.has_sessions else "requests"
        hint = ""
        if spec.trace_format in TIME_UNIT_OF_FORMAT and spec.generator is None:
            hint = f"; times are read as {_time_unit(spec)}: is another time_unit meant?"
        warnings.warn(
            f"the workload's mean rate is {rate_rps:.4g} {what} per second "
            f"({requests.start_ms.size} in {requests.duration_s:.6g} s){hint}",
            UserWarning,
            stacklevel=3,
        )

"""Workloads from the flags of ``aisim-gym trace``, and trace files from workloads."""

from pathlib import Path
from typing import Any

from aisim_gym.cli.spec_options import SpecOptions, build_spec
from aisim_gym.errors import WorkloadError
from aisim_gym.report.atomic_file import replace_file
from aisim_gym.spec import ReplaySpec, WorkloadSpec
from aisim_gym.workload import RequestTable, detect_trace_format, write_trace
from aisim_gym.workload.request_table import DEFAULT_TRACE_BLOCK_SIZE


def trace_workload(file: Path, trace_format: str | None, **fields: Any) -> WorkloadSpec:
    """Return the workload of a trace file.

    Args:
        file: The file; ``~`` is expanded.
        trace_format: None = detected from its first line.
        fields: Fields of the workload; None = not given.

    Raises:
        SpecError: If a field is not valid.
        WorkloadError: If the file cannot be read or its format is unknown.
    """
    where = file.expanduser().absolute()
    given = {name: value for name, value in fields.items() if value is not None}
    files = {"trace_files": [str(where)]}
    trace_format = trace_format or detect_trace_format(where)
    return WorkloadSpec.from_data({**files, "trace_format": trace_format, **given})


def generator_spec(file: Path | None, preset: str | None, settings: list[str]) -> ReplaySpec:
    """Return a spec with a generated workload, from a file and flags.

    Args:
        file: Replay spec; None = flags only.
        preset: Name of a preset of the generator ``traffic``.
        settings: Texts ``field=value`` for the generator, with the highest precedence.

    Raises:
        SpecError: If the file or the result is not valid.
    """
    if preset is not None:
        settings = ["kind=traffic", f"preset={preset}", *settings]
    if file is None and not settings:
        raise ValueError(
            "nothing to generate: give a spec file before the file to write, or --preset NAME, or "
            "fields of a generator (--set kind=chat-wave --set duration_s=600)"
        )
    options = SpecOptions(settings=[f"workload.generator.{setting}" for setting in settings])
    return build_spec(file, options)


def check_target(target: Path) -> Path:
    """Return the absolute path to write to.

    Raises:
        WorkloadError: If its folder does not exist.
    """
    where = target.expanduser().absolute()
    if not where.parent.is_dir():
        raise WorkloadError(f"cannot write {where}: there is no folder {where.parent}")
    return where


def write_whole(requests: RequestTable, where: Path, trace_format: str) -> None:
    """Write a trace file atomically."""
    with replace_file(where) as temporary:
        write_trace(requests, temporary, trace_format, compress=where.suffix == ".gz")


def describe(requests: RequestTable, trace_format: str) -> str:
    """Return a one-line summary of a written file and how to read it."""
    text = repr(requests).removeprefix("RequestTable(").removesuffix(")")
    hints = []
    if requests.is_delta:
        hints.append("--trace-format mooncake-delta")
    if requests.prompt_ids.size and requests.trace_block_size != DEFAULT_TRACE_BLOCK_SIZE:
        hints.append(f"--trace-block-size {requests.trace_block_size}")
    reading = f"; read it with {' '.join(hints)}" if hints else ""
    return f"{text}; {trace_format}, times in ms{reading}"

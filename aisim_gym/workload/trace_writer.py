"""Write a request table as a trace file of any writable format."""

from typing import Protocol

from aisim_gym.errors import WorkloadError
from aisim_gym.workload.mooncake_writer import write_mooncake
from aisim_gym.workload.request_table import RequestTable
from aisim_gym.workload.simple_csv import write_simple_csv
from aisim_gym.workload.trace_file import TracePath, absolute_path


class TraceWriter(Protocol):
    """Writes a table to a path, with optional gzip (None = if the name ends in ``.gz``)."""

    def __call__(
        self, requests: RequestTable, path: TracePath, *, compress: bool | None = None
    ) -> None:
        """Write the table."""


TRACE_WRITERS: dict[str, TraceWriter] = {"mooncake": write_mooncake, "csv": write_simple_csv}
"""Writer of each trace format that can be written."""

FORMAT_OF_SUFFIX = {".jsonl": "mooncake", ".csv": "csv"}
"""Format by file name suffix, ignoring ``.gz``."""


def written_format(path: TracePath, trace_format: str | None = None) -> str:
    """Return the output format: the given one, or the one of the file name.

    Raises:
        WorkloadError: If the format is not writable, or the name implies none.
    """
    known = ", ".join(TRACE_WRITERS)
    if trace_format is None:
        where = absolute_path(path)
        name = where.name.removesuffix(".gz")
        for suffix, found in FORMAT_OF_SUFFIX.items():
            if name.endswith(suffix):
                return found
        raise WorkloadError(
            f"{where}: the name implies no format, allowed: a name that ends in "
            f"{' or '.join(FORMAT_OF_SUFFIX)} (or these with .gz), or a format named ({known})"
        )
    if trace_format not in TRACE_WRITERS:
        raise WorkloadError(f"trace format to write: got {trace_format!r}, allowed: {known}")
    return trace_format


def write_trace(
    requests: RequestTable,
    path: TracePath,
    trace_format: str | None = None,
    *,
    compress: bool | None = None,
) -> None:
    """Write a table as a trace file; see :func:`write_mooncake` and :func:`write_simple_csv`.

    Args:
        requests: The table.
        path: Destination; ``~`` is expanded. An existing file is replaced.
        trace_format: ``mooncake`` or ``csv``; None = by the name, ``.jsonl`` or ``.csv``.
        compress: Whether to write gzip; None = if the name ends in ``.gz``.

    Raises:
        WorkloadError: If the format does not exist or cannot represent the table.
    """
    TRACE_WRITERS[written_format(path, trace_format)](requests, path, compress=compress)

"""The requests of a replay: given directly or named by the spec."""

import numpy as np

from aisim_gym.errors import WorkloadError
from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import RequestTable, load_workload


def requests_of(spec: ReplaySpec, given: RequestTable | None) -> RequestTable:
    """Return the given requests, by default those named by ``spec.workload``.

    Raises:
        TypeError: If ``given`` is not a request table.
        WorkloadError: If the workload is invalid.
    """
    if given is None:
        given = load_workload(spec.workload, spec.engine_block_size)
    elif not isinstance(given, RequestTable):
        raise TypeError(
            f"requests: got {type(given).__name__}, expected a RequestTable "
            "(requests_from_arrays, read_mooncake, read_azure_csv, …) or None"
        )
    _check_starts(spec, given)
    return given


def _check_starts(spec: ReplaySpec, requests: RequestTable) -> None:
    """Reject sessions without a start time in an open-loop workload."""
    has_no_start = np.isnan(requests.start_ms)
    if has_no_start.any() and not spec.workload.is_closed_loop:
        name = requests.session_ids[int(np.argmax(has_no_start))]
        raise WorkloadError(
            f"trace mode requires first_arrival_timestamp_ms for session {name}: "
            "it has no start, and workload.replay_concurrency is not set"
        )

"""Where the requests of an episode come from: generated anew each time, or always the same."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from aisim_gym.envs.capacity import Lengths
from aisim_gym.errors import WorkloadError
from aisim_gym.spec import GeneratorSpec, WorkloadSpec
from aisim_gym.workload import RequestTable, detect_trace_format, generate_requests, load_workload
from aisim_gym.workload.generator import CHAT_INPUT, CHAT_OUTPUT

DEFAULT_GENERATOR: Mapping[str, Any] = {
    "duration_s": 900.0,
    "base_rate_rps": 3.0,
    "peak_rate_rps": 15.0,
    "period_s": 600.0,
    "spike_at_s": 480.0,
    "spike_duration_s": 60.0,
    "spike_factor": 1.8,
    "mean_input_tokens": 1000.0,
    "mean_output_tokens": 200.0,
}
"""15 minutes of chat whose rate swings between 3 and 15 requests/s, with a spike at 8 minutes."""


class EpisodeWorkload(Protocol):
    """Gives every episode its requests."""

    @property
    def duration_s(self) -> float:
        """Seconds in which requests may arrive."""
        ...

    def lengths(self) -> Lengths:
        """Return lengths that stand for all requests there can be."""
        ...

    def draw(self, random: np.random.Generator) -> RequestTable:
        """Return the requests of an episode; every random choice comes from ``random``."""
        ...


class GeneratedWorkload:
    """Traffic of the built-in generator, with a seed of its own for every episode."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        """Take the fields of ``GeneratorSpec``; with ``seed`` every episode is the same.

        Raises:
            SpecError: If they are not valid.
        """
        fields = {**DEFAULT_GENERATOR, **parameters}
        if "duration_s" in parameters and "spike_at_s" not in parameters:
            del fields["spike_at_s"]
        self._spec = GeneratorSpec.from_data(fields, at="generator")
        self._is_fixed = "seed" in parameters

    @property
    def duration_s(self) -> float:
        """Seconds in which requests may arrive."""
        return self._spec.duration_s

    def lengths(self) -> Lengths:
        """Return the longest prompt and output that the generator can draw, as one request."""
        longest = (
            CHAT_INPUT.longest * self._spec.mean_input_tokens,
            CHAT_OUTPUT.longest * self._spec.mean_output_tokens,
        )
        input_tokens, output_tokens = (np.array([math.ceil(x)], np.int64) for x in longest)
        return Lengths(input_tokens, output_tokens, "generator (longest possible lengths)")

    def draw(self, random: np.random.Generator) -> RequestTable:
        """Return newly generated requests."""
        if self._is_fixed:
            return generate_requests(self._spec)
        seed = int(random.integers(2**63))
        return generate_requests(self._spec.model_copy(update={"seed": seed}))


class FixedWorkload:
    """The same requests in every episode."""

    def __init__(self, requests: RequestTable, source: str) -> None:
        """Take a table and what to call it in messages."""
        if len(requests) == 0:
            raise WorkloadError(f"{source}: got no requests, expected at least one")
        self._requests = requests
        self._source = source

    @property
    def duration_s(self) -> float:
        """Seconds from 0 to the last arrival, or the last start of a session."""
        return float(self._requests.start_ms.max()) / 1000.0

    def lengths(self) -> Lengths:
        """Return the lengths of all requests."""
        return Lengths(self._requests.input_tokens, self._requests.output_tokens, self._source)

    def draw(self, random: np.random.Generator) -> RequestTable:
        """Return the requests."""
        return self._requests


def make_workload(
    generator: Mapping[str, Any] | None,
    trace: str | Path | None,
    trace_format: str | None,
    requests: RequestTable | None,
) -> EpisodeWorkload:
    """Return the workload that an environment's arguments describe.

    Raises:
        TypeError: If one is not of its type.
        ValueError: If they describe more than one, or the generator's fields are not valid.
        WorkloadError: If the trace is not valid or there are no requests.
    """
    if sum(source is not None for source in (generator, trace, requests)) > 1:
        raise ValueError("got more than one of generator, trace and requests, expected at most one")
    if requests is not None:
        if not isinstance(requests, RequestTable):
            raise TypeError(
                f"requests: got {type(requests).__name__}, expected a RequestTable "
                "(requests_from_arrays, read_mooncake, read_azure_csv, …) or None"
            )
        return FixedWorkload(requests, "requests")
    if trace is not None:
        if not isinstance(trace, str | os.PathLike):
            raise TypeError(f"trace: got {trace!r}, expected a path or None")
        path = Path(trace).expanduser().absolute()
        spec = WorkloadSpec.from_data(
            {
                "trace_files": [str(path)],
                "trace_format": trace_format or detect_trace_format(path),
            }
        )
        return FixedWorkload(load_workload(spec), str(path))
    if not isinstance(generator, Mapping | None):
        raise TypeError(
            f"generator: got {generator!r}, expected a mapping of GeneratorSpec fields or None"
        )
    return GeneratedWorkload(generator or {})

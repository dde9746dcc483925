"""Sources of episode requests: newly generated traffic, or a window of a fixed workload.

Training and evaluation must not see the same traffic. With ``split`` an environment plays one of
three disjoint parts: generated traffic is split by seed, a fixed workload (a trace, or generated
traffic with a ``seed``) by blocks of time. The validation and test parts consist of fixed numbered
episodes; training episodes are drawn without end.
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from aisim_gym.envs.capacity import Lengths
from aisim_gym.envs.ranges import corners, draw_values, has_ranges, range_places
from aisim_gym.envs.time_blocks import SPLITS, Split, checked_blocks, windows_in
from aisim_gym.errors import NoRequestsError, SpecError, WorkloadError
from aisim_gym.spec import GeneratorSpec, TrafficSpec, WorkloadSpec
from aisim_gym.spec.argument_checks import check_number
from aisim_gym.spec.traffic_presets import PRESETS
from aisim_gym.spec.wording import closest
from aisim_gym.spec.workload import default_kind
from aisim_gym.workload import (
    RequestTable,
    detect_trace_format,
    load_workload,
    longest_request,
    requests_from_arrays,
)

NUM_HELD_OUT = 100
"""Number of validation and of test episodes of generated traffic."""

_SEEDS_PER_SPLIT = 2**61

DEFAULT_GENERATOR: Mapping[str, Any] = {
    "kind": "chat-wave",
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


class EpisodeTraffic(NamedTuple):
    """The traffic of one episode.

    Attributes:
        requests: Requests; may be empty.
        duration_s: Seconds in which requests may arrive.
    """

    requests: RequestTable
    duration_s: float


class TrafficSlice(NamedTuple):
    """A slice of an episode's traffic: from ``start_s`` on, for ``duration_s``."""

    start_s: float = 0.0
    duration_s: float = math.inf


class EpisodeWorkload(Protocol):
    """Source of the requests of every episode."""

    @property
    def num_episodes(self) -> int | None:
        """Number of distinct episodes; None if unlimited."""
        ...

    @property
    def longest_s(self) -> float:
        """Duration of the longest episode."""
        ...

    def lengths(self) -> Iterator[Lengths]:
        """Yield lengths that bound all possible requests."""
        ...

    def draw(
        self,
        random: np.random.Generator,
        number: int | None = None,
        only: TrafficSlice | None = None,
    ) -> EpisodeTraffic:
        """Return the traffic of an episode.

        Args:
            random: Source of all random choices.
            number: Episode number; None chooses one at random.
            only: Play only this slice of it, in time from its start.

        Raises:
            ValueError: If the episode does not exist, or the slice begins after its end.
        """
        ...


class GeneratedWorkload:
    """Traffic generated with a new seed for every episode."""

    def __init__(self, fields: Mapping[str, Any], split: Split | None) -> None:
        """Create the workload from the fields of a generator, which may contain ranges.

        Raises:
            SpecError: If the fields are not valid at any corner of the ranges.
            ValueError: If a range is not valid.
        """
        self._fields = fields
        self._split = split
        self._has_ranges = has_ranges(fields)
        if not self._has_ranges:
            self._variants = [_generator_spec(fields)]
            return
        try:
            self._variants = [_generator_spec(each) for each in corners(fields, "workload")]
        except SpecError as error:
            raise SpecError(
                f"{error}, at an end of the ranges (uniform and log_uniform draw real numbers, "
                "integers draws whole ones)"
            ) from None

    @property
    def num_episodes(self) -> int | None:
        """Number of validation or test episodes."""
        return None if self._split in (None, "train") else NUM_HELD_OUT

    @property
    def longest_s(self) -> float:
        """Duration of the longest episode."""
        return max(map(_duration_s, self._variants))

    def lengths(self) -> Iterator[Lengths]:
        """Yield the longest prompt and output of every variant, as one request."""
        for spec in self._variants:
            input_tokens, output_tokens = longest_request(_generator(spec))
            yield Lengths(
                np.array([input_tokens], np.int64),
                np.array([output_tokens], np.int64),
                "workload",
                _remedy(spec),
            )

    def draw(
        self,
        random: np.random.Generator,
        number: int | None = None,
        only: TrafficSlice | None = None,
    ) -> EpisodeTraffic:
        """Return newly generated requests."""
        place = 0 if self._split is None else SPLITS.index(self._split)
        if number is None and place > 0:
            number = int(random.integers(NUM_HELD_OUT))
        if number is not None:
            _check_exists(number, self.num_episodes)
            random = np.random.default_rng([number, 1 + place])
        seed = place * _SEEDS_PER_SPLIT + int(random.integers(_SEEDS_PER_SPLIT))
        spec = self._variants[0]
        if self._has_ranges:
            spec = _generator_spec(draw_values(self._fields, random))
        generator = _generator(spec).model_copy(update={"seed": seed})
        requests = _generate(spec.model_copy(update={"generator": generator}))
        episode = EpisodeTraffic(requests, generator.duration_s)
        return episode if only is None else _cut(*episode, only)


class FixedWorkload:
    """A fixed workload, of which an episode plays a block or a window."""

    def __init__(
        self,
        requests: RequestTable,
        source: str,
        split: Split | None = None,
        blocks: Mapping[str, Sequence[Sequence[float]]] | None = None,
        episode_s: float | None = None,
        duration_s: float | None = None,
    ) -> None:
        """Create the workload from a table and its splits.

        Args:
            requests: At least one.
            source: Name in messages.
            split: Split to play; None = the whole workload.
            blocks: ``[start_s, end_s]`` of every block of each split; None = the first 60 % of the
                time for training, the next 20 % for validation, the rest for tests.
            episode_s: Length of the window that an episode plays; None for whole blocks.
            duration_s: Time in which requests may arrive; None up to the last arrival.

        Raises:
            WorkloadError: If there are no requests.
            ValueError: If a block is outside the workload, overlaps with another split or is
                shorter than a window.
        """
        if len(requests) == 0:
            raise WorkloadError(f"{source}: got no requests, expected at least one")
        self._requests = requests
        self._source = source
        self._duration_s = (
            float(requests.start_ms.max()) / 1000.0 if duration_s is None else duration_s
        )
        self._is_held_out = split in ("validation", "test")
        self._is_whole = split is None and blocks is None and episode_s is None
        self._blocks = checked_blocks(blocks, split, self._duration_s)
        self._episode_s = episode_s
        self._windows = windows_in(self._blocks, episode_s)

    @property
    def num_episodes(self) -> int | None:
        """Number of consecutive windows; None if windows are drawn at random."""
        is_drawn = self._episode_s is not None and not self._is_held_out
        return None if is_drawn else len(self._windows)

    @property
    def longest_s(self) -> float:
        """Duration of the longest episode."""
        return max(end_s - start_s for start_s, end_s in self._windows)

    def lengths(self) -> Iterator[Lengths]:
        """Yield the lengths of all requests."""
        yield Lengths(self._requests.input_tokens, self._requests.output_tokens, self._source)

    def draw(
        self,
        random: np.random.Generator,
        number: int | None = None,
        only: TrafficSlice | None = None,
    ) -> EpisodeTraffic:
        """Return the requests of a window, or of a slice of it."""
        if number is not None:
            _check_exists(number, len(self._windows))
        episode = self._window(random, number)
        return episode if only is None else _cut(*episode, only)

    def _window(self, random: np.random.Generator, number: int | None) -> EpisodeTraffic:
        if self._is_whole:
            return EpisodeTraffic(self._requests, self._duration_s)
        if number is not None:
            start_s, end_s = self._windows[number]
        elif self.num_episodes is not None:
            start_s, end_s = self._windows[int(random.integers(len(self._windows)))]
        else:
            start_s, end_s = self._random_window(random)
        # The last block includes the last arrival.
        until_s = math.inf if end_s == self._duration_s else end_s
        length_s = end_s - start_s if self._episode_s is None else self._episode_s
        return EpisodeTraffic(self._requests.between(1e3 * start_s, 1e3 * until_s), length_s)

    def _random_window(self, random: np.random.Generator) -> tuple[float, float]:
        """Return a window that starts uniformly at random in a block."""
        assert self._episode_s is not None
        rooms_s = [end_s - start_s - self._episode_s for start_s, end_s in self._blocks]
        room_ends_s = np.cumsum(rooms_s)
        at_s = random.uniform(0.0, float(room_ends_s[-1]))
        block = min(int(np.searchsorted(room_ends_s, at_s, side="right")), len(rooms_s) - 1)
        start_s = self._blocks[block][0] + at_s - (float(room_ends_s[block]) - rooms_s[block])
        return start_s, start_s + self._episode_s


def make_workload(
    workload: str | Mapping[str, Any] | None,
    trace: str | Path | None = None,
    requests: RequestTable | None = None,
    *,
    split: Split | None = None,
    blocks: Mapping[str, Sequence[Sequence[float]]] | None = None,
    episode_s: float | None = None,
    engine_block_size: int | None = None,
) -> EpisodeWorkload:
    """Return the workload described by an environment's arguments.

    Args:
        workload: Name of a preset; the fields of a generator, which may contain ranges; or a
            ``[workload]`` table with ``trace_files``, all of whose fields apply.
        trace: Path of a trace; its format is detected from its first line.
        requests: A table.
        split: Split to play.
        blocks: See :class:`FixedWorkload`; only for a fixed workload.
        episode_s: See :class:`FixedWorkload`.
        engine_block_size: Tokens per block of the engine that prefills, for shared prefixes of the
            synthetic generator.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If they describe more than one workload, or the fields are not valid; also for a
            closed loop (``replay_concurrency``).
        WorkloadError: If the trace is not valid or has no requests.
    """
    if sum(source is not None for source in (workload, trace, requests)) > 1:
        raise ValueError("got more than one of workload, trace and requests, expected at most one")
    if split not in (None, *SPLITS):
        raise ValueError(f"split: got {split!r}, expected None or one of: {', '.join(SPLITS)}")
    if episode_s is not None:
        episode_s = check_number("episode_s", episode_s, "> 0, or None")
        if not (math.isfinite(episode_s) and episode_s > 0.0):
            raise ValueError(f"episode_s: got {episode_s}, expected a finite number > 0, or None")
    if requests is not None:
        if not isinstance(requests, RequestTable):
            raise TypeError(
                f"requests: got {type(requests).__name__}, expected a RequestTable "
                "(requests_from_arrays, read_mooncake, read_azure_csv, …) or None"
            )
        return FixedWorkload(requests, "requests", split, blocks, episode_s)
    if trace is not None:
        path, table = read_trace(trace)
        return FixedWorkload(table, path, split, blocks, episode_s)
    if isinstance(workload, Mapping) and "trace_files" in workload:
        _refuse_ranges(workload, "it has trace_files")
        spec = _trace_spec(workload)
        if spec.is_closed_loop:
            raise ValueError(
                f"workload.replay_concurrency: got {spec.replay_concurrency}, expected none: in an "
                "environment requests arrive at the times of the trace"
            )
        return FixedWorkload(load_workload(spec), "workload", split, blocks, episode_s)
    fields = _generator_fields(workload)
    if fields["kind"] == "synthetic":
        _refuse_ranges(fields, "it is of the kind synthetic")
        table = load_workload(_generator_spec(fields), engine_block_size)
        return FixedWorkload(table, "workload", split, blocks, episode_s)
    if "seed" in fields:
        _refuse_ranges(fields, "it has a seed")
        spec = _generator_spec(fields)
        table, duration_s = load_workload(spec), _duration_s(spec)
        return FixedWorkload(table, "workload", split, blocks, episode_s, duration_s)
    for name, given in (("blocks", blocks), ("episode_s", episode_s)):
        if given is not None:
            raise ValueError(
                f"{name}: got {given!r} for traffic that is generated in every episode, "
                "expected None; it is for a trace, a table of requests or a workload with a seed"
            )
    return GeneratedWorkload(fields, split)


def read_trace(trace: str | Path) -> tuple[str, RequestTable]:
    """Return the absolute path of a trace, and its requests.

    Raises:
        TypeError: If ``trace`` is not a path.
        WorkloadError: If the trace cannot be read or is not valid.
    """
    if not isinstance(trace, str | os.PathLike):
        raise TypeError(f"trace: got {trace!r}, expected a path or None")
    path = Path(trace).expanduser().absolute()
    spec = WorkloadSpec.from_data(
        {"trace_files": [str(path)], "trace_format": detect_trace_format(path)}
    )
    return str(path), load_workload(spec)


def _trace_spec(workload: Mapping[str, Any]) -> WorkloadSpec:
    """Return the spec of a table with trace files; the first line gives the default format."""
    spec = WorkloadSpec.from_data(dict(workload), at="workload")
    if "trace_format" in workload:
        return spec
    detected = {"trace_format": detect_trace_format(spec.trace_files[0])}
    return WorkloadSpec.from_data({**workload, **detected}, at="workload")


def _refuse_ranges(workload: Mapping[str, Any], reason: str) -> None:
    place = next(range_places(workload, "workload"), None)
    if place is not None:
        raise ValueError(
            f"{place}: got a range, expected a value: ranges are for traffic that is drawn in "
            f"every episode, and this workload exists once ({reason})"
        )


def _generator_fields(workload: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if workload is None:
        return DEFAULT_GENERATOR
    if isinstance(workload, str):
        if workload not in PRESETS:
            raise SpecError(
                f"unknown workload {workload!r}{closest(workload, PRESETS)} (presets: "
                f"{', '.join(PRESETS)}; a trace file is given as `trace`)"
            )
        return {"kind": "traffic", "preset": workload}
    if not isinstance(workload, Mapping):
        raise TypeError(
            f"workload: got {workload!r}, expected the name of a preset, a mapping or None"
        )
    kind = workload.get("kind", default_kind(workload))
    if kind != "chat-wave":
        return {**workload, "kind": kind}
    fields = {**DEFAULT_GENERATOR, **workload}
    if "duration_s" in workload and "spike_at_s" not in workload:
        del fields["spike_at_s"]
    return fields


def _generator_spec(fields: Mapping[str, Any]) -> WorkloadSpec:
    return WorkloadSpec.from_data({"generator": dict(fields)}, at="workload")


def _generator(spec: WorkloadSpec) -> GeneratorSpec | TrafficSpec:
    assert isinstance(spec.generator, GeneratorSpec | TrafficSpec)
    return spec.generator


def _remedy(spec: WorkloadSpec) -> str:
    """Return a hint for shorter requests."""
    if isinstance(spec.generator, TrafficSpec):
        return 'bound the lengths, lengths={"max_input_tokens": …, "max_output_tokens": …}'
    return "lower mean_input_tokens or mean_output_tokens"


def _duration_s(spec: WorkloadSpec) -> float:
    return _generator(spec).duration_s


def _generate(spec: WorkloadSpec) -> RequestTable:
    """Return the generated requests; the table may be empty."""
    try:
        return load_workload(spec)
    except NoRequestsError:
        return requests_from_arrays([], [], [])


def _check_exists(number: int, num_episodes: int | None) -> None:
    if num_episodes is not None and number >= num_episodes:
        raise ValueError(f"options.episode: got {number}, expected 0 to {num_episodes - 1}")


def _cut(requests: RequestTable, duration_s: float, only: TrafficSlice) -> EpisodeTraffic:
    """Return a slice of an episode; a slice up to the end includes the last arrival."""
    if 0.0 < only.start_s >= duration_s:
        raise ValueError(
            f"options.start_s: got {only.start_s}, expected less than {duration_s} (seconds of the "
            "episode)"
        )
    end_s = min(only.start_s + only.duration_s, duration_s)
    until_s = math.inf if end_s == duration_s else end_s
    return EpisodeTraffic(requests.between(1e3 * only.start_s, 1e3 * until_s), end_s - only.start_s)

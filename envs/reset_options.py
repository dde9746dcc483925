"""Options of one episode: ``reset(options=…)``."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from aisim_gym.envs.episode_workload import TrafficSlice
from aisim_gym.spec.argument_checks import check_integer, check_number
from aisim_gym.spec.wording import closest


class ResetOptions(NamedTuple):
    """The options of a reset; they apply to one episode only.

    Attributes:
        episode: Number of the episode, or None.
        trace: Path of a trace to play instead of the workload, or None.
        only: The slice of the traffic to play, or None.
        workers: Field of the fleet spec -> initial workers, for the given pools.
    """

    episode: int | None
    trace: Any
    only: TrafficSlice | None
    workers: Mapping[str, int]


def read_options(
    options: Mapping[str, Any] | None, worker_options: Mapping[str, str]
) -> ResetOptions:
    """Return checked options.

    Args:
        options: Argument of ``reset``.
        worker_options: Option -> field of the fleet spec, by pool.

    Raises:
        TypeError: If an option has the wrong type.
        ValueError: If an option is unknown, not allowed, or conflicts with another one.
    """
    if options is None:
        options = {}
    if not isinstance(options, Mapping):
        raise TypeError(f"options: got {options!r}, expected a mapping or None")
    known = ("episode", "trace", "start_s", "duration_s", *worker_options)
    for name in options:
        if name not in known:
            raise ValueError(
                f"unknown option {name!r}{closest(str(name), known)} (known: {', '.join(known)})"
            )
    episode = options.get("episode")
    if episode is not None and check_integer("options.episode", episode, ">= 0") < 0:
        raise ValueError(f"options.episode: got {episode}, expected >= 0")
    if episode is not None and "trace" in options:
        raise ValueError("options: got episode and trace, expected at most one of them")
    return ResetOptions(
        episode=None if episode is None else int(episode),
        trace=options.get("trace"),
        only=_slice(options),
        workers={
            field: check_integer(f"options.{name}", options[name], "")
            for name, field in worker_options.items()
            if name in options
        },
    )


def _slice(options: Mapping[str, Any]) -> TrafficSlice | None:
    if "start_s" not in options and "duration_s" not in options:
        return None
    start_s = check_number("options.start_s", options.get("start_s", 0.0), ">= 0")
    duration_s = check_number("options.duration_s", options.get("duration_s", math.inf), "> 0")
    if not (math.isfinite(start_s) and start_s >= 0.0):
        raise ValueError(f"options.start_s: got {start_s}, expected a finite number >= 0")
    if not duration_s > 0.0:
        raise ValueError(f"options.duration_s: got {duration_s}, expected > 0")
    return TrafficSlice(start_s, duration_s)

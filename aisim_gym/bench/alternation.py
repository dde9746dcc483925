"""Measuring several things in turns, so that whatever slows the machine slows all of them."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Result = TypeVar("Result")


def alternate(runs: Mapping[str, Callable[[], Result]], repeats: int) -> dict[str, list[Result]]:
    """Call all of ``runs`` in their order, ``repeats`` times.

    Args:
        runs: What to call, by name.
        repeats: Rounds, >= 1.

    Returns:
        What each returned, round by round.
    """
    results: dict[str, list[Result]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            results[name].append(run())
    return results


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started_s = time.perf_counter()
    call()
    return time.perf_counter() - started_s

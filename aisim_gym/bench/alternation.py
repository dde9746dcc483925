"""Alternate measurements, so that load on the machine affects all of them."""

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Result = TypeVar("Result")


def alternate(runs: Mapping[str, Callable[[], Result]], repeats: int) -> dict[str, list[Result]]:
    """Call all of ``runs`` in order, ``repeats`` times.

    Args:
        runs: Callables by name.
        repeats: Rounds, >= 1.

    Returns:
        Results of each callable, per round.
    """
    results: dict[str, list[Result]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            results[name].append(run())
    return results


def seconds(call: Callable[[], object]) -> float:
    """Return the duration of a call in seconds."""
    started_s = time.perf_counter()
    call()
    return time.perf_counter() - started_s

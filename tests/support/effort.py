"""What something costs, as a ratio to something else in the same run.

Limits in seconds fail on a loaded or slow machine; ratios of CPU times hold there too.
"""

import time
from collections.abc import Callable
from statistics import median

HANG_S = 1800.0
"""After this long a process of a test counts as hanging: not a limit on its speed."""


def cpu_s(call: Callable[[], object]) -> float:
    """Return the CPU time of a call in this process, in seconds."""
    begun_s = time.process_time()
    call()
    return time.process_time() - begun_s


def cpu_ratio(call: Callable[[], object], other: Callable[[], object], times: int = 5) -> float:
    """Return how much more CPU time one call takes than another: the median of alternations."""
    return median(cpu_s(call) / cpu_s(other) for _ in range(times))


def count_loop() -> int:
    """Do a fixed amount of work in plain Python, a few hundredths of a second."""
    total = 0
    for number in range(500_000):
        total += number & 7
    return total


def cpu_loops(call: Callable[[], object]) -> float:
    """Return the CPU time of one call in units of ``count_loop``, measured on both sides of it."""
    before = [cpu_s(count_loop) for _ in range(3)]
    taken_s = cpu_s(call)
    return taken_s / median([*before, *(cpu_s(count_loop) for _ in range(3))])

"""Section ``memory``: peak memory of a process that runs a long replay."""

import sys
from collections.abc import Iterator
from pathlib import Path

from aisim_gym.bench.bench_options import BenchOptions
from aisim_gym.bench.child_process import run_program
from aisim_gym.bench.growth import USUAL_WORKERS, fleet_spec, steady_requests, timed_run
from aisim_gym.bench.measurement import Measurement, Skipped, Target

MILLION_REQUESTS = Target(600.0, is_floor=False)

PROGRAM = "from aisim_gym.bench.memory import print_peak; print_peak({})"


def measure_memory(options: BenchOptions) -> Iterator[Measurement | Skipped]:
    """Yield the peak memory of a process with a million requests (short: 100,000) on 32 workers."""
    num_requests = 100_000 if options.is_short else 1_000_000
    peaks_mb = []
    for repeat in range(options.repeats):
        options.tell(f"memory of {num_requests:,} requests ({repeat + 1}/{options.repeats})")
        _, printed = run_program(PROGRAM.format(num_requests))
        peaks_mb.append(float(printed))
    yield Measurement(f"{num_requests:,} requests", "MB", tuple(peaks_mb), target=MILLION_REQUESTS)


def print_peak(num_requests: int) -> None:
    """Run a replay and print the peak of this process in MB (10^6 bytes)."""
    timed_run(fleet_spec(USUAL_WORKERS), steady_requests(num_requests))
    print(peak_bytes() / 1e6)


def peak_bytes() -> int:
    """Return the peak memory of this process.

    On Linux ``getrusage`` includes the memory of the parent process, so ``/proc`` is read instead.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text("utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    import resource  # not available on every system

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak

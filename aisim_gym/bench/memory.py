"""Section ``memory``: the most memory that a process holds which runs a long replay."""

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
    """Yield the peak of a million requests on 32 workers (in short: 100,000), whole process."""
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
    """Return the most memory that this process has held.

    Linux counts in ``getrusage`` what the process that started this one held, so there its own
    figure is read.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text("utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    import resource  # not on every system

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak

"""Compile the kernel once, before several test processes would each do it.

A tiny replay with a tick for every world type, in as many processes as there are cores; later
processes load the compiled code from the cache.
"""

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from aisim_gym import Replay, requests_from_arrays

ENGINES: tuple[dict[str, Any], ...] = (
    {"backend": "vllm"},
    {"backend": "sglang"},
    {"backend": "trtllm"},
    {"backend": "vllm", "aic_nextn": 2},
    {"backend": "trtllm", "aic_nextn": 2},
)
LAST = {"target_prefill": None, "target_decode": None, "next_tick_ms": None}


def run(engine: dict[str, Any]) -> None:
    """Run a tiny replay to its end."""
    requests = requests_from_arrays([0.0, 5.0], [100, 200], [3, 4])
    replay = Replay(
        {"fleet": {"kind": "agg", "engine": {"engine": engine}}}, requests, initial_tick_ms=10.0
    )
    while replay.advance_to_tick() is not None:
        replay.apply(LAST)


def main() -> None:
    """Run one replay per world type."""
    print("Compiling the kernel, if need be: 1-2 minutes per version of its sources", flush=True)
    started_s = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run, ENGINES))
    print(f"Kernel ready after {time.perf_counter() - started_s:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Compile the kernel once, before several test processes would each do it.

Two tiny replays with ticks and a report; later processes load the compiled code from the cache.
"""

import sys
import time

from aisim_gym import Replay, requests_from_arrays
from aisim_gym.kernel import is_compiled

FLEETS = (
    {"kind": "agg"},
    {
        "kind": "disagg",
        "prefill": {"engine": {"worker_type": "prefill"}},
        "decode": {"engine": {"worker_type": "decode"}},
    },
)
LAST = {"target_prefill": None, "target_decode": None, "next_tick_ms": None}


def main() -> None:
    """Run both topologies to their end."""
    if not is_compiled("advance"):
        print("Compiling the kernel: half a minute, once per version of its sources", flush=True)
    started_s = time.perf_counter()
    requests = requests_from_arrays([0.0, 5.0], [100, 200], [3, 4])
    for fleet in FLEETS:
        replay = Replay({"fleet": fleet}, requests, initial_tick_ms=10.0)
        while replay.advance_to_tick() is not None:
            replay.apply(LAST)
    print(f"Kernel ready after {time.perf_counter() - started_s:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

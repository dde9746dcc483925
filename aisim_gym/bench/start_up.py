"""Section ``start``: time from a new process to a ready environment."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from aisim_gym.bench.bench_options import BenchOptions
from aisim_gym.bench.child_process import run_program
from aisim_gym.bench.environments import ENV_ID
from aisim_gym.bench.measurement import Measurement, Skipped, Target

COLD = Target(60.0, is_floor=False)
WARM = Target(2.0, is_floor=False)

MAKE_AND_RESET = f"""
import gymnasium, aisim_gym.envs
env = gymnasium.make({ENV_ID!r})
env.reset(seed=1)
"""

FIRST_STEP = "env.step(env.action_space.sample())"


def measure_start(options: BenchOptions) -> Iterator[Measurement | Skipped]:
    """Yield the lifetime of a process that makes an environment, with and without a cache.

    The first process starts with an empty cache and also takes a step, so everything is compiled.
    """
    cold_s = []
    for repeat in range(options.repeats):
        options.tell(f"first use: compiling ({repeat + 1}/{options.repeats})")
        with TemporaryDirectory(prefix="aisim-cache-") as cache:
            cold_s.append(run_program(MAKE_AND_RESET + FIRST_STEP, Path(cache))[0])
    yield Measurement("first use: import, make, reset, step", "s", tuple(cold_s), target=COLD)
    options.tell("later use")
    run_program(MAKE_AND_RESET)
    warm_s = tuple(run_program(MAKE_AND_RESET)[0] for _ in range(options.repeats))
    yield Measurement("later use: import, make, reset", "s", warm_s, target=WARM)

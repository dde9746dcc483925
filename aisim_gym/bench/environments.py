"""Section ``env``: steps per second of the default disaggregated environment, random actions."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from aisim_gym.bench.alternation import alternate
from aisim_gym.bench.bench_options import BenchOptions
from aisim_gym.bench.measurement import Measurement, RatioKind, Skipped, Target

ENV_ID = "aisim_gym/Disaggregated-v0"
RATE_RPS, WORKERS_PER_POOL = 8.0, 4
NUM_ENVS, NUM_THREADS = 16, 2
ONE_PROCESS = Target(4000.0, is_floor=True)


class Played(NamedTuple):
    """Steps over several episodes; times in wall-clock seconds."""

    num_steps: int
    steps_s: float
    num_resets: int
    resets_s: float

    @property
    def per_second(self) -> float:
        """Steps per second, including resets."""
        return self.num_steps / (self.steps_s + self.resets_s)


ARGUMENTS: dict[str, Any] = {
    "initial_workers": WORKERS_PER_POOL,
    "workload": {"base_rate_rps": RATE_RPS, "peak_rate_rps": RATE_RPS, "spike_at_s": None},
    "tick_s": 30.0,
}
"""8 requests/s, ticks of 30 s, four workers per pool at the start."""


def make_env() -> Any:
    """Return the environment."""
    import gymnasium

    return gymnasium.make(f"aisim_gym.envs:{ENV_ID}", **ARGUMENTS)


def play(env: Any, num_steps: int) -> Played:
    """Take random actions over as many episodes as needed; drawing actions is not timed."""
    steps_s = resets_s = 0.0
    num_resets = 0
    needs_reset = True
    for _ in range(num_steps):
        if needs_reset:
            started_s = time.perf_counter()
            env.reset()
            resets_s += time.perf_counter() - started_s
            num_resets += 1
        action = env.action_space.sample()
        started_s = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        steps_s += time.perf_counter() - started_s
        needs_reset = terminated or truncated
    return Played(num_steps, steps_s, num_resets, resets_s)


def play_vector(envs: Any, num_steps: int) -> Played:
    """Step environments in lockstep; an automatic reset counts as a step."""
    calls = num_steps // envs.num_envs
    actions = [envs.action_space.sample() for _ in range(calls)]
    started_s = time.perf_counter()
    for action in actions:
        envs.step(action)
    return Played(calls * envs.num_envs, time.perf_counter() - started_s, 0, 0.0)


def play_threads(envs: list[Any], num_steps: int) -> Played:
    """Step every environment in its own thread."""
    share = num_steps // len(envs)
    threads = [threading.Thread(target=play, args=(env, share)) for env in envs]
    started_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Played(share * len(envs), time.perf_counter() - started_s, 0, 0.0)


def measure_env(options: BenchOptions) -> Iterator[Measurement | Skipped]:
    """Yield one environment, two kinds of vector environment, and one environment per thread."""
    import gymnasium
    from gymnasium.vector import SyncVectorEnv

    num_steps = 300 if options.is_short else 3000
    options.tell("environment steps")
    env, vector = make_env(), SyncVectorEnv([make_env] * NUM_ENVS)
    native = gymnasium.make_vec(f"aisim_gym.envs:{ENV_ID}", NUM_ENVS, **ARGUMENTS)
    threaded = [make_env() for _ in range(NUM_THREADS)]
    for seed, each in enumerate((env, vector, native, *threaded), start=1):
        each.reset(seed=seed)
        each.action_space.seed(seed)
    runs: dict[str, Callable[[], Played]] = {
        "one": partial(play, env, num_steps),
        "vector": partial(play_vector, vector, num_steps),
        "native": partial(play_vector, native, num_steps),
        "threads": partial(play_threads, threaded, num_steps),
    }
    alternate(runs, 1)
    results = alternate(runs, options.repeats)
    for each in (env, vector, native, *threaded):
        each.close()

    one = results["one"]
    yield Measurement(
        "steps of one environment",
        "steps/s",
        tuple(played.num_steps / played.steps_s for played in one),
        target=ONE_PROCESS,
    )
    yield Measurement(
        "its resets", "ms", tuple(1000.0 * played.resets_s / played.num_resets for played in one)
    )
    with_resets = tuple(played.per_second for played in one)
    yield Measurement("steps of one environment, resets included", "steps/s", with_resets)
    names = {
        "vector": f"SyncVectorEnv of {NUM_ENVS}",
        "native": f"make_vec of {NUM_ENVS}",
        "threads": f"{NUM_THREADS} threads",
    }
    for key, name in names.items():
        yield Measurement(
            f"steps of all in {name}, resets included",
            "steps/s",
            tuple(played.per_second for played in results[key]),
            with_resets,
            "one environment",
            RatioKind.SPEED,
        )

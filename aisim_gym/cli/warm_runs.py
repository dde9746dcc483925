"""Minimal runs that compile the kernel, each in its own process.

Each run compiles the code that it calls, so no list of entry points is needed.
"""

import contextlib
import io
import multiprocessing
import os
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from difflib import get_close_matches

from aisim_gym.fleet.worlds import BACKENDS
from aisim_gym.kernel_cache import Prepared, prepared_code
from aisim_gym.numba_adapter import IS_COMPLETE, SETTINGS


@dataclass(frozen=True)
class WarmRun:
    """A tiny replay, or the first steps in every environment."""

    name: str
    backend: str | None = None
    """None for the default environments."""
    drafts: bool = False
    """Whether the engines decode speculatively."""


@dataclass(frozen=True)
class Warmed:
    """Result of the process of one run."""

    code: list[Prepared]
    seconds: float
    warnings: list[str]


def choose_runs(backends: list[str], everything: bool) -> list[WarmRun]:
    """Return a run per kind of world; by default those of the environments.

    Raises:
        ValueError: If a backend is unknown, or compilation is disabled.
    """
    if SETTINGS.DISABLE_JIT:
        raise ValueError("NUMBA_DISABLE_JIT is set: nothing is compiled")
    if not IS_COMPLETE:
        raise ValueError("with this version of Numba every process compiles for itself")
    for name in backends:
        if name not in BACKENDS:
            guess = "".join(
                f"; did you mean {near!r}?" for near in get_close_matches(name, BACKENDS, 1)
            )
            raise ValueError(f"--backend: unknown backend {name!r}{guess} ({', '.join(BACKENDS)})")
    environments = WarmRun("environments")
    if not backends and not everything:
        return [environments]
    runs = []
    for name, (plain, drafting) in BACKENDS.items():
        if everything or name in backends:
            runs.append(WarmRun(name, name))
            if drafting is not plain:
                runs.append(WarmRun(f"{name}, speculative decoding", name, drafts=True))
    # Last, after another process has compiled the code shared with a backend.
    return [*runs, environments] if everything else runs


def warm(runs: list[WarmRun]) -> Iterator[tuple[WarmRun, Warmed]]:
    """Execute every run in its own process, as many at once as there are processors."""
    num_processes = min(len(runs), _num_processors())
    start_anew = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        num_processes, mp_context=start_anew, max_tasks_per_child=1
    ) as processes:
        futures = {processes.submit(_warm_one, run): run for run in runs}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _warm_one(run: WarmRun) -> Warmed:
    started_s = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("always")
        if run.backend is None:
            _step_environments()
        else:
            _replay(run.backend, run.drafts)
    texts = [str(warning.message) for warning in caught if warning.category is RuntimeWarning]
    return Warmed(prepared_code(), time.perf_counter() - started_s, texts)


def _step_environments() -> None:
    import gymnasium

    from aisim_gym.envs import ENTRY_POINTS

    for env_id in ENTRY_POINTS:
        env = gymnasium.make(env_id)
        env.reset(seed=1)
        env.step(env.action_space.sample())
        env.close()


def _replay(backend: str, drafts: bool) -> None:
    from aisim_gym.replay import Replay, ScalingDecision
    from aisim_gym.workload import requests_from_arrays

    engine = {"backend": backend, **({"aic_nextn": 2} if drafts else {})}
    num_requests = 100  # enough that all tables must grow
    requests = requests_from_arrays(
        [5.0 * i for i in range(num_requests)], [2000] * num_requests, [3] * num_requests
    )
    spec = {"fleet": {"kind": "agg", "engine": {"engine": engine}}}
    replay = Replay(spec, requests, initial_tick_ms=10.0)
    while replay.advance_to_tick() is not None:
        replay.apply(ScalingDecision(target_decode=1, next_tick_ms=replay.now_ms + 1000.0))


def _num_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

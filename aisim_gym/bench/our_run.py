"""Run a case with this package and time its phases."""

import time

from aisim_gym.bench.bench_case import BenchCase, TimedRun
from aisim_gym.replay import Replay
from aisim_gym.report import summarize


def run_ours(case: BenchCase, pass_by_pass: bool = False) -> TimedRun:
    """Run a case: build the world from requests in memory, and run it to the end.

    Args:
        case: What to run.
        pass_by_pass: Simulate every pass separately, which is slower but gives the same results.
    """
    policy = case.make_policy()
    first_ms = None if policy is None else policy.initial_tick_ms()
    spec = case.spec
    started_s = time.perf_counter()
    replay = Replay(spec, case.requests, initial_tick_ms=first_ms, fast_forward=not pass_by_pass)
    built_s = time.perf_counter()
    replay.follow(policy)
    ran_s = time.perf_counter()
    summary = summarize(replay).summary
    ended_s = time.perf_counter()
    details = {
        "ours, run only": (ran_s - built_s) * 1000.0,
        "ours, with summary": (ended_s - started_s) * 1000.0,
    }
    return TimedRun(ran_s - started_s, details, summary)

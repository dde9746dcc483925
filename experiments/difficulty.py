"""Measure how hard the scenarios are: the best static fleet, an autoscaler, and chance.

    python experiments/difficulty.py [--only NAME] [--episodes 10] [--out envs/data/difficulty.json]

Every fixed fleet within the limits plays the same validation episodes, and so does the horizontal
pod autoscaler with each of its metrics; the best of each kind by reward is kept. The file is
written after every scenario, so an interrupted run keeps what it has; scenarios that are in it
already are measured again only with ``--again``.
"""

import argparse
import itertools
import json
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from rich.progress import track

import aisim_gym
from aisim_gym.envs import ScalingEnv
from aisim_gym.envs.action import Targets
from aisim_gym.envs.scenarios import SCENARIOS, Scenario
from aisim_gym.policies import make_policy, run_policy_in_env
from aisim_gym.report.atomic_file import replace_file

HPA_METRICS = ("conc", "queue", "kv", "qtok")


class Result(NamedTuple):
    """Means over the episodes."""

    policy: str
    setting: str
    attainment: float
    gpu_hours: float
    reward: float
    cpu_s: float


def main() -> None:
    """Measure the scenarios and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", help="measure one scenario, e.g. ChatSteady-v0")
    parser.add_argument("--again", action="store_true", help="also those that are in the file")
    parser.add_argument("--episodes", type=int, default=10, help="validation episodes of each")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("envs/data/difficulty.json"))
    options = parser.parse_args()

    measured = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    with ProcessPoolExecutor(options.processes) as pool:
        for scenario in SCENARIOS:
            name = scenario.id.split("/")[1]
            if options.only not in (None, name) or (name in measured and not options.again):
                continue
            players = list(players_of(scenario))
            play = partial(play_episodes, scenario, num_episodes=options.episodes)
            found = track(pool.map(play, players), name, total=len(players))
            measured[name] = summary(list(found), options.episodes)
            with replace_file(options.out) as path:
                path.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")


def players_of(scenario: Scenario) -> Iterator[tuple[str, Any]]:
    """Yield every static fleet, every metric of the autoscaler, and chance."""
    env = make_env(scenario)
    limits, pools = env.fleet_description.limits, list(env.worker_options)
    counts = []
    for pool in pools:
        least, most = limits.of_pool("prefill" if "prefill" in pool else "decode")
        assert most is not None
        step = max(1, (most - least + 1) // 16)
        counts.append(range(max(least, 1), most + 1, step))
    for chosen in itertools.product(*counts):
        fleet = dict(zip(pools, chosen, strict=True))
        try:
            env.reset(options={**fleet, "episode": 0})
        except ValueError:  # over the GPU budget
            continue
        yield "static", fleet
    for metric in HPA_METRICS:
        yield "hpa", metric
    yield "random", 0


def play_episodes(scenario: Scenario, player: tuple[str, Any], num_episodes: int) -> Result:
    """Return the means of one player."""
    kind, setting = player
    env = make_env(scenario)
    num_episodes = min(num_episodes, env.num_episodes or num_episodes)
    totals = np.zeros(4)
    started_s = time.process_time()
    for number in range(num_episodes):
        options: dict[str, Any] = {"episode": number}
        if kind == "static":
            reward, info = play_fixed(env, {**options, **setting})
        elif kind == "hpa":
            policy = make_policy("hpa", metrics=[{"name": setting}])
            result = run_policy_in_env(env, policy, seed=number, options=options)
            reward, info = result.total_reward, result.info
        else:
            env.action_space.seed(number)
            reward, info = play_random(env, options)
        arrived = max(1, info["total_arrived"])
        totals += (info["total_good"] / arrived, info["total_gpu_hours"], reward, 0.0)
    cpu_s = (time.process_time() - started_s) / num_episodes
    attainment, gpu_hours, reward, _ = (totals / num_episodes).tolist()
    return Result(kind, setting_text(kind, setting), attainment, gpu_hours, reward, cpu_s)


def play_fixed(env: ScalingEnv, options: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Play an episode in which the fleet stays as it is."""
    env.reset(options=options)
    counts = [options[name] for name in env.worker_options]
    targets = Targets(None, counts[0]) if len(counts) == 1 else Targets(*counts)
    return play(env, lambda: env.action_object.encode(targets, env.snapshot))


def play_random(env: ScalingEnv, options: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """Play an episode of random actions."""
    env.reset(options=options)
    return play(env, env.action_space.sample)


def play(env: ScalingEnv, act: Any) -> tuple[float, dict[str, Any]]:
    """Return the sum of the rewards and the last info of the episode that has begun."""
    total, ended = 0.0, False
    info: dict[str, Any] = {}
    while not ended:
        _, reward, terminated, truncated, info = env.step(act())
        total += reward
        ended = terminated or truncated
    return total, info


def summary(results: list[Result], num_episodes: int) -> dict[str, Any]:
    """Return the best of each kind as plain data."""
    best = {
        kind: max((r for r in results if r.policy == kind), key=lambda r: r.reward)
        for kind in ("static", "hpa", "random")
    }
    return {
        "episodes": num_episodes,
        "version": aisim_gym.__version__,
        "cpu_s_per_episode": float(np.mean([result.cpu_s for result in results])),
        "rows": [
            {
                "policy": result.policy,
                "setting": result.setting,
                "attainment": round(result.attainment, 4),
                "gpu_hours": round(result.gpu_hours, 3),
                "reward": round(result.reward, 3),
            }
            for result in best.values()
        ],
    }


def setting_text(kind: str, setting: Any) -> str:
    """Return what was chosen, in words."""
    if isinstance(setting, Mapping):
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in setting.items())
    return f"metric {setting}" if kind == "hpa" else ""


def make_env(scenario: Scenario) -> ScalingEnv:
    """Return the environment of the validation episodes."""
    env = gymnasium.make(scenario.id, split="validation").unwrapped
    assert isinstance(env, ScalingEnv)
    return env


if __name__ == "__main__":
    main()

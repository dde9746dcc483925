"""Measure how hard the scenarios are: the best static fleet, an autoscaler, and chance.

    python experiments/difficulty.py [--only NAME] [--episodes 10] [--out envs/data/difficulty.json]

Every fixed fleet within the limits plays the same validation episodes, and so does the horizontal
pod autoscaler with each of its metrics; the best of each kind by reward is kept. The file is
written after every scenario, so an interrupted run keeps what it has; scenarios that are in it
already are measured again only with ``--again``.
"""

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from rich.progress import track

import aisim_gym
from aisim_gym.envs import ScalingEnv
from aisim_gym.envs.scenarios import SCENARIOS, Scenario
from aisim_gym.policies import EnvPolicy, make_policy
from aisim_gym.policies.env_runner import Actor, unwrap
from aisim_gym.policies.rl.evaluation import evaluate, static_fleets, static_planner
from aisim_gym.policies.rl.training_config import EpisodeSet
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
    for fleet in static_fleets(make_env(scenario)):
        yield "static", fleet
    for metric in HPA_METRICS:
        yield "hpa", metric
    yield "random", None


def play_episodes(scenario: Scenario, player: tuple[str, Any], num_episodes: int) -> Result:
    """Return the means of one player."""
    kind, setting = player
    env = make_env(scenario)
    num_episodes = min(num_episodes, env.num_episodes or num_episodes)
    episodes = EpisodeSet(choose_by="episode", first=0, episodes=num_episodes)
    actor: Actor = RandomActor(env)
    workers = {}
    if kind == "static":
        actor = EnvPolicy(env, static_planner(setting))
        workers = dict(zip(env.worker_options, setting.workers, strict=True))
    elif kind == "hpa":
        actor = EnvPolicy(env, make_policy("hpa", metrics=[{"name": setting}]))
    started_s = time.process_time()
    results = evaluate(env, actor, episodes, workers)
    cpu_s = (time.process_time() - started_s) / num_episodes
    attainment, gpu_hours, reward = (
        float(np.mean([getattr(result, name) for result in results]))
        for name in ("attainment_frac", "gpu_hours", "reward")
    )
    text = _setting_text(kind, setting, env)
    return Result(kind, text, attainment, gpu_hours, reward, cpu_s)


class RandomActor:
    """Chooses actions by chance, in the k-th episode always the same."""

    def __init__(self, env: ScalingEnv) -> None:
        """Act in ``env``."""
        self._env = env
        self._num_episodes = 0

    def reset(self, seed: int | None = None) -> None:
        """Begin the next episode."""
        self._env.action_space.seed(self._num_episodes)
        self._num_episodes += 1

    def act(self, observation: Any) -> Any:
        """Return any action."""
        return self._env.action_space.sample()


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


def _setting_text(kind: str, setting: Any, env: ScalingEnv) -> str:
    """Return what was chosen, in words."""
    if kind == "static":
        counts = zip(env.worker_options, setting.workers, strict=True)
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts)
    return f"metric {setting}" if kind == "hpa" else ""


def make_env(scenario: Scenario) -> ScalingEnv:
    """Return the environment of the validation episodes."""
    return unwrap(gymnasium.make(scenario.id, split="validation"))


if __name__ == "__main__":
    main()

"""Measure the difficulty of scenarios: best static fleet, autoscaler and random actions.

    python experiments/difficulty.py [--only NAME] [--episodes 10] [--out envs/data/difficulty.json]

Every fixed fleet within the limits plays the same validation episodes, and the best by reward is
kept. The horizontal pod autoscaler is tuned first: each metric with each target of a small grid
plays the same training episodes, and the best by reward plays the validation episodes. The file is
written after every scenario, so an interrupted run keeps its results; scenarios already in it are
measured again only with ``--again``.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from rich.progress import track

import aisim_gym
from aisim_gym.envs import ScalingEnv
from aisim_gym.envs.scenarios import SCENARIOS
from aisim_gym.policies import EnvPolicy, make_policy
from aisim_gym.policies.env_runner import Actor, unwrap
from aisim_gym.policies.hpa import HpaMetric
from aisim_gym.policies.length_memory import LengthMemory
from aisim_gym.policies.rl.evaluation import StaticFleet, evaluate, static_fleets, static_planner
from aisim_gym.policies.rl.training_config import EpisodeSet
from aisim_gym.policies.role_view import make_observers
from aisim_gym.report.atomic_file import replace_file

HPA_METRICS: tuple[Literal["conc", "queue", "kv", "qtok"], ...] = ("conc", "queue", "kv", "qtok")

TARGET_FACTORS = (0.0625, 0.125, 0.25, 0.5, 1.0)
"""Factors on the preset target of a metric, equal in both pools."""

TRAINING = EpisodeSet(choose_by="seed", first=0, episodes=3)
"""Episodes of the split ``train`` for tuning the autoscaler."""

MapPlayers = Callable[[Callable[[Any], Any], list[Any]], Iterable[Any]]
"""``map`` or an equivalent for several processes."""


class Player(NamedTuple):
    """A policy with its setting.

    Attributes:
        policy: ``static``, ``hpa`` or ``random``.
        setting: Description of the setting.
        choice: A :class:`StaticFleet`, the fields of a :class:`HpaMetric`, or None.
    """

    policy: str
    setting: str = ""
    choice: Any = None


class Result(NamedTuple):
    """Means over the episodes."""

    player: Player
    attainment: float
    gpu_hours: float
    reward: float
    cpu_s: float


def main() -> None:
    """Measure the scenarios and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", help="measure one scenario, e.g. ChatSteady-v0")
    parser.add_argument("--again", action="store_true", help="also those that are in the file")
    parser.add_argument("--episodes", type=int, default=10, help="validation episodes of each")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("envs/data/difficulty.json"))
    options = parser.parse_args()

    measured = json.loads(options.out.read_text("utf-8")) if options.out.exists() else {}
    for scenario in SCENARIOS:
        name = scenario.id.split("/")[1]
        if options.only not in (None, name) or (name in measured and not options.again):
            continue

        def play_all(play: Callable[[Any], Any], players: list[Any], name: str = name) -> Any:
            return track(pool.map(play, players), name, total=len(players))

        # A pool per scenario: its processes keep environments, some with a whole week of traffic.
        with ProcessPoolExecutor(options.processes) as pool:
            measured[name] = measure(scenario.id, options.episodes, play_all)
        with replace_file(options.out) as path:
            path.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")


def measure(env_id: str, num_episodes: int, play_all: MapPlayers = map) -> dict[str, Any]:
    """Return the results of a scenario as plain data.

    Args:
        env_id: Id of the scenario.
        num_episodes: Validation episodes to play, >= 2; at most those of the scenario.
        play_all: Applies a function to every player.
    """
    env = make_env(env_id, "validation")
    num_episodes = min(num_episodes, env.num_episodes or num_episodes)
    validation = EpisodeSet(choose_by="episode", first=0, episodes=num_episodes)
    tuned = list(play_all(partial(play, env_id, "train", TRAINING), list(hpa_players(env))))
    players = [*static_players(env), best(tuned).player, Player("random")]
    results = list(play_all(partial(play, env_id, "validation", validation), players))
    kinds = ("static", "hpa", "random")
    kept = [best(r for r in results if r.player.policy == kind) for kind in kinds]
    return {
        "episodes": num_episodes,
        "hpa_grid": {
            "metrics": list(HPA_METRICS),
            "target_factors": list(TARGET_FACTORS),
            "episodes": TRAINING.episodes,
        },
        "version": aisim_gym.__version__,
        "cpu_s_per_episode": float(np.mean([result.cpu_s for result in results])),
        "rows": [
            {
                "policy": result.player.policy,
                "setting": result.player.setting,
                "attainment": round(result.attainment, 4),
                "gpu_hours": round(result.gpu_hours, 3),
                "reward": round(result.reward, 3),
            }
            for result in kept
        ],
    }


def best(results: Iterable[Result]) -> Result:
    """Return the result with the highest reward."""
    return max(results, key=lambda result: result.reward)


def static_players(env: ScalingEnv) -> Iterator[Player]:
    """Yield every fixed fleet within the limits."""
    for fleet in static_fleets(env):
        texts = []
        for name, count in zip(env.worker_options, fleet.workers, strict=True):
            words = name.replace("_", " ")
            texts.append(f"{count} {words.removesuffix('s') if count == 1 else words}")
        yield Player("static", ", ".join(texts), fleet)


def hpa_players(env: ScalingEnv) -> Iterator[Player]:
    """Yield the autoscaler with every metric and target of the grid.

    Presets that depend on request lengths use the values before the first completion, so that a
    target is a constant for ``make_policy``.
    """
    env.reset(options={"episode": 0})
    lengths = LengthMemory()
    roles = make_observers(env.fleet_description)
    views = [role.observe(env.snapshot, lengths) for role in roles]
    for name, factor in product(HPA_METRICS, TARGET_FACTORS):
        targets = {}
        for role, view in zip(roles, views, strict=True):
            preset = HpaMetric(name=name).target(view, role.role)
            assert preset is not None
            targets[f"{role.pool}_target"] = float(f"{factor * preset:.4g}")
        texts = [f"{target:g}" for target in targets.values()]
        plural = "s" if len(texts) > 1 else ""
        setting = f"{name}, target{plural} {' and '.join(texts)} per worker"
        yield Player("hpa", setting, {"name": name, **targets})


def play(env_id: str, split: str, episodes: EpisodeSet, player: Player) -> Result:
    """Return the mean results of one player."""
    env = make_env(env_id, split)
    actor, workers = actor_of(player, env)
    started_s = time.process_time()
    results = evaluate(env, actor, episodes, workers)
    cpu_s = (time.process_time() - started_s) / episodes.episodes
    attainment, gpu_hours, reward = (
        float(np.mean([getattr(result, name) for result in results]))
        for name in ("attainment_frac", "gpu_hours", "reward")
    )
    return Result(player, attainment, gpu_hours, reward, cpu_s)


def actor_of(player: Player, env: ScalingEnv) -> tuple[Actor, Mapping[str, int]]:
    """Return the actor, and its initial workers if they differ from the environment's."""
    if player.policy == "hpa":
        return EnvPolicy(env, make_policy("hpa", metrics=[player.choice])), {}
    if player.policy == "random":
        return RandomActor(env), {}
    fleet: StaticFleet = player.choice
    workers = dict(zip(env.worker_options, fleet.workers, strict=True))
    return EnvPolicy(env, static_planner(fleet)), workers


class RandomActor:
    """Chooses random actions, reproducible per episode number."""

    def __init__(self, env: ScalingEnv) -> None:
        """Create the actor for ``env``."""
        self._env = env
        self._num_episodes = 0

    def reset(self, seed: int | None = None) -> None:
        """Begin the next episode."""
        self._env.action_space.seed(self._num_episodes)
        self._num_episodes += 1

    def act(self, observation: Any) -> Any:
        """Return a random action."""
        return self._env.action_space.sample()


@lru_cache(maxsize=2)
def make_env(env_id: str, split: str) -> ScalingEnv:
    """Return the cached environment of a split, as some generate a whole week."""
    return unwrap(gymnasium.make(env_id, split=split))


if __name__ == "__main__":
    main()

"""Policies on the same episodes: learned ones, planners, and every fixed fleet.

Fixed fleets have their size from the first moment, so they are neither charged for starting nor
late; the others start with the fleet of the environment.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

import gymnasium

from aisim_gym.envs.pool_scales import most_workers, pools_of
from aisim_gym.envs.scaling_env import ScalingEnv
from aisim_gym.envs.targets import Targets, fleet_gpus
from aisim_gym.policies.env_runner import Actor, EnvPolicy, play_episode, unwrap
from aisim_gym.policies.rl.episode_metrics import EpisodeMetrics
from aisim_gym.policies.rl.learned_policy import LearnedPolicy
from aisim_gym.policies.rl.training_config import EpisodeSet
from aisim_gym.policies.rl.training_envs import reset_arguments
from aisim_gym.policies.static import StaticPolicy


class StaticFleet(NamedTuple):
    """Workers that never change.

    Attributes:
        workers: Of each pool, prefill first.
        gpus: All together.
    """

    workers: tuple[int, ...]
    gpus: int

    @property
    def name(self) -> str:
        """Return what the fleet is called: ``2+6``."""
        return "+".join(map(str, self.workers))


class LearnedActor:
    """A learned policy in an environment."""

    def __init__(self, env: ScalingEnv, policy: LearnedPolicy) -> None:
        """Let ``policy`` act in ``env``."""
        self._env = env
        self._policy = policy

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode; the policy draws nothing."""
        self._policy.reset()

    def act(self, observation: Any) -> Any:
        """Return the most likely action."""
        masks = self._env.action_masks() if self._policy.is_maskable else None
        return self._policy.act(observation, masks)


def evaluate(
    env: gymnasium.Env[Any, Any],
    actor: Actor,
    episodes: EpisodeSet,
    options: Mapping[str, Any] | None = None,
) -> list[EpisodeMetrics]:
    """Return the results of an actor, episode by episode.

    Args:
        env: Made for this set of episodes.
        actor: Who chooses the actions.
        episodes: Which ones.
        options: Further options of every ``reset()``.
    """
    results = []
    for k in range(episodes.episodes):
        episode = play_episode(env, actor, **_reset(episodes, k, options))
        results.append(EpisodeMetrics.of(episode.total_reward, episode.num_steps, episode.info))
    return results


def evaluate_static_fleets(
    env: gymnasium.Env[Any, Any], episodes: EpisodeSet, told: Callable[[int, int], None]
) -> dict[StaticFleet, list[EpisodeMetrics]]:
    """Return the results of every fixed fleet within the limits of an environment.

    Args:
        env: Made for this set of episodes.
        episodes: Which ones.
        told: Called with the fleets done and the fleets there are.
    """
    scaling_env = unwrap(env)
    fleets = list(static_fleets(scaling_env))
    results = {}
    for done, fleet in enumerate(fleets):
        told(done, len(fleets))
        actor = EnvPolicy(env, static_planner(fleet))
        options = dict(zip(scaling_env.worker_options, fleet.workers, strict=True))
        results[fleet] = evaluate(env, actor, episodes, options)
    return results


def static_fleets(env: ScalingEnv) -> Iterator[StaticFleet]:
    """Yield every fixed fleet within the limits that has a worker in each pool."""
    description = env.fleet_description
    limits = description.limits
    counts = [
        range(max(limits.of_pool(pool)[0], 1), most_workers(description, pool) + 1)
        for pool, _ in pools_of(description).values()
    ]
    for workers in product(*counts):
        targets = Targets(workers[0] if len(workers) == 2 else None, workers[-1])
        gpus = fleet_gpus(targets, description)
        if limits.max_gpus is None or gpus <= limits.max_gpus:
            yield StaticFleet(workers, gpus)


def static_planner(fleet: StaticFleet) -> StaticPolicy:
    """Return the planner that keeps a fleet as it is."""
    if len(fleet.workers) == 1:
        return StaticPolicy(replicas=fleet.workers[0])
    return StaticPolicy(prefill=fleet.workers[0], decode=fleet.workers[1])


def _reset(episodes: EpisodeSet, k: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
    chosen = reset_arguments(episodes, k)
    if options:
        chosen["options"] = {**chosen.get("options", {}), **options}
    return chosen

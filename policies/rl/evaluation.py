"""Evaluate learned policies, planners and fixed fleets on the same episodes.

Fixed fleets have their size from the start, so they have no startup cost or delay; all others start
with the initial fleet of the environment.
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
        workers: Workers of each pool, prefill first.
        gpus: Total GPUs.
    """

    workers: tuple[int, ...]
    gpus: int

    @property
    def name(self) -> str:
        """Return the name of the fleet, such as ``2+6``."""
        return "+".join(map(str, self.workers))


class LearnedActor:
    """A learned policy in an environment."""

    def __init__(self, env: ScalingEnv, policy: LearnedPolicy) -> None:
        """Create an actor of ``policy`` in ``env``."""
        self._env = env
        self._policy = policy

    def reset(self, seed: int | None = None) -> None:
        """Start an episode; the policy is deterministic."""
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
    """Return the results of an actor per episode.

    Args:
        env: Environment of this set of episodes.
        actor: Chooses the actions.
        episodes: Set of episodes.
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
        env: Environment of this set of episodes.
        episodes: Set of episodes.
        told: Called with the number of finished fleets and the total.
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
    """Return the planner that keeps a fleet unchanged."""
    if len(fleet.workers) == 1:
        return StaticPolicy(replicas=fleet.workers[0])
    return StaticPolicy(prefill=fleet.workers[0], decode=fleet.workers[1])


def _reset(episodes: EpisodeSet, k: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
    chosen = reset_arguments(episodes, k)
    if options:
        chosen["options"] = {**chosen.get("options", {}), **options}
    return chosen

"""Evaluate policies and baselines on held-out episodes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from aisim_gym.policies.env_runner import EnvPolicy, unwrap
from aisim_gym.policies.registry import make_policy
from aisim_gym.policies.rl.comparison import Comparison, doubts_about
from aisim_gym.policies.rl.evaluation import (
    LearnedActor,
    evaluate,
    evaluate_static_fleets,
)
from aisim_gym.policies.rl.learned_policy import LearnedPolicy
from aisim_gym.policies.rl.training_config import EpisodeSet
from aisim_gym.spec.wording import closest

ALL_FIXED = "static"
"""Baseline name for all fixed fleets within the limits."""


def seeds_in(path: Path) -> list[Path]:
    """Return the sorted training seeds in the folder of a configuration, or the path itself."""
    folders = path.expanduser().glob("seed-*")
    seeds = sorted(folders, key=lambda folder: (len(folder.name), folder.name))
    return seeds or [path]


def choose_episodes(
    policies: Sequence[LearnedPolicy], split: str, num_episodes: int | None
) -> EpisodeSet:
    """Return the set of episodes for comparing policies.

    Args:
        policies: Training seeds of one configuration; environment and set must agree.
        split: Name of the set.
        num_episodes: Number of episodes, None for all of the set.

    Raises:
        ValueError: If the split is unknown, the policies differ, or there are too few episodes.
    """
    first = policies[0].description
    if split not in first.splits:
        known = ", ".join(first.splits)
        raise ValueError(f"unknown split {split!r}{closest(split, first.splits)} (known: {known})")
    for policy in policies[1:]:
        other = policy.description
        if (other.env, other.splits.get(split)) != (first.env, first.splits[split]):
            raise ValueError(
                f"policies: {policy_name(policy)} has another environment or {split} split than "
                f"{policy_name(policies[0])}; expected training seeds of one configuration"
            )
    episodes = first.splits[split]
    if num_episodes is None:
        return episodes
    if num_episodes < 2:
        raise ValueError(f"episodes: got {num_episodes}, expected at least 2 for an interval")
    return episodes.model_copy(update={"episodes": num_episodes})


def compare(
    policies: Sequence[LearnedPolicy],
    episodes: EpisodeSet,
    baselines: Sequence[str],
    told: Callable[[str, int, int], None],
) -> Comparison:
    """Return the results of policies and baselines on the same episodes.

    Args:
        policies: Training seeds of one configuration.
        episodes: Set of episodes.
        baselines: Names of planners, which run with their default parameters; ``static`` means
            every fixed fleet within the limits.
        told: Called with the name of the current item, the amount done and the total.

    Raises:
        ValueError: If a baseline is unknown or a policy is duplicated.
    """
    names = [row_name(policy) for policy in policies]
    if len(set(names)) < len(names):
        raise ValueError(f"policies: got {', '.join(names)}, expected each training seed once")
    planners = {name: make_policy(name) for name in baselines if name != ALL_FIXED}
    env = policies[0].make_env(**episodes.kwargs)
    scaling_env = unwrap(env)
    learned, others = {}, {}
    for done, (name, policy) in enumerate(zip(names, policies, strict=True)):
        told("learned policies", done, len(names))
        learned[name] = evaluate(env, LearnedActor(scaling_env, policy), episodes)
    for done, (name, planner) in enumerate(planners.items()):
        told("planners", done, len(planners))
        others[name] = evaluate(env, EnvPolicy(env, planner), episodes)
    fixed = {}
    if ALL_FIXED in baselines:
        fixed = evaluate_static_fleets(
            env, episodes, lambda done, total: told("fixed fleets", done, total)
        )
    env.close()
    return Comparison(learned, others, fixed, doubts_about(len(names), list(planners)))


def row_name(policy: LearnedPolicy) -> str:
    """Return the name of a training seed in tables."""
    return f"{policy.description.algorithm} seed {policy.description.training['seed']}"


def policy_name(policy: LearnedPolicy) -> str:
    """Return the name of a policy in messages."""
    training = policy.description.training
    return f"{training['name']} seed {training['seed']}"


def default_folder(policies: Sequence[LearnedPolicy], split: str) -> Path:
    """Return the default output folder of an evaluation."""
    return Path("runs") / "evaluation" / f"{policies[0].description.training['name']}-{split}"

"""Rewards: from what happened in a step to named terms whose sum is the reward.

A reward is a callable that takes a :class:`StepOutcome` and returns its terms; they appear in
``info`` as ``reward_<name>``, so the names must be the same in every step.

Example: good requests, less the GPUs they took.

    >>> import gymnasium
    >>> import aisim_gym.envs
    >>> class GoodRequests:
    ...     def __init__(self, gpu_hour_cost):
    ...         self.gpu_hour_cost = gpu_hour_cost
    ...     def __call__(self, step):
    ...         cost = self.gpu_hour_cost * step.gpu_hours
    ...         return {"good": 0.01 * step.good, "gpus": -cost}
    >>> env = gymnasium.make("aisim_gym/Aggregated-v0", reward=GoodRequests(2.0))
    >>> observation, info = env.reset(seed=1)
    >>> _, reward, _, _, info = env.step(env.action_space.sample())
    >>> reward == info["reward_good"] + info["reward_gpus"]
    True
    >>> env.close()
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol

from aisim_gym.spec.argument_checks import check_number


class StepOutcome(NamedTuple):
    """What happened since the previous reward; the first step includes the time before it.

    Attributes:
        duration_s: Simulated time.
        gpu_hours: GPU time that is paid for: starting, active and draining workers.
        arrived: Requests that arrived.
        completed: Requests that completed.
        rejected: Requests that ended without completing.
        good: Completed requests within the TTFT and ITL limits, bounds included.
        violations: Completed or rejected requests that are not good; at the episode's end also
            unfinished ones, each by how far it is past its limit, at most 1 (rulings.md 11).
        overdue_s: Request-seconds waited for a first token beyond the TTFT limit.
        churn: Workers by which the action moved the targets, both pools together.
    """

    duration_s: float
    gpu_hours: float
    cost_usd: float
    arrived: int
    completed: int
    rejected: int
    good: int
    violations: float
    overdue_s: float
    churn: int


class Reward(Protocol):
    """What an environment needs from its reward object."""

    def __call__(self, step: StepOutcome) -> Mapping[str, float]:
        """Return the terms of the reward by name."""
        ...


@dataclass(frozen=True)
class CostSloReward:
    """GPU cost, violated service levels and restlessness, all negative (policies.md §18.2).

    ===========  =====================================================  ======================
    term         value                                                  default weight
    ===========  =====================================================  ======================
    gpus         ``-gpu_hour_weight * price * gpu_hours``               1 (price 1)
    violations   ``-violation_weight * violations``                     0.01 per request
    overdue      ``-overdue_weight * overdue_s``                        0 per request-second
    churn        ``-churn_weight * churn``                              0.001 per worker
    ===========  =====================================================  ======================

    Attributes:
        gpu_hour_weight: w_g, >= 0.
        price: Price of a GPU-hour, >= 0.
        violation_weight: w_v, >= 0.
        overdue_weight: w_q, >= 0.
        churn_weight: w_s, >= 0.
    """

    gpu_hour_weight: float = 1.0
    price: float = 1.0
    violation_weight: float = 0.01
    overdue_weight: float = 0.0
    churn_weight: float = 0.001

    def __post_init__(self) -> None:
        """Refuse weights that are negative or not finite."""
        for field in fields(self):
            given = getattr(self, field.name)
            weight = check_number(field.name, given, ">= 0 and finite")
            if not (math.isfinite(weight) and weight >= 0.0):
                raise ValueError(f"{field.name}: got {given}, expected a finite number >= 0")

    def __call__(self, step: StepOutcome) -> Mapping[str, float]:
        """Return the four terms."""
        return {
            "gpus": -self.gpu_hour_weight * self.price * step.gpu_hours,
            "violations": -self.violation_weight * step.violations,
            "overdue": -self.overdue_weight * step.overdue_s,
            "churn": -self.churn_weight * step.churn,
        }


REWARDS: Mapping[str, Callable[..., Reward]] = {"cost_slo": lambda fleet, **kw: CostSloReward(**kw)}
"""Class of each named reward."""

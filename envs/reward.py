"""Rewards: convert the outcome of a step to named terms whose sum is the reward.

A reward is a callable that takes a :class:`TickView` and returns its terms; ``view.step`` is the
outcome of the step. The terms appear in ``info`` as ``reward_<name>``, so the names must be the
same in every step. An optional method ``costs(view)`` returns quantities to constrain. Costs appear
in ``info`` as ``cost_<name>`` and their sum as ``cost``, the key that algorithms for constrained
problems use. The result of an optional method ``details(view)`` is added to ``info`` unchanged.

=========================  ========================================================================
name                       class =========================
======================================================================== ``cost_slo``
:class:`CostSloReward`: GPU cost, violations, churn; the default ``goodput_per_gpu_hour``
:class:`GoodputReward`: good requests per GPU-hour ``cmdp``
:class:`ConstrainedReward`: GPU cost and churn; violations are a cost ``lagrangian``
:class:`LagrangianReward`: the same, violations with a multiplier ``firm``
:class:`FirmReward`: latency limits and utilisation ``shaped``
:class:`ShapedReward`: another reward and a potential =========================
========================================================================

Example: good requests minus the cost of GPUs.

    >>> import gymnasium
    >>> import aisim_gym.envs
    >>> class GoodRequests:
    ...     def __init__(self, gpu_hour_cost):
    ...         self.gpu_hour_cost = gpu_hour_cost
    ...     def __call__(self, view):
    ...         cost = self.gpu_hour_cost * view.step.gpu_hours
    ...         return {"good": 0.01 * view.step.good, "gpus": -cost}
    >>> env = gymnasium.make("aisim_gym/Aggregated-v0", reward=GoodRequests(2.0))
    >>> observation, info = env.reset(seed=1)
    >>> _, reward, _, _, info = env.step(env.action_space.sample())
    >>> reward == info["reward_good"] + info["reward_gpus"]
    True
    >>> env.close()
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from aisim_gym.envs.component import make_component
from aisim_gym.envs.tick_view import TickView
from aisim_gym.replay import FleetDescription
from aisim_gym.spec.argument_checks import check_number


class Reward(Protocol):
    """Interface of reward objects."""

    def __call__(self, view: TickView) -> Mapping[str, float]:
        """Return the terms of the reward by name, for the step that ends at ``view``."""
        ...


def reward_terms(reward: Reward, view: TickView) -> dict[str, float]:
    """Return the terms of a reward.

    Raises:
        TypeError: If the reward does not return a mapping, or a term is not a number.
        ValueError: If a term is not finite.
    """
    given = reward(view)
    if not isinstance(given, Mapping):
        raise TypeError(
            f"reward: got {given!r}, expected a mapping from the names of its terms to numbers, "
            "such as {'gpus': -0.1}"
        )
    return _finite("reward", given)


def reward_info(reward: Reward, view: TickView) -> dict[str, float]:
    """Return the entries of a reward in ``info`` other than its terms; usually empty.

    These are its costs as ``cost_<name>``, their sum as ``cost``, and its details unchanged.
    """
    costs = _finite("cost", _told(reward, "costs", view))
    info = {f"cost_{name}": cost for name, cost in costs.items()}
    if info:
        info["cost"] = math.fsum(info.values())
    return info | _finite("detail", _told(reward, "details", view))


def _told(reward: Reward, method: str, view: TickView) -> Mapping[str, float]:
    """Return the result of an optional method of a reward, empty without the method."""
    tell: Callable[[TickView], Mapping[str, float]] | None = getattr(reward, method, None)
    return {} if tell is None else tell(view)


def _finite(what: str, given: Mapping[str, float]) -> dict[str, float]:
    """Return terms, costs or details as finite floats, with -0.0 replaced by 0.0."""
    terms = {}
    for name, value in given.items():
        if isinstance(value, str):
            raise TypeError(f"{what}.{name}: got {value!r}, expected a finite number")
        try:
            # Adding 0.0 turns -0.0 into 0.0, which is easier to read in logs.
            term = float(value) + 0.0
        except (TypeError, ValueError):
            raise TypeError(f"{what}.{name}: got {value!r}, expected a finite number") from None
        if not math.isfinite(term):
            raise ValueError(f"{what}.{name}: got {term}, expected a finite number")
        terms[name] = term
    return terms


def check_weight(name: str, given: object) -> None:
    """Raise if a parameter is not a number, negative or not finite."""
    number = check_number(name, given, ">= 0 and finite")
    if not (math.isfinite(number) and number >= 0.0):
        raise ValueError(f"{name}: got {given}, expected a finite number >= 0")


@dataclass(frozen=True)
class NamedReward:
    """Base of the named rewards: every parameter is a finite number >= 0.

    Attributes:
        fleet: Fleet with the limits on latencies.
    """

    fleet: FleetDescription = field(repr=False)

    def __post_init__(self) -> None:
        """Raise if a parameter is not a number, negative or not finite."""
        for parameter in fields(self):
            if parameter.name != "fleet":
                check_weight(parameter.name, getattr(self, parameter.name))


@dataclass(frozen=True)
class CostSloReward(NamedReward):
    """GPU cost, service level violations and churn, all negative (policies.md §18.2).

    ===========  =====================================================  ======================
    term         value                                                  default weight
    ===========  =====================================================  ======================
    gpus         ``-gpu_hour_weight * gpu_usd``                             1
    violations   ``-violation_weight * violations``                     0.01 per request
    overdue      ``-overdue_weight * overdue_s``                        0 per request-second
    churn        ``-churn_weight * churn``                              0.001 per worker
    ===========  =====================================================  ======================

    The sum over an episode is the negative cost of the whole run.

    Attributes:
        gpu_hour_weight: w_g, >= 0.
        violation_weight: w_v, >= 0.
        overdue_weight: w_q, >= 0.
        churn_weight: w_s, >= 0.
    """

    gpu_hour_weight: float = 1.0
    violation_weight: float = 0.01
    overdue_weight: float = 0.0
    churn_weight: float = 0.001

    def __call__(self, view: TickView) -> Mapping[str, float]:
        """Return the four terms."""
        step = view.step
        return {
            "gpus": -self.gpu_hour_weight * step.gpu_usd,
            "violations": -self.violation_weight * step.violations,
            "overdue": -self.overdue_weight * step.overdue_s,
            "churn": -self.churn_weight * step.churn,
        }


@dataclass(frozen=True)
class GoodputReward(NamedReward):
    """Good requests per GPU-hour (policies.md §18.1).

    ===========  =====================================================  ======================
    term         value                                                  default weight
    ===========  =====================================================  ======================
    goodput      ``weight * good / gpu_hours * duration_s / 3600``      0.01 per request
    ===========  =====================================================  ======================

    Ratios of steps of unequal length cannot be added, so each is weighted by its hours. The sum
    over an episode, divided by ``weight`` and the hours of the episode, is the mean over time of
    the goodput per GPU-hour; with a fleet of constant size it is exactly good requests per
    GPU-hour. A step without GPUs counts 0.

    Attributes:
        weight: Reward of one good request with one paid GPU, >= 0.
    """

    weight: float = 0.01

    def __call__(self, view: TickView) -> Mapping[str, float]:
        """Return the goodput term."""
        step = view.step
        if step.gpu_hours == 0.0:
            return {"goodput": 0.0}
        hours = step.duration_s / 3600.0
        return {"goodput": self.weight * step.good / step.gpu_hours * hours}


@dataclass(frozen=True)
class ConstrainedReward(NamedReward):
    """GPU cost and churn, with violations as a cost to constrain (policies.md §18.1).

    ===========  =====================================================  ======================
    term         value                                                  default weight
    ===========  =====================================================  ======================
    gpus         ``-gpu_hour_weight * gpu_usd``                             1
    churn        ``-churn_weight * churn``                              0.001 per worker
    ===========  =====================================================  ======================

    The only cost is ``violations``, the number of requests. An attainment of 95 % is a limit of 5 %
    of the requests of an episode.

    Attributes:
        gpu_hour_weight: >= 0.
        churn_weight: >= 0.
    """

    gpu_hour_weight: float = 1.0
    churn_weight: float = 0.001

    def __call__(self, view: TickView) -> Mapping[str, float]:
        """Return the two terms."""
        return {
            "gpus": -self.gpu_hour_weight * view.step.gpu_usd,
            "churn": -self.churn_weight * view.step.churn,
        }

    def costs(self, view: TickView) -> Mapping[str, float]:
        """Return the violations."""
        return {"violations": float(view.step.violations)}


@dataclass(frozen=True)
class LagrangianReward(ConstrainedReward):
    """The Lagrangian of the constrained problem (policies.md §18.1).

    ===========  =====================================================  ======================
    term         value                                                  default weight
    ===========  =====================================================  ======================
    gpus         ``-gpu_hour_weight * gpu_usd``                             1
    churn        ``-churn_weight * churn``                              0.001 per worker
    constraint   ``-multiplier * excess``                               0.01 per request
    ===========  =====================================================  ======================

    The only cost is ``excess = violations - allowed_frac * arrived``, which is negative in a step
    that is better than allowed; over an episode it is at most 0 if no more than ``allowed_frac`` of
    the requests are violations. The multiplier is constant: a learner that adapts it adds
    ``step_size * excess`` over its rollouts, keeps it >= 0 and passes ``dataclasses.replace(reward,
    multiplier=…)``.

    Attributes:
        multiplier: λ, >= 0; in ``info`` as ``multiplier``.
        allowed_frac: ε, share of requests that may be violations, 0..1.
    """

    multiplier: float = 0.01
    allowed_frac: float = 0.05

    def __post_init__(self) -> None:
        """Raise if a parameter is out of range."""
        super().__post_init__()
        if self.allowed_frac > 1.0:
            raise ValueError(f"allowed_frac: got {self.allowed_frac}, expected 0..1")

    def __call__(self, view: TickView) -> Mapping[str, float]:
        """Return the three terms."""
        terms = super().__call__(view)
        return {**terms, "constraint": -self.multiplier * self.costs(view)["excess"]}

    def costs(self, view: TickView) -> Mapping[str, float]:
        """Return the number of violations in excess of the allowed number."""
        return {"excess": view.step.violations - self.allowed_frac * view.step.arrived}

    def details(self, view: TickView) -> Mapping[str, float]:
        """Return the multiplier."""
        return {"multiplier": self.multiplier}


@dataclass(frozen=True)
class FirmReward(NamedReward):
    """Latency limits weighed against the utilisation of paid resources (policies.md §18.1).

    ============  ========================================================  ===================
    term          value                                                     default
    ============  ========================================================  ===================
    preserved     ``alpha * kept * 2``                                      alpha 0.5
    utilisation   ``(1 - alpha) * (kv_frac + batch_frac)``
    ============  ========================================================  ===================

    ``kept`` is ``min(1, limit / mean)``, the smaller value of TTFT and gap between tokens, over
    requests that completed in the step. A latency without samples counts as kept, but ``kept`` is 0
    in a step in which requests wait beyond the TTFT limit and none completes. The two resources are
    KV memory and the token budget of passes, means over pools at the end of the step. Terms are per
    step, regardless of its length.

    Attributes:
        alpha: Weight of the latencies, 0..1.
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        """Raise if the weight is out of range."""
        super().__post_init__()
        if self.alpha > 1.0:
            raise ValueError(f"alpha: got {self.alpha}, expected 0..1")

    def __call__(self, view: TickView) -> Mapping[str, float]:
        """Return the two terms."""
        used = view.load.kv_frac + view.load.batch_frac
        return {
            "preserved": self.alpha * self._kept(view) * 2.0,
            "utilisation": (1.0 - self.alpha) * used,
        }

    def _kept(self, view: TickView) -> float:
        load = view.load
        if view.step.completed == 0 and view.step.overdue_s > 0.0:
            return 0.0
        assert self.fleet.ttft_slo_ms is not None
        assert self.fleet.itl_slo_ms is not None
        kept = 1.0
        if load.ttft_ms > 0.0:
            kept = min(kept, self.fleet.ttft_slo_ms / load.ttft_ms)
        if load.itl_ms > 0.0:
            kept = min(kept, self.fleet.itl_slo_ms / load.itl_ms)
        return kept


class ShapedReward:
    """Another reward plus a potential, which signals a backlog before it incurs costs.

    ============  ========================================================  ===================
    term          value                                                     default
    ============  ========================================================  ===================
    (terms of the other reward)
    shaping       ``gamma * potential - potential before the step``         gamma 0.99
    ============  ========================================================  ===================

    The potential of a state is ``-weight * in_flight``, and 0 at time 0. With the discount of the
    learner as ``gamma``, shaping does not change optimal policies (policies.md §18.2), provided
    that the learner bootstraps from the last state when an episode is truncated.
    """

    def __init__(
        self,
        fleet: FleetDescription,
        of: str | Mapping[str, Any] | Reward = "cost_slo",
        gamma: float = 0.99,
        weight: float = 0.001,
    ) -> None:
        """Build the reward.

        Args:
            fleet: Fleet for the other reward.
            of: The other reward: name, mapping with ``name`` and parameters, or object.
            gamma: Discount, 0..1.
            weight: Weight of a request in flight, >= 0.
        """
        check_weight("gamma", gamma)
        check_weight("weight", weight)
        if gamma > 1.0:
            raise ValueError(f"gamma: got {gamma}, expected 0..1")
        self.of: Reward = make_component("of", of, REWARDS, fleet, methods=("__call__",))
        self.gamma = float(gamma)
        self.weight = float(weight)

    def __call__(self, view: TickView) -> Mapping[str, float]:
        """Return the terms of the other reward and the shaping."""
        step = view.step
        before = step.in_flight - step.arrived + step.completed + step.rejected
        shaping = self.weight * (before - self.gamma * step.in_flight)
        return {**reward_terms(self.of, view), "shaping": shaping}

    def costs(self, view: TickView) -> Mapping[str, float]:
        """Return the costs of the other reward, if any."""
        return _told(self.of, "costs", view)

    def details(self, view: TickView) -> Mapping[str, float]:
        """Return the details of the other reward, if any."""
        return _told(self.of, "details", view)


REWARDS: Mapping[str, Callable[..., Reward]] = {
    "cost_slo": CostSloReward,
    "goodput_per_gpu_hour": GoodputReward,
    "cmdp": ConstrainedReward,
    "lagrangian": LagrangianReward,
    "firm": FirmReward,
    "shaped": ShapedReward,
}
"""Class of each named reward; its first argument is the description of the fleet."""

"""Limits on the rate of change of a target, as in Kubernetes' scaling policies (policies.md §3.5).

Source: kubernetes/kubernetes, ``pkg/controller/podautoscaler/horizontal.go``.
"""

from typing import Literal

from pydantic import Field

from aisim_gym.policies.rounding import ceil_tol
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.scalars import F64


class RateRule(SpecModel):
    """A maximum change per period."""

    kind: Literal["Percent", "Pods"] = Field(description="Relative or absolute change")
    value: F64 = Field(gt=0, description="Largest change: percent, or workers, > 0")
    period_s: F64 = Field(gt=0, description="Length of the period, seconds, > 0")


class RateRules(SpecModel):
    """The rules of one direction."""

    rules: tuple[RateRule, ...] = Field(min_length=1, description="Rules, at least one")
    select: Literal["Max", "Min", "Disabled"] = Field(
        default="Max",
        description="Rule that applies: the one that allows the largest change, the smallest, "
        "or no change at all in this direction",
    )


class ChangeLog:
    """The changes that a planner has emitted for one role."""

    def __init__(self, longest_period_s: float) -> None:
        """Create an empty log; changes older than ``longest_period_s`` are dropped."""
        self._longest_s = longest_period_s
        self._changes: list[tuple[float, int]] = []

    def record(self, now_s: float, change: int) -> None:
        """Record a change of the target by ``change`` workers."""
        self._changes = [item for item in self._changes if item[0] > now_s - self._longest_s]
        self._changes.append((now_s, change))

    def net_change(self, since_s: float) -> int:
        """Return added minus removed workers after ``since_s``."""
        return sum(change for at_s, change in self._changes if at_s > since_s)


def limit_change(
    wanted: int, current: int, now_s: float, up: RateRules, down: RateRules, log: ChangeLog
) -> int:
    """Return ``wanted``, moved towards ``current`` as far as the rules require (§3.5)."""
    if wanted > current:
        return min(wanted, highest_allowed(current, now_s, up, log))
    if wanted < current:
        return max(wanted, lowest_allowed(current, now_s, down, log))
    return current


def highest_allowed(current: int, now_s: float, up: RateRules, log: ChangeLog) -> int:
    """Return the largest target that the rules for scaling up allow, at least ``current``."""
    if up.select == "Disabled":
        return current
    limits = []
    for rule in up.rules:
        start = current - log.net_change(now_s - rule.period_s)
        if rule.kind == "Pods":
            limits.append(int(start + rule.value))
        else:
            limits.append(ceil_tol(start * (1.0 + rule.value / 100.0)))
    return max(current, max(limits) if up.select == "Max" else min(limits))


def lowest_allowed(current: int, now_s: float, down: RateRules, log: ChangeLog) -> int:
    """Return the smallest target that the rules for scaling down allow, at most ``current``."""
    if down.select == "Disabled":
        return current
    limits = []
    for rule in down.rules:
        start = current - log.net_change(now_s - rule.period_s)
        if rule.kind == "Pods":
            limits.append(int(start - rule.value))
        else:
            limits.append(int(start * (1.0 - rule.value / 100.0)))
    return min(current, min(limits) if down.select == "Max" else max(limits))

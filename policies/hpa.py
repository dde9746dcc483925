"""Kubernetes horizontal pod autoscaler, version 2 (policies.md §3).

Source: kubernetes/kubernetes, ``pkg/controller/podautoscaler``, and its documentation; the targets
per worker are this project's presets (policies.md §3.1).
"""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from aisim_gym.policies.budget import FleetBudget
from aisim_gym.policies.length_memory import LengthMemory
from aisim_gym.policies.rate_rules import ChangeLog, RateRule, RateRules, limit_change
from aisim_gym.policies.replica_calculator import (
    Tolerance,
    combine_recommendations,
    recommend_from_total,
    recommend_from_workers,
)
from aisim_gym.policies.role_view import (
    Role,
    RoleObserver,
    RoleView,
    make_observers,
    target_without_active_workers,
)
from aisim_gym.policies.stabilizer import Stabilizer
from aisim_gym.replay import FleetDescription, ScalingDecision, ScalingSnapshot
from aisim_gym.spec.model import SpecModel
from aisim_gym.spec.scalars import F64

SHORTEST_SYNC_PERIOD_S = 15.0

CONC_SLOTS_FRAC: dict[Role, float] = {"prefill": 1.0, "decode": 0.4, "agg": 0.4}
"""Target of ``conc`` as a share of the requests that a full worker holds."""

QUEUE_TARGET = 2.0
KV_TARGET = 0.5
QTOK_BATCH_FRAC = 0.25
"""Target of ``qtok`` as a share of the token budget of a pass."""

DUE_SLACK_MS = 1e-6


class HpaMetric(SpecModel):
    """One metric and its target per worker."""

    name: Literal["conc", "queue", "kv", "qtok", "lam"] = Field(
        default="conc",
        description="Per worker: conc = requests running or queued, queue = requests queued, "
        "kv = share of the KV pool, qtok = tokens queued. Total: lam = requests per second",
    )
    prefill_target: F64 | None = Field(
        default=None,
        gt=0,
        description="Target value per prefill worker, > 0; null = the preset of the metric: conc "
        "1.0 x slots, queue 2, kv 0.5, qtok 0.25 x token budget; lam: role not scaled by it",
    )
    decode_target: F64 | None = Field(
        default=None,
        gt=0,
        description="The same per decode or aggregated worker; conc 0.4 x slots",
    )

    def target(self, view: RoleView, role: Role) -> float | None:
        """Return the target value per worker; None for a metric without one."""
        given = self.prefill_target if role == "prefill" else self.decode_target
        if given is not None or self.name == "lam":
            return given
        return {
            "conc": CONC_SLOTS_FRAC[role] * view.slots,
            "queue": QUEUE_TARGET,
            "kv": KV_TARGET,
            "qtok": QTOK_BATCH_FRAC * view.max_batched_tokens,
        }[self.name]


class HpaParameters(SpecModel):
    """Parameters of :class:`HpaPolicy`; names follow Kubernetes."""

    metrics: tuple[HpaMetric, ...] = Field(
        default=(HpaMetric(),), min_length=1, description="Metrics; the largest recommendation wins"
    )
    tolerance_up: F64 = Field(default=0.1, ge=0, description="Ratio above 1 that is tolerated")
    tolerance_down: F64 = Field(default=0.1, ge=0, description="Ratio below 1 that is tolerated")
    sync_period_s: F64 | None = Field(
        default=None,
        gt=0,
        description="Seconds between evaluations, > 0; null = the tick length, at least 15",
    )
    up_stabilization_s: F64 = Field(default=0.0, ge=0, description="Window for rises, seconds")
    down_stabilization_s: F64 = Field(default=300.0, ge=0, description="Window for falls, seconds")
    scale_up: RateRules = Field(
        default=RateRules(
            rules=(
                RateRule(kind="Percent", value=100.0, period_s=15.0),
                RateRule(kind="Pods", value=4.0, period_s=15.0),
            )
        ),
        description="How fast a pool may grow",
    )
    scale_down: RateRules = Field(
        default=RateRules(rules=(RateRule(kind="Percent", value=100.0, period_s=15.0),)),
        description="How fast a pool may shrink",
    )
    starting_as: Literal["missing", "ignored"] = Field(
        default="missing",
        description="Whether starting workers count as workers without a metric when scaling down",
    )


class HpaPolicy:
    """Keeps the mean of a metric near its target, separately for each role.

    Source: policies.md §3; ``make_policy("hpa")`` is the project's preset. As in Kubernetes, the
        size at the first evaluation counts as a recommendation, so that no worker is removed before
        the first stabilisation window has passed.

    Example:
        >>> from aisim_gym.policies import HpaPolicy
        >>> policy = HpaPolicy(metrics=[{"name": "kv", "decode_target": 0.4}], tolerance_up=0.05)
        >>> policy.parameters.metrics[0].decode_target
        0.4
    """

    def __init__(self, **parameters: Any) -> None:
        """Build the policy from the fields of :class:`HpaParameters`."""
        self.parameters = HpaParameters(**parameters)

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Prepare for a run."""
        period_s = self.parameters.sync_period_s
        if period_s is None:
            period_s = max(fleet.limits.tick_s, SHORTEST_SYNC_PERIOD_S)
        self._period_ms = period_s * 1000.0
        self._due_ms = 0.0
        self._budget = FleetBudget.of(fleet)
        self._lengths = LengthMemory()
        self._scalers = [
            _RoleScaler(self.parameters, observer, fleet.limits.of_pool(observer.pool)[0])
            for observer in make_observers(fleet)
        ]

    def initial_tick_ms(self) -> float:
        """Return the sync period."""
        return self._period_ms

    def on_tick(self, snapshot: ScalingSnapshot) -> ScalingDecision:
        """Return new targets if an evaluation is due; hold the fleet on other ticks."""
        self._lengths.update(snapshot.traffic)
        views = [scaler.observer.observe(snapshot, self._lengths) for scaler in self._scalers]
        if snapshot.now_ms < self._due_ms - DUE_SLACK_MS:
            return ScalingDecision(None, None, self._due_ms)
        self._due_ms = snapshot.now_ms + self._period_ms
        wanted = [
            scaler.want(view, snapshot) for scaler, view in zip(self._scalers, views, strict=True)
        ]
        prefill, decode = wanted if len(wanted) == 2 else (None, wanted[0])
        decision = self._budget.decide(snapshot, prefill, decode, self._due_ms)
        targets = (decision.target_prefill, decision.target_decode)
        for scaler, view, target in zip(self._scalers, views, targets[-len(views) :], strict=True):
            if target is not None:
                change = int(target) - view.num_non_draining
                scaler.changes.record(snapshot.now_ms / 1000.0, change)
        return decision


class _RoleScaler:
    """The autoscaler of one role."""

    def __init__(self, parameters: HpaParameters, observer: RoleObserver, min_workers: int) -> None:
        self.observer = observer
        rules = (*parameters.scale_up.rules, *parameters.scale_down.rules)
        self.changes = ChangeLog(max(rule.period_s for rule in rules))
        self._parameters = parameters
        self._min_workers = min_workers
        self._tolerance = Tolerance(parameters.tolerance_up, parameters.tolerance_down)
        self._stabilizer = Stabilizer(
            parameters.up_stabilization_s, parameters.down_stabilization_s
        )

    def want(self, view: RoleView, snapshot: ScalingSnapshot) -> int | None:
        """Return the target before clamping to the budget, None to hold."""
        now_s, current = snapshot.now_ms / 1000.0, view.num_non_draining
        if self._stabilizer.is_empty:
            self._stabilizer.record(now_s, current)
        if view.num_active == 0:
            return target_without_active_workers(view, self._min_workers, snapshot)
        recommendation = combine_recommendations(self._recommendations(view, snapshot), current)
        if recommendation is None:
            return None
        stable = self._stabilizer.stabilize(now_s, current, recommendation)
        rules = self._parameters.scale_up, self._parameters.scale_down
        return limit_change(stable, current, now_s, *rules, self.changes)

    def _recommendations(self, view: RoleView, snapshot: ScalingSnapshot) -> Sequence[int | None]:
        found = []
        current = view.num_non_draining
        for metric in self._parameters.metrics:
            target = metric.target(view, self.observer.role)
            if target is None:
                continue  # an external metric without a target for this role
            if metric.name == "lam":
                traffic = snapshot.traffic
                rate_rps = traffic.num_req / traffic.duration_s if traffic.duration_s > 0.0 else 0.0
                found.append(recommend_from_total(rate_rps, current, target, self._tolerance))
                continue
            values = [float(getattr(worker, metric.name)) for worker in view.workers]
            missing = view.num_silent
            if self._parameters.starting_as == "missing" or sum(values) > target * len(values):
                missing += view.num_starting
            found.append(recommend_from_workers(values, missing, current, target, self._tolerance))
        return found

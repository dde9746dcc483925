"""Costs and request outcomes of an episode, for rewards and infos."""

import copy
from collections.abc import Mapping
from typing import NamedTuple, Self

from aisim_gym.envs.outcomes import OutcomeLedger, Outcomes
from aisim_gym.envs.step_outcome import StepOutcome
from aisim_gym.fleet.readings import FleetNow
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.replay import FleetDescription


class Paid(NamedTuple):
    """Cost of the fleet so far: GPU time and its price."""

    gpu_hours: float
    gpu_usd: float


class EpisodeAccount:
    """Accumulates costs and outcomes step by step.

    Attributes:
        paid: Costs up to the last settlement.
        totals: Request outcomes up to the last settlement.
    """

    def __init__(self, fleet: FleetDescription, prices: Mapping[str, float]) -> None:
        """Create an empty account at time 0.

        Args:
            fleet: Fleet with service levels.
            prices: Price of a GPU-hour in USD, by pool.
        """
        assert fleet.ttft_slo_ms is not None
        assert fleet.itl_slo_ms is not None
        self._fleet = fleet
        self._prices = prices
        self._ledger = OutcomeLedger(fleet.ttft_slo_ms, fleet.itl_slo_ms)
        self._settled_ms = 0.0
        self.paid = Paid(0.0, 0.0)
        self.totals = Outcomes()

    def count(self, state: WorldState) -> tuple[Outcomes, FleetNow]:
        """Return request outcomes since the last call, and the current fleet."""
        return self._ledger.count_step(state)

    def settle(
        self,
        state: WorldState,
        outcomes: Outcomes,
        now: FleetNow,
        churn: int,
        *,
        is_over: bool = False,
        is_stuck: bool = False,
    ) -> StepOutcome:
        """Return the outcome of the step since the last settlement.

        Args:
            state: State of the replay.
            outcomes: Result of :meth:`count`.
            now: Fleet returned by :meth:`count`.
            churn: Workers by which the action moved the targets.
            is_over: Whether the episode ends here, so that unfinished requests count.
            is_stuck: Whether the replay is stuck, so that future requests count as arrived and as
                violations.
        """
        violations = float(outcomes.violations)
        if is_over:
            violations += self._ledger.late_frac_of_unfinished(state)
        if is_stuck:
            stranded = len(state.world.requests) - self.totals.arrived - outcomes.arrived
            outcomes = outcomes._replace(arrived=outcomes.arrived + stranded)
            violations += stranded
        paid = self.paid_until(now)
        self.totals = totals = self.totals.plus(outcomes)
        outcome = StepOutcome(
            duration_s=(now.now_ms - self._settled_ms) / 1000.0,
            gpu_hours=paid.gpu_hours - self.paid.gpu_hours,
            gpu_usd=paid.gpu_usd - self.paid.gpu_usd,
            arrived=outcomes.arrived,
            completed=outcomes.completed,
            rejected=outcomes.rejected,
            good=outcomes.good,
            violations=violations,
            overdue_s=outcomes.overdue_s,
            churn=churn,
            in_flight=totals.arrived - totals.completed - totals.rejected,
        )
        self._settled_ms = now.now_ms
        self.paid = paid
        return outcome

    def paid_until(self, now: FleetNow) -> Paid:
        """Return GPU-hours and their price in the episode so far (replay-runtime.md §7.6)."""
        fleet = self._fleet
        decode = now.decode_s * fleet.decode.gpus_per_worker / 3600.0
        if fleet.prefill is None:
            return Paid(decode, decode * self._prices["workers"])
        prefill = now.prefill_s * fleet.prefill.gpus_per_worker / 3600.0
        gpu_usd = prefill * self._prices["prefill"] + decode * self._prices["decode"]
        return Paid(prefill + decode, gpu_usd)

    def fork(self) -> Self:
        """Return an independent copy."""
        fork = copy.copy(self)
        fork._ledger = copy.deepcopy(self._ledger)
        return fork

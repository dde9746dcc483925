"""One running episode: a replay that advances tick by tick, and its account."""

import copy
from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from aisim_gym.envs.episode_account import EpisodeAccount
from aisim_gym.envs.step_outcome import NOTHING, StepOutcome
from aisim_gym.envs.targets import TargetLimits, Targets
from aisim_gym.envs.tick_view import TickView
from aisim_gym.errors import ReplayError
from aisim_gym.fleet.readings import FleetNow, read_fleet
from aisim_gym.fleet.tick import KEEP
from aisim_gym.replay import FleetDescription, Replay


class EpisodeRules(NamedTuple):
    """Settings common to all episodes of an environment.

    Attributes:
        fleet: Fleet with limits and service levels.
        prices: Price of a GPU-hour in USD, by pool.
        limits: Limits on the targets.
        tick_ms: Time between two ticks.
        scales: Scales of the load, see ``pool_scales.scale_table``.
    """

    fleet: FleetDescription
    prices: Mapping[str, float]
    limits: TargetLimits
    tick_ms: float
    scales: NDArray[np.float64]


class Episode:
    """One running episode.

    It starts with :meth:`run` and :meth:`begin`. A step is :meth:`answer`, :meth:`run` and
    :meth:`settle`, until :attr:`is_over`. A caller that runs many replays in parallel advances them
    itself instead of calling :meth:`run`.

    Attributes:
        replay: Replay of the episode.
        horizon_ms: Time at which the episode is truncated.
        account: Costs and outcomes up to the last tick.
        view: View of the last tick or of the end; before the first tick, of time 0.
        fleet: The fleet at the time of the view.
        targets: Targets in force up to the view.
        is_refused: Whether the last action requested more than ``max_gpus``.
        terminated: Whether every request has ended.
        truncated: Whether the horizon came first, or the replay is stuck.
    """

    def __init__(self, replay: Replay, horizon_ms: float, rules: EpisodeRules) -> None:
        """Create an episode at time 0.

        Args:
            replay: A new replay whose first tick is ``rules.tick_ms`` and whose time limit is the
                horizon.
            horizon_ms: Time at which the episode is truncated.
            rules: Settings of the environment.
        """
        self.replay = replay
        self.horizon_ms = horizon_ms
        self.account = EpisodeAccount(rules.fleet, rules.prices)
        self._rules = rules
        self._churn = 0
        self.is_refused = self.terminated = self.truncated = False
        self.fleet = FleetNow(*read_fleet(replay.state.world))
        self.view = self._look(NOTHING)
        self.targets = self.view.targets

    @property
    def is_over(self) -> bool:
        """Whether the episode has ended."""
        return self.terminated or self.truncated

    @property
    def can_run(self) -> bool:
        """Whether the replay can advance; it may end, or get stuck, before the first tick."""
        return not (self.replay.is_done or self.replay.is_stuck)

    def run(self) -> None:
        """Run to the next tick or to the end.

        Raises:
            ReplayError: If the replay fails; a stuck replay is not an error.
        """
        if not self.can_run:
            return
        try:
            self.replay.run_to_tick()
        except ReplayError:
            if not self.replay.is_stuck:
                raise

    def begin(self) -> None:
        """Read the first tick; the time before it belongs to the first step."""
        self.fleet = FleetNow(*read_fleet(self.replay.state.world))
        self.view = self._look(NOTHING)
        self.targets = self.view.targets

    def answer(self, targets: Targets) -> None:
        """Set the targets of a tick; targets that exceed ``max_gpus`` are ignored."""
        current, rules = self.view.targets, self._rules
        self.is_refused = not rules.limits.fits_budget(targets)
        if self.is_refused:
            targets = current
        self.targets, self._churn = targets, targets.distance(current)
        if self.can_run:
            next_ms = min(self.fleet.now_ms + rules.tick_ms, self.horizon_ms)
            prefill = KEEP if targets.prefill is None else targets.prefill
            self.replay.answer(prefill, targets.decode, next_ms)

    def settle(self) -> StepOutcome:
        """Read the tick or end that a step has reached, and return the outcome of the step."""
        replay = self.replay
        is_stuck = replay.is_stuck
        if is_stuck:
            replay.stand_still(self.horizon_ms)
        outcomes, self.fleet = self.account.count(replay.state)
        hit_limit = replay.hit_time_limit
        self.terminated = replay.is_done and not hit_limit
        self.truncated = not self.terminated and (
            hit_limit or is_stuck or self.fleet.now_ms >= self.horizon_ms
        )
        step = self.account.settle(
            replay.state,
            outcomes,
            self.fleet,
            self._churn,
            is_over=self.terminated or self.truncated,
            is_stuck=is_stuck,
        )
        self.view = self._look(step)
        return step

    def fork(self) -> Self:
        """Return an independent copy that continues from the same state."""
        fork = copy.copy(self)
        fork.replay = self.replay.fork()
        fork.account = self.account.fork()
        fork.view = self.view.of_fork(fork.replay)
        return fork

    def _look(self, step: StepOutcome) -> TickView:
        """Return a view of the current state."""
        fleet, rules = self.fleet, self._rules
        prefill = None if rules.fleet.prefill is None else fleet.prefill
        targets = Targets(prefill, fleet.decode)
        return TickView(self.replay, fleet.now_ms, self.horizon_ms, targets, step, rules.scales)

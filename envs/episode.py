"""One running episode: a replay that goes from tick to tick, and its account."""

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
    """What all episodes of an environment have in common.

    Attributes:
        fleet: With limits and service levels.
        prices: Of a GPU-hour in USD, pool by pool.
        limits: On the targets.
        tick_ms: Time between two ticks.
        scales: What the load is measured by, see ``pool_scales.scale_table``.
    """

    fleet: FleetDescription
    prices: Mapping[str, float]
    limits: TargetLimits
    tick_ms: float
    scales: NDArray[np.float64]


class Episode:
    """One running episode.

    It begins with :meth:`run` and :meth:`begin`. A step is :meth:`answer`, :meth:`run` and
    :meth:`settle`, until :attr:`is_over`. Whoever runs many replays side by side does that instead
    of calling :meth:`run`.

    Attributes:
        replay: The run.
        horizon_ms: When the episode is truncated.
        account: Costs and outcomes up to the last tick.
        view: The last tick, or the end; the fleet at time 0 before the first.
        fleet: The fleet at that moment.
        targets: What was to become of the fleet up to that moment.
        is_refused: Whether the last action asked for more than ``max_gpus``.
        terminated: Whether every request has ended.
        truncated: Whether the horizon came first, or nothing can move any more.
    """

    def __init__(self, replay: Replay, horizon_ms: float, rules: EpisodeRules) -> None:
        """Begin an episode at time 0.

        Args:
            replay: A new replay whose first tick is ``rules.tick_ms`` and whose time limit is the
                horizon.
            horizon_ms: When the episode is truncated.
            rules: What it has in common with others.
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
        """Whether there is nothing more to decide."""
        return self.terminated or self.truncated

    @property
    def can_run(self) -> bool:
        """Whether the replay can go on; it may end, or get stuck, before the first tick."""
        return not (self.replay.is_done or self.replay.is_stuck)

    def run(self) -> None:
        """Run to the next tick, or as far as it goes.

        Raises:
            ReplayError: If the replay breaks; a dead end is an end, no error.
        """
        if not self.can_run:
            return
        try:
            self.replay.run_to_tick()
        except ReplayError:
            if not self.replay.is_stuck:
                raise

    def begin(self) -> None:
        """Look at the first tick; what happened before it belongs to the first step."""
        self.fleet = FleetNow(*read_fleet(self.replay.state.world))
        self.view = self._look(NOTHING)
        self.targets = self.view.targets

    def answer(self, targets: Targets) -> None:
        """Set the targets of a tick; those that exceed ``max_gpus`` change nothing."""
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
        """Look at the tick that a step has led to, or at the end, and return what happened."""
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
        """Return a view of this moment."""
        fleet, rules = self.fleet, self._rules
        prefill = None if rules.fleet.prefill is None else fleet.prefill
        targets = Targets(prefill, fleet.decode)
        return TickView(self.replay, fleet.now_ms, self.horizon_ms, targets, step, rules.scales)

"""Draw the episodes of an environment: traffic, initial fleet and horizon."""

import math
from collections.abc import Mapping

import numpy as np

from aisim_gym.envs.capacity import check_capacity
from aisim_gym.envs.episode import Episode, EpisodeRules
from aisim_gym.envs.episode_workload import (
    EpisodeTraffic,
    EpisodeWorkload,
    FixedWorkload,
    read_trace,
)
from aisim_gym.envs.fleet_setup import FleetSetup
from aisim_gym.envs.pool_scales import pool_scales, scale_table
from aisim_gym.envs.reset_options import ResetOptions
from aisim_gym.replay import Replay
from aisim_gym.spec.argument_checks import check_number

GRACE_S = 300.0
"""Time that the default horizon leaves after the last arrival for open requests."""


class EpisodeSource:
    """Draws episodes.

    Attributes:
        workload: Default source of the requests.
    """

    def __init__(
        self,
        setup: FleetSetup,
        workload: EpisodeWorkload,
        tick_s: float,
        horizon_s: float | None,
        option_names: Mapping[str, str],
    ) -> None:
        """Check that every request can run and that the horizon leaves time for a step.

        Args:
            setup: The fleet.
            workload: Source of the requests of every episode.
            tick_s: Time between two ticks.
            horizon_s: Time at which an episode is truncated; None = the length of its traffic plus
                300 s.
            option_names: Field of the fleet with initial workers -> name of the reset option.

        Raises:
            TypeError: If the horizon is not a number.
            ValueError: If it is not longer than a tick.
            WorkloadError: If a request can never run.
        """
        self.workload = workload
        self._setup = setup
        scales = scale_table(pool_scales(setup.description))
        self._rules = EpisodeRules(
            setup.description, setup.prices, setup.limits, float(tick_s) * 1000.0, scales
        )
        self._horizon_s = horizon_s
        self._names = {field: f"options.{option}" for field, option in option_names.items()}
        self._check_capacity(workload)
        self._horizon_ms(workload.longest_s)  # raises if too short

    def draw(self, random: np.random.Generator, options: ResetOptions) -> Episode:
        """Return a new episode at time 0.

        Args:
            random: Source of all random choices.
            options: Reset options of the episode.

        Raises:
            ValueError: If an option is not allowed.
            WorkloadError: If a trace given by an option is not valid or can never run.
        """
        fleet = self._setup.fleet_with(options.workers, self._names)
        traffic = self._draw_traffic(random, options)
        horizon_ms = self._horizon_ms(traffic.duration_s)
        spec = self._setup.spec.model_copy(update={"fleet": fleet, "max_sim_time_ms": horizon_ms})
        replay = Replay(spec, traffic.requests, initial_tick_ms=self._rules.tick_ms)
        return Episode(replay, horizon_ms, self._rules)

    def _draw_traffic(self, random: np.random.Generator, options: ResetOptions) -> EpisodeTraffic:
        workload = self.workload
        if options.trace is not None:
            path, table = read_trace(options.trace)
            workload = FixedWorkload(table, path)
            self._check_capacity(workload)
        return workload.draw(random, options.episode, options.only)

    def _horizon_ms(self, duration_s: float) -> float:
        """Return the time at which an episode is truncated."""
        tick_ms, horizon_s = self._rules.tick_ms, self._horizon_s
        if horizon_s is not None:
            horizon_s = check_number("horizon_s", horizon_s, "larger than tick_s, or None")
        else:
            horizon_s = max(duration_s + GRACE_S, 2.0 * tick_ms / 1000.0)
        if not (math.isfinite(horizon_s) and horizon_s * 1000.0 > tick_ms):
            raise ValueError(
                f"horizon_s: got {horizon_s}, expected a finite number larger than tick_s "
                f"({tick_ms / 1000.0})"
            )
        return horizon_s * 1000.0

    def _check_capacity(self, workload: EpisodeWorkload) -> None:
        for lengths in workload.lengths():
            check_capacity(self._setup.spec.fleet, lengths)

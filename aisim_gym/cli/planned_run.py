"""A replay under a planner that can be looked at before it has ended."""

import math
from collections.abc import Callable

from aisim_gym.replay import Progress, Replay, ScalingLimits, ScalingPolicy, describe_fleet
from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import RequestTable


class PlannedRun:
    """``Replay.run`` in two steps, so that an interrupted run still has its replay.

    Attributes:
        replay: The run as far as it has come.
    """

    def __init__(
        self,
        spec: ReplaySpec,
        policy: ScalingPolicy | None,
        requests: RequestTable | None = None,
        limits: ScalingLimits | None = None,
    ) -> None:
        """Prepare the planner and the replay; nothing runs yet."""
        first_ms = math.inf
        if policy is not None:
            policy.reset(describe_fleet(spec, limits))
            first_ms = policy.initial_tick_ms()
        self.replay = Replay(spec, requests, initial_tick_ms=first_ms)
        self._policy = policy

    def finish(
        self,
        on_progress: Callable[[Progress], None] | None = None,
        give_up: Callable[[Replay], bool] = lambda replay: False,
    ) -> Replay:
        """Run to the end and return the replay.

        Args:
            on_progress: Called now and then.
            give_up: Asked at every tick; True ends the run there.
        """
        while (snapshot := self.replay.advance_to_tick(on_progress)) is not None:
            assert self._policy is not None
            if give_up(self.replay):
                break
            self.replay.apply(self._policy.on_tick(snapshot))
        return self.replay

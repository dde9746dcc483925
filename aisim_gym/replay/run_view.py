"""Read-only properties of a replay, available at any time."""

from collections.abc import Callable

from aisim_gym.fleet.world_state import WorldState
from aisim_gym.replay.run import Run
from aisim_gym.replay.settle import STATUS_TIME_LIMIT
from aisim_gym.replay.snapshot import ScalingSnapshot
from aisim_gym.replay.telemetry import Sample
from aisim_gym.replay.tick_history import TickRecord


class RunView:
    """Read-only view of a run: progress, recorded data and tables.

    Attributes:
        current_run: The run shown.
    """

    current_run: Run

    @property
    def state(self) -> WorldState:
        """All tables of the run, for reports and tests."""
        return self.current_run.state

    @property
    def ticks(self) -> list[TickRecord]:
        """One record per answered tick; empty without ``capture_planner_details``."""
        return self.current_run.ticks

    @property
    def samples(self) -> list[Sample]:
        """Telemetry samples with the reference's keys; see ``telemetry_sample_interval_ms``."""
        return self.current_run.samples

    @property
    def on_sample(self) -> Callable[[Sample], None] | None:
        """Callback for every telemetry sample; its exceptions propagate unchanged."""
        return self.current_run.on_sample

    @on_sample.setter
    def on_sample(self, called: Callable[[Sample], None] | None) -> None:
        self.current_run.on_sample = called

    @property
    def now_ms(self) -> float:
        """Simulated time in ms."""
        return float(self.state.world.clock.now_ms)

    @property
    def is_done(self) -> bool:
        """Whether every request has ended, or the time limit is reached."""
        return self.current_run.is_done

    @property
    def is_waiting(self) -> bool:
        """Whether a tick waits for its decision."""
        return self.current_run.is_waiting

    @property
    def is_stuck(self) -> bool:
        """Whether open requests remain that can never advance; advancing raises an error."""
        return self.current_run.is_stuck

    @property
    def hit_time_limit(self) -> bool:
        """Whether ``max_sim_time_ms`` ended the run with work left."""
        return self.current_run.status == STATUS_TIME_LIMIT

    @property
    def wall_s(self) -> float:
        """Real seconds spent in this run so far."""
        return self.current_run.wall_s

    @property
    def snapshot(self) -> ScalingSnapshot | None:
        """The tick that waits for its decision, or None."""
        return self.current_run.snapshot

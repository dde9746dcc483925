"""A run: the tables of a replay, its progress, and the two methods that advance it.

:meth:`Run.advance` advances time, :meth:`Run.answer` applies a decision. A replay calls them for
one world, a batch for many. This module does everything the compiled loop cannot do itself: growing
tables, publishing telemetry samples, reporting progress, raising errors.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from aisim_gym.errors import InternalError, ReplayError, TableFullError
from aisim_gym.fleet.steady import cut_short_all
from aisim_gym.fleet.tick import APPLIED, NO_ROOM, NO_TICK, apply_decision
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.replay.advance import advance
from aisim_gym.replay.failure import DEAD_ENDS, FAILURES, failure, overflow
from aisim_gym.replay.settle import (
    PHASE_SETTLED,
    STATUS_BROKEN,
    STATUS_DONE,
    STATUS_NEEDS_ROOM,
    STATUS_PAUSED,
    STATUS_SAMPLE,
    STATUS_TICK,
    STATUS_TIME_LIMIT,
)
from aisim_gym.replay.snapshot import ScalingSnapshot, take_snapshot
from aisim_gym.replay.telemetry import Sample, take_due_sample, take_final_sample
from aisim_gym.replay.tick_history import TickRecord, tick_record

INSTANTS_PER_CALL = 100_000
"""Maximum number of instants per compiled call, so that progress is reported and interrupts are
handled: about a second for 16 workers."""


@dataclass(frozen=True)
class Progress:
    """Progress of a run.

    Attributes:
        now_ms: Simulated time.
        arrived: Requests that have arrived.
        total: Requests of the workload.
    """

    now_ms: float
    arrived: int
    total: int


class StepEnd(StrEnum):
    """How a :meth:`Replay.step` ended."""

    SETTLED = "settled"
    """The instant is settled."""
    TICK = "tick"
    """A tick waits for its decision; the next step completes the instant."""
    COMPLETE = "complete"
    """The workload is complete."""
    TIME_LIMIT = "time_limit"
    """The next instant is beyond ``max_sim_time_ms``; the clock is unchanged."""

    @classmethod
    def of(cls, status: int) -> "StepEnd":
        """Return the step end that corresponds to the status of a run."""
        return _STEP_ENDS[status]


_STEP_ENDS = {
    STATUS_PAUSED: StepEnd.SETTLED,
    STATUS_TICK: StepEnd.TICK,
    STATUS_DONE: StepEnd.COMPLETE,
    STATUS_TIME_LIMIT: StepEnd.TIME_LIMIT,
}

ShowProgress = Callable[[Progress], None]


@dataclass(eq=False)
class Run:
    """The tables of a run and its progress.

    Attributes:
        state: All tables.
        records_ticks: Whether answered ticks are recorded in :attr:`ticks`.
        ticks: One record per answered tick.
        samples: Telemetry samples so far.
        on_sample: Called with every telemetry sample; its exceptions propagate unchanged.
        status: Result of the last compiled call; ``STATUS_PAUSED`` before the first.
        wall_s: Real seconds spent in this run so far.
    """

    state: WorldState = field(repr=False)
    records_ticks: bool
    ticks: list[TickRecord] = field(default_factory=list, repr=False)
    samples: list[Sample] = field(default_factory=list, repr=False)
    on_sample: Callable[[Sample], None] | None = field(default=None, repr=False)
    status: int = STATUS_PAUSED
    wall_s: float = 0.0
    _snapshot: ScalingSnapshot | None = field(default=None, repr=False)

    @property
    def is_waiting(self) -> bool:
        """Whether a tick waits for its decision."""
        return bool(self.state.world.clock.tick_shown)

    @property
    def is_done(self) -> bool:
        """Whether every request has ended, or the time limit is reached."""
        return self.status in (STATUS_DONE, STATUS_TIME_LIMIT)

    @property
    def can_run(self) -> bool:
        """Whether the run has neither ended nor failed."""
        return self.status in (STATUS_PAUSED, STATUS_TICK)

    @property
    def is_stuck(self) -> bool:
        """Whether open requests remain that can never advance."""
        return self.status in DEAD_ENDS

    @property
    def snapshot(self) -> ScalingSnapshot | None:
        """The tick that waits for its decision, or None."""
        if not self.state.world.clock.tick_shown:
            return None
        if self._snapshot is None:
            self._snapshot = take_snapshot(self.state)
        return self._snapshot

    def advance(self, on_progress: ShowProgress | None = None, *, one_instant: bool = False) -> int:
        """Run to the next tick or the end; return the status.

        Args:
            on_progress: Called periodically during a long run.
            one_instant: Stop after one instant is settled: first time 0, then the time of the next
                event.

        Returns:
            ``STATUS_TICK``, ``STATUS_DONE`` or ``STATUS_TIME_LIMIT``; also ``STATUS_PAUSED`` with
            ``one_instant``.

        Raises:
            ReplayError: If the run fails, has failed, or waits at a tick for a decision.
            InternalError: If a fault of this package was found, now or before.
        """
        clock = self.state.world.clock
        if clock.tick_shown and self.status != STATUS_BROKEN:
            raise ReplayError(
                f"tick {clock.tick_ordinal} at {clock.now_ms} ms waits for a decision: "
                "call apply(ScalingDecision(...)) before "
                f"{'step' if one_instant else 'advance_to_tick'}()"
            )
        if not self.can_run:
            if self.status in FAILURES:
                raise failure(self.state, self.status)
            return self.status
        started_s = time.perf_counter()
        try:
            if one_instant:
                self._settle_instant(on_progress)
            else:
                clock.instants_left = INSTANTS_PER_CALL
                self.go_on(self._call(), on_progress)
        finally:
            self.wall_s += time.perf_counter() - started_s
        return self.status

    def _settle_instant(self, on_progress: ShowProgress | None) -> None:
        """Settle one instant, pass by pass."""
        clock = self.state.world.clock
        options = self.state.world.options
        fast_forwards, options.fast_forwards = bool(options.fast_forwards), False
        if self.state.world.workers["steady_passes"].any():
            cut_short_all(self.state.world)
        clock.instants_left = int(self.state.world.resume.phase == PHASE_SETTLED)
        try:
            self.go_on(self._call(), on_progress, one_instant=True)
        finally:
            self.state.world.options.fast_forwards = fast_forwards

    def go_on(
        self, status: int, on_progress: ShowProgress | None = None, *, one_instant: bool = False
    ) -> None:
        """Continue to the next tick or the end after a compiled call has stopped.

        This does not add to :attr:`wall_s`.

        Args:
            status: Result of the compiled call.
            on_progress: As for :meth:`advance`.
            one_instant: As for :meth:`advance`.

        Raises:
            ReplayError: If the run fails.
        """
        while self._needs_call(status, on_progress, one_instant):
            status = self._call()

    def _call(self) -> int:
        """Call the compiled loop; return the status with which it has stopped."""
        try:
            return advance(self.state.world)
        except TableFullError as error:
            raise self._broken(error) from error

    def _broken(self, error: TableFullError) -> InternalError:
        """Mark the run as broken since compiled code found no row where it needs one."""
        self.status = STATUS_BROKEN
        return overflow(self.state, str(error))

    def _needs_call(self, status: int, on_progress: ShowProgress | None, one_instant: bool) -> bool:
        """Handle a status of the compiled loop; return whether to call it again."""
        if status == STATUS_NEEDS_ROOM:
            self.state.grow()
            return True
        if status == STATUS_SAMPLE:
            self._keep_sample(take_due_sample(self.state, len(self.samples)))
            return True
        self.status = status
        if not self.can_run:
            self.state.check_guards()
        if on_progress is not None:
            clock = self.state.world.clock
            total = len(self.state.world.requests)
            on_progress(Progress(float(clock.now_ms), int(clock.arrived_requests), total))
        if status == STATUS_TICK:
            return False
        if status in (STATUS_DONE, STATUS_TIME_LIMIT):
            if self.state.world.telemetry.is_on:
                sample = take_final_sample(self.state, len(self.samples))
                if sample is not None:
                    self._keep_sample(sample)
            return False
        if status in FAILURES:
            raise failure(self.state, status)
        if one_instant:
            return False
        self.state.world.clock.instants_left = INSTANTS_PER_CALL
        return True

    def _keep_sample(self, sample: Sample) -> None:
        self.samples.append(sample)
        if self.on_sample is not None:
            self.on_sample(sample)

    def answer(self, target_prefill: int, target_decode: int, next_tick_ms: float) -> bool:
        """Answer the waiting tick; return False if there is none.

        Args:
            target_prefill: Target number of active + starting prefill workers, or -1 to keep it.
            target_decode: Likewise for decode workers, or for the workers of an aggregated fleet.
            next_tick_ms: Absolute time of the next tick; if not finite or not later than now, ticks
                end.
        """
        if self.status == STATUS_BROKEN:
            raise failure(self.state, self.status)
        snapshot = self.snapshot if self.records_ticks else None
        try:
            while True:
                world = self.state.world
                result = apply_decision(world, target_prefill, target_decode, next_tick_ms)
                if result != NO_ROOM:
                    break
                self.state.grow()
        except TableFullError as error:
            raise self._broken(error) from error
        if result == NO_TICK:
            return False
        assert result == APPLIED
        self._snapshot = None
        if snapshot is not None:
            self.ticks.append(tick_record(snapshot, target_prefill, target_decode, next_tick_ms))
        return True

    def stand_still(self, until_ms: float) -> None:
        """Advance the clock of a stuck run to ``until_ms``, unless it is already later.

        Raises:
            ReplayError: If the run is not stuck.
        """
        clock = self.state.world.clock
        if not self.is_stuck:
            raise ReplayError(f"stand_still(): the run at {float(clock.now_ms)} ms is not stuck")
        clock.now_ms = max(float(clock.now_ms), until_ms)

    def copy(self) -> Self:
        """Return an independent copy that continues from the same state."""
        return replace(
            self, state=self.state.copy(), ticks=list(self.ticks), samples=list(self.samples)
        )

    def __getstate__(self) -> dict[str, Any]:
        """Pickle tables as plain arrays."""
        return {**self.__dict__, "state": self.state.plain_tables()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore from a pickle."""
        self.__dict__.update({**state, "state": WorldState.from_tables(state["state"])})

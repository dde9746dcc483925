"""A replay: a workload running through a fleet, tick by tick."""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import ReplayError, WorkloadError
from aisim_gym.fleet.steady import cut_short_all
from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.fleet.tick import APPLIED, KEEP, NO_ROOM, NO_TICK, apply_decision, missing_workers
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.replay.advance import advance
from aisim_gym.replay.build import build_world
from aisim_gym.replay.decision import ScalingDecision, checked_time_ms
from aisim_gym.replay.failure import DEAD_ENDS, FAILURES, failure
from aisim_gym.replay.policy import ScalingLimits, ScalingPolicy, describe_fleet
from aisim_gym.replay.settle import (
    PHASE_SETTLED,
    STATUS_DONE,
    STATUS_NEEDS_ROOM,
    STATUS_PAUSED,
    STATUS_SAMPLE,
    STATUS_TICK,
    STATUS_TIME_LIMIT,
)
from aisim_gym.replay.snapshot import ScalingSnapshot, take_snapshot
from aisim_gym.replay.telemetry import Sample, take_due_sample, take_final_sample
from aisim_gym.spec import ReplaySpec, load_spec
from aisim_gym.workload import RequestTable, load_workload

SAVE_FORMAT = "aisim-replay/1"

INSTANTS_PER_CALL = 100_000
"""How much of a run one compiled call covers at most, so that progress is shown and an interrupt is
noticed: about a second for 16 workers."""


class TickRecord(NamedTuple):
    """One line of the tick history: the fleet a planner saw, and its answer."""

    tick_ordinal: int
    now_ms: float
    num_req: int
    completed: int
    avg_ttft_ms: float
    avg_itl_ms: float
    active_prefill: int
    starting_prefill: int
    draining_prefill: int
    active_decode: int
    starting_decode: int
    draining_decode: int
    target_prefill: int | None
    target_decode: int | None
    next_tick_ms: float | None


class StepEnd(StrEnum):
    """How a :meth:`Replay.step` ended."""

    SETTLED = "settled"
    """Everything that can happen at this instant has happened."""
    TICK = "tick"
    """A tick waits for its decision; the rest of the instant follows with the next step."""
    COMPLETE = "complete"
    """The workload is done."""
    TIME_LIMIT = "time_limit"
    """The next instant is beyond ``max_sim_time_ms``; the clock did not move."""


_STEP_ENDS = {
    STATUS_PAUSED: StepEnd.SETTLED,
    STATUS_TICK: StepEnd.TICK,
    STATUS_DONE: StepEnd.COMPLETE,
    STATUS_TIME_LIMIT: StepEnd.TIME_LIMIT,
}


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        now_ms: Simulated time.
        arrived: Requests that have arrived.
        total: Requests of the workload.
    """

    now_ms: float
    arrived: int
    total: int


@dataclass(init=False, eq=False)
class Replay:
    """Runs a workload through a fleet, exactly like the reference.

    A replay starts paused before time 0. :meth:`advance_to_tick` runs to the next scaling tick and
    returns what a planner sees there; :meth:`apply` answers it. Without ticks one call runs to the
    end. Results are read with :func:`aisim_gym.report.summarize`.

    Example:
        >>> from aisim_gym import Replay, requests_from_arrays
        >>> requests = requests_from_arrays([0.0, 5.0], [100, 200], [3, 4])
        >>> replay = Replay({"fleet": {"kind": "agg"}}, requests)
        >>> replay.advance_to_tick() is None, replay.is_done
        (True, True)

    Attributes:
        spec: What was asked for, every default filled in.
        state: All tables of the run, for reports and tests.
        ticks: One record per tick that was answered.
        session_ids: Names of the workload's sessions, empty for a plain list.
        samples: Telemetry so far, with the reference's keys; empty without
            ``telemetry_sample_interval_ms``.
        on_sample: Called with every telemetry sample; what it raises passes through unchanged.
    """

    spec: ReplaySpec
    state: WorldState = field(repr=False)
    ticks: list[TickRecord] = field(repr=False)
    session_ids: tuple[str, ...] = field(repr=False)
    samples: list[Sample] = field(repr=False)
    on_sample: Callable[[Sample], None] | None = field(repr=False)

    def __init__(
        self,
        spec: ReplaySpec | Mapping[str, Any] | str | Path,
        requests: RequestTable | None = None,
        *,
        initial_tick_ms: float | None = None,
        fast_forward: bool = True,
    ) -> None:
        """Build a replay; nothing runs yet.

        Args:
            spec: A spec, a mapping, or the path of a TOML or JSON file.
            requests: The workload; by default what ``spec.workload`` names.
            initial_tick_ms: First tick, instead of ``spec.ticks.initial_tick_ms``.
            fast_forward: False runs pass by pass where many passes could be done at once: several
                times slower, with the same results.

        Raises:
            SpecError: If the spec is not valid.
            WorkloadError: If the workload is not valid.
            UnsupportedError: If this version does not replay what the spec asks for.
        """
        self.spec = spec if isinstance(spec, ReplaySpec) else load_spec(spec)
        if requests is None:
            requests = load_workload(self.spec.workload, self.spec.engine_block_size)
        elif not isinstance(requests, RequestTable):
            raise TypeError(
                f"requests: got {type(requests).__name__}, expected a RequestTable "
                "(requests_from_arrays, read_mooncake, read_azure_csv, …) or None"
            )
        _check_starts(self.spec, requests)
        if initial_tick_ms is None:
            initial_tick_ms = self.spec.ticks.initial_tick_ms
        first_ms = math.inf if initial_tick_ms is None else checked_time_ms(initial_tick_ms)
        self.state = build_world(self.spec, requests, first_ms)
        self.state.clock[0].fast_forwards = int(fast_forward)
        self.ticks = []
        self.session_ids = requests.session_ids
        self.samples = []
        self.on_sample = None
        self._status = STATUS_PAUSED
        self._snapshot: ScalingSnapshot | None = None
        self._wall_s = 0.0

    @property
    def now_ms(self) -> float:
        """Simulated time in ms."""
        return float(self.state.clock[0].now_ms)

    @property
    def is_done(self) -> bool:
        """Whether every request has ended, or the time limit is reached."""
        return self._status in (STATUS_DONE, STATUS_TIME_LIMIT)

    @property
    def is_waiting(self) -> bool:
        """Whether a tick waits for its decision."""
        return bool(self.state.world().clock.tick_shown == 1)

    @property
    def _is_running(self) -> bool:
        """Whether the run is neither at its end nor broken."""
        return self._status in (STATUS_PAUSED, STATUS_TICK)

    @property
    def is_stuck(self) -> bool:
        """Whether requests are open that nothing can move any more; running on raises an error."""
        return self._status in DEAD_ENDS

    @property
    def hit_time_limit(self) -> bool:
        """Whether ``max_sim_time_ms`` ended the run with work left."""
        return bool(self._status == STATUS_TIME_LIMIT)

    @property
    def wall_s(self) -> float:
        """Real seconds spent in this run so far."""
        return self._wall_s

    @property
    def snapshot(self) -> ScalingSnapshot | None:
        """The tick that waits for its decision, or None."""
        if self.state.clock[0].tick_shown == 0:
            return None
        if self._snapshot is None:
            self._snapshot = take_snapshot(self.state)
        return self._snapshot

    def advance_to_tick(
        self, on_progress: Callable[[Progress], None] | None = None
    ) -> ScalingSnapshot | None:
        """Run to the next tick.

        Args:
            on_progress: Called now and then during a long run.

        Returns:
            What a planner sees at the tick, or None when the workload is done or the time limit is
            reached.

        Raises:
            ReplayError: If a request can never run, or no worker is there for an arrival; also if
                the last tick was not answered with :meth:`apply`.
        """
        self.run_to_tick(on_progress)
        return self.snapshot

    def run_to_tick(self, on_progress: Callable[[Progress], None] | None = None) -> bool:
        """Run to the next tick without looking at it: :meth:`advance_to_tick` for those in a hurry.

        Args:
            on_progress: As for :meth:`advance_to_tick`.

        Returns:
            Whether a tick waits for its decision; :attr:`snapshot` is what a planner sees there.

        Raises:
            ReplayError: As :meth:`advance_to_tick`.
        """
        if self._can_go_on("advance_to_tick"):
            self._run(on_progress)
        return self._status == STATUS_TICK

    def step(self) -> StepEnd:
        """Settle one instant: time 0 first, then the next one at which anything can happen.

        Telemetry samples in between are published on the way. Steps and :meth:`advance_to_tick` may
        be mixed.

        Returns:
            How it ended; ``now_ms`` is the instant. After the end, and at the time limit, further
            steps change nothing and say the same.

        Raises:
            ReplayError: As :meth:`advance_to_tick`.
        """
        if self._can_go_on("step"):
            clock = self.state.clock[0]
            fast_forwards, clock.fast_forwards = int(clock.fast_forwards), 0
            if self.state.workers["steady_passes"].any():
                cut_short_all(self.state.world())
            try:
                self._run(None, instants=int(clock.phase == PHASE_SETTLED))
            finally:
                clock.fast_forwards = fast_forwards
        return _STEP_ENDS[self._status]

    def _can_go_on(self, method: str) -> bool:
        """Return whether there is anything left to run; raise if the run waits or has failed."""
        clock = self.state.world().clock
        if clock.tick_shown == 1:
            raise ReplayError(
                f"tick {clock.tick_ordinal} at {clock.now_ms} ms waits for a decision: "
                f"call apply(ScalingDecision(...)) before {method}()"
            )
        if self._status in FAILURES:
            raise failure(self.state, self._status)
        return not self.is_done

    def apply(self, decision: ScalingDecision | Mapping[str, Any]) -> None:
        """Answer the tick that :meth:`advance_to_tick` returned.

        Args:
            decision: Targets and next tick; a mapping needs all three keys.

        Raises:
            ReplayError: If no tick waits for a decision.
            KeyError: If a mapping lacks a key.
            TypeError: If a target is no integer or a time no number.
            OverflowError: If a target is negative or too large.
        """
        if self.state.clock[0].tick_shown == 0:
            raise self._no_tick("apply")
        checked = ScalingDecision.of(decision)
        target_prefill, target_decode = checked.target_prefill, checked.target_decode
        self.answer(
            KEEP if target_prefill is None else int(target_prefill),
            KEEP if target_decode is None else int(target_decode),
            math.inf if checked.next_tick_ms is None else float(checked.next_tick_ms),
        )

    def answer(self, target_prefill: int, target_decode: int, next_tick_ms: float) -> None:
        """Answer the tick with plain numbers: :meth:`apply` for those in a hurry.

        Args:
            target_prefill: Wanted active + starting prefill workers, or -1 to leave them; ignored
                by an aggregated fleet. No more than ``MAX_WORKERS``; this is not checked.
            target_decode: The same for decode workers, or for the workers of an aggregated fleet.
            next_tick_ms: Absolute time of the next tick; one that is not finite or not later than
                now: no more ticks.

        Raises:
            ReplayError: If no tick waits for a decision.
        """
        if not self._try_answer(target_prefill, target_decode, next_tick_ms):
            raise self._no_tick("answer")

    def _try_answer(self, target_prefill: int, target_decode: int, next_tick_ms: float) -> bool:
        """Answer the tick that waits; return whether there is one."""
        snapshot = self.snapshot if self.spec.capture_planner_details else None
        world = self.state.world()
        result = apply_decision(world, target_prefill, target_decode, next_tick_ms)
        if result == NO_ROOM:
            self.state.make_room_for_workers(
                int(missing_workers(world, PREFILL, target_prefill)),
                int(missing_workers(world, DECODE, target_decode)),
            )
            world = self.state.world()
            result = apply_decision(world, target_prefill, target_decode, next_tick_ms)
        if result == NO_TICK:
            return False
        assert result == APPLIED
        self._snapshot = None
        if snapshot is not None:
            self.ticks.append(_tick_record(snapshot, target_prefill, target_decode, next_tick_ms))
        return True

    def _no_tick(self, method: str) -> ReplayError:
        return ReplayError(f"{method}(): no tick waits for a decision at {self.now_ms} ms")

    @classmethod
    def run(
        cls,
        spec: ReplaySpec | Mapping[str, Any] | str | Path,
        policy: ScalingPolicy | None = None,
        requests: RequestTable | None = None,
        *,
        limits: ScalingLimits | None = None,
        seed: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        on_sample: Callable[[Sample], None] | None = None,
    ) -> Self:
        """Return a finished replay with ``policy`` deciding at every tick.

        Args:
            spec: As for the constructor.
            policy: The planner; None runs without ticks.
            requests: As for the constructor.
            limits: Told to the policy with the description of the fleet.
            seed: Told to the policy.
            on_progress: Called now and then.
            on_sample: Called with every telemetry sample.

        Raises:
            AisimError: As the constructor and :meth:`advance_to_tick`; what the policy raises
                passes through unchanged.
        """
        replay = cls.prepare(spec, policy, requests, limits=limits, seed=seed)
        replay.on_sample = on_sample
        replay.follow(policy, on_progress)
        return replay

    @classmethod
    def prepare(
        cls,
        spec: ReplaySpec | Mapping[str, Any] | str | Path,
        policy: ScalingPolicy | None,
        requests: RequestTable | None = None,
        *,
        limits: ScalingLimits | None = None,
        seed: int | None = None,
    ) -> Self:
        """Return a replay to :meth:`follow` ``policy`` with; arguments as for :meth:`run`.

        The first tick is ``spec.ticks.initial_tick_ms`` if that is set, else the policy's.

        Raises:
            AttributeError: If ``policy`` is no planner.
            ValueError: If the spec sets a first tick and there is no policy to answer it.
        """
        spec = spec if isinstance(spec, ReplaySpec) else load_spec(spec)
        first_ms = spec.ticks.initial_tick_ms
        if policy is None:
            if first_ms is not None:
                raise ValueError(
                    f"ticks.initial_tick_ms: got {first_ms} without a policy to answer ticks, "
                    "expected a policy or null"
                )
            return cls(spec, requests)
        _check_policy(policy)
        policy.reset(describe_fleet(spec, limits), seed)
        policy_first_ms = checked_time_ms(policy.initial_tick_ms())
        return cls(
            spec, requests, initial_tick_ms=policy_first_ms if first_ms is None else first_ms
        )

    def follow(
        self,
        policy: ScalingPolicy | None,
        on_progress: Callable[[Progress], None] | None = None,
        give_up: Callable[[Self], bool] | None = None,
    ) -> None:
        """Run to the end with ``policy`` deciding at every tick.

        Args:
            policy: The planner; None only if there are no ticks.
            on_progress: Called now and then.
            give_up: Asked at every tick before the policy; True leaves the replay there.

        Raises:
            AisimError: As :meth:`advance_to_tick`; what the policy raises passes through unchanged.
        """
        while (snapshot := self.snapshot or self.advance_to_tick(on_progress)) is not None:
            if give_up is not None and give_up(self):
                return
            if policy is None:
                raise ValueError(f"policy: got None for the tick at {snapshot.now_ms} ms")
            self.apply(policy.on_tick(snapshot))

    def stand_still(self, until_ms: float) -> None:
        """Let time pass in a run that is stuck: its workers are paid for, its requests wait.

        Raises:
            ReplayError: If it is not stuck.
        """
        if not self.is_stuck:
            raise ReplayError(f"stand_still(): the run at {self.now_ms} ms is not stuck")
        clock = self.state.clock[0]
        clock.now_ms = max(float(clock.now_ms), until_ms)

    def fork(self) -> Self:
        """Return an independent copy that continues from the same state."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, state=self.state.copy(), ticks=list(self.ticks))
        copy.samples = list(self.samples)
        return copy

    def save(self, path: str | Path) -> None:
        """Write the whole state to one file (``.npz``), to be continued with :meth:`load`."""
        header = {
            "format": SAVE_FORMAT,
            "spec": json.loads(self.spec.to_json()),
            "ticks": self.ticks,
            "session_ids": self.session_ids,
            "samples": self.samples,
            "status": int(self._status),
            "wall_s": self._wall_s,
        }
        tables: dict[str, Any] = self._plain_tables()
        with Path(path).expanduser().open("wb") as file:
            np.savez_compressed(file, header=np.array(json.dumps(header)), **tables)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the replay that :meth:`save` wrote.

        Raises:
            ReplayError: If the file is no saved replay, or one of another version.
        """
        path = Path(path).expanduser()
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                tables = {name: file[name] for name in set(file.files) - {"header"}}
            if header["format"] != SAVE_FORMAT:
                raise ValueError(f"got format {header['format']!r}, expected {SAVE_FORMAT!r}")
            state = WorldState.from_tables(tables)
        except (AttributeError, EOFError, LookupError, TypeError, ValueError, BadZipFile) as error:
            raise ReplayError(f"{path.absolute()}: not a replay written by save()") from error
        replay = object.__new__(cls)
        replay.spec = load_spec(header["spec"])
        replay.state = state
        replay.ticks = [TickRecord(*tick) for tick in header["ticks"]]
        replay.session_ids = tuple(header["session_ids"])
        replay.samples = header["samples"]
        replay.on_sample = None
        replay._status = header["status"]
        replay._snapshot = None
        replay._wall_s = header["wall_s"]
        return replay

    def __getstate__(self) -> dict[str, Any]:
        """Pickle tables as plain arrays."""
        return {**self.__dict__, "state": self._plain_tables()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore from a pickle."""
        self.__dict__.update({**state, "state": WorldState.from_tables(state["state"])})

    def _plain_tables(self) -> dict[str, NDArray[Any]]:
        return {name: np.asarray(table) for name, table in self.state.tables().items()}

    def _run(
        self, on_progress: Callable[[Progress], None] | None, instants: int | None = None
    ) -> None:
        """Call the compiled loop until a tick, the end, an error, or so many instants."""
        started_s = time.perf_counter()
        try:
            self._advance(on_progress, instants)
        finally:
            self._wall_s += time.perf_counter() - started_s

    def _advance(
        self, on_progress: Callable[[Progress], None] | None, instants: int | None
    ) -> None:
        clock = self.state.world().clock
        clock.instants_left = INSTANTS_PER_CALL if instants is None else instants
        while self._goes_on(advance(self.state.world()), on_progress, instants):
            pass

    def _goes_on(
        self,
        status: int,
        on_progress: Callable[[Progress], None] | None = None,
        instants: int | None = None,
    ) -> bool:
        """Do what the compiled loop stopped for; return whether it must be called again."""
        if status == STATUS_NEEDS_ROOM:
            self.state.make_room()
            return True
        if status == STATUS_SAMPLE:
            self._keep_sample(take_due_sample(self.state, len(self.samples)))
            return True
        self._status = status
        if on_progress is not None:
            clock = self.state.clock[0]
            total = len(self.state.requests)
            on_progress(Progress(float(clock.now_ms), int(clock.arrived_requests), total))
        if status == STATUS_TICK:
            return False
        if status in (STATUS_DONE, STATUS_TIME_LIMIT):
            if self.state.clock[0].collects_telemetry:
                sample = take_final_sample(self.state, len(self.samples))
                if sample is not None:
                    self._keep_sample(sample)
            return False
        if status in FAILURES:
            raise failure(self.state, status)
        if instants is not None:
            return False
        self.state.clock[0].instants_left = INSTANTS_PER_CALL
        return True

    def _resume(self, status: int) -> None:
        """Go on to the next tick or the end after the compiled loop stopped with ``status``."""
        while self._goes_on(status):
            status = advance(self.state.world())

    def _keep_sample(self, sample: Sample) -> None:
        self.samples.append(sample)
        if self.on_sample is not None:
            self.on_sample(sample)


def _check_starts(spec: ReplaySpec, requests: RequestTable) -> None:
    """Refuse sessions without a start where they are to arrive by themselves."""
    has_no_start = np.isnan(requests.start_ms)
    if has_no_start.any() and not spec.workload.is_closed_loop:
        name = requests.session_ids[int(np.argmax(has_no_start))]
        raise WorkloadError(
            f"trace mode requires first_arrival_timestamp_ms for session {name}: "
            "it has no start, and workload.replay_concurrency is not set"
        )


def _check_policy(policy: object) -> None:
    for method in ("initial_tick_ms", "on_tick", "reset"):
        if not callable(getattr(policy, method, None)):
            raise AttributeError(
                f"'{type(policy).__name__}' object has no attribute '{method}': "
                "a planner has the methods reset, initial_tick_ms and on_tick"
            )


def _tick_record(
    snapshot: ScalingSnapshot, target_prefill: int, target_decode: int, next_tick_ms: float
) -> TickRecord:
    traffic, prefill, decode = snapshot.traffic, snapshot.prefill, snapshot.decode
    return TickRecord(
        snapshot.tick_ordinal,
        snapshot.now_ms,
        traffic.num_req,
        traffic.shape_count,
        traffic.avg_ttft_ms,
        traffic.avg_itl_ms,
        len(prefill.active_ids),
        len(prefill.starting_ids),
        len(prefill.draining_ids),
        len(decode.active_ids),
        len(decode.starting_ids),
        len(decode.draining_ids),
        None if target_prefill == KEEP else target_prefill,
        None if target_decode == KEEP else target_decode,
        next_tick_ms if math.isfinite(next_tick_ms) else None,
    )

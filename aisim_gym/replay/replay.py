"""A replay: a workload running through a fleet, tick by tick."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from aisim_gym.replay.build import build_world
from aisim_gym.replay.decision import ScalingDecision, checked_time_ms
from aisim_gym.replay.failure import no_tick_waits
from aisim_gym.replay.planner_loop import first_tick_ms, follow_policy
from aisim_gym.replay.policy import ScalingLimits, ScalingPolicy
from aisim_gym.replay.requests import requests_of
from aisim_gym.replay.run import Run, ShowProgress, StepEnd
from aisim_gym.replay.run_view import RunView
from aisim_gym.replay.saving import SavedReplay, read_replay, write_replay
from aisim_gym.replay.settle import STATUS_TICK
from aisim_gym.replay.snapshot import ScalingSnapshot
from aisim_gym.replay.telemetry import Sample
from aisim_gym.spec import ReplaySpec, load_spec
from aisim_gym.workload import RequestTable


@dataclass(init=False, eq=False)
class Replay(RunView):
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
        session_ids: Names of the workload's sessions, empty for a plain list.
    """

    spec: ReplaySpec
    session_ids: tuple[str, ...] = field(repr=False)

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
            SpecError, WorkloadError: If the spec or the workload is not valid.
            UnsupportedError: If this version does not replay what the spec asks for.
        """
        self.spec = spec if isinstance(spec, ReplaySpec) else load_spec(spec)
        requests = requests_of(self.spec, requests)
        given_ms = self.spec.ticks.initial_tick_ms if initial_tick_ms is None else initial_tick_ms
        first_ms = math.inf if given_ms is None else checked_time_ms(given_ms)
        state = build_world(self.spec, requests, first_ms)
        state.world.options.fast_forwards = fast_forward
        self.session_ids = requests.session_ids
        self.current_run = Run(state, records_ticks=self.spec.capture_planner_details)

    def advance_to_tick(self, on_progress: ShowProgress | None = None) -> ScalingSnapshot | None:
        """Run to the next tick.

        Args:
            on_progress: Called now and then during a long run.

        Returns:
            What a planner sees at the tick; None at the end of the workload or the time limit.

        Raises:
            ReplayError: If a request can never run, or no worker is there for an arrival; also if
                the last tick was not answered with :meth:`apply`.
        """
        self.run_to_tick(on_progress)
        return self.snapshot

    def run_to_tick(self, on_progress: ShowProgress | None = None) -> bool:
        """Advance to the next tick without building a snapshot.

        Args:
            on_progress: As for :meth:`advance_to_tick`.

        Returns:
            Whether a tick waits for its decision; :attr:`snapshot` is what a planner sees there.

        Raises:
            ReplayError: As :meth:`advance_to_tick`.
        """
        return self.current_run.advance(on_progress) == STATUS_TICK

    def step(self) -> StepEnd:
        """Settle one instant: time 0 first, then the next one at which anything can happen.

        Telemetry samples in between are published on the way. Steps and :meth:`advance_to_tick` may
        be mixed.

        Returns:
            How it ended; at the end and at the time limit, further steps change nothing.

        Raises:
            ReplayError: As :meth:`advance_to_tick`.
        """
        return StepEnd.of(self.current_run.advance(one_instant=True))

    def apply(self, decision: ScalingDecision | Mapping[str, Any]) -> None:
        """Answer the tick that :meth:`advance_to_tick` returned.

        Args:
            decision: Targets and next tick; a mapping needs all three keys.

        Raises:
            ReplayError: If no tick waits for a decision.
            KeyError, TypeError, OverflowError: As :meth:`ScalingDecision.of`.
        """
        if not self.is_waiting:
            raise no_tick_waits(self.state, "apply")
        self.answer(*ScalingDecision.of(decision).as_numbers())

    def answer(self, target_prefill: int, target_decode: int, next_tick_ms: float) -> None:
        """Answer the tick with plain numbers, without checking them.

        Args:
            target_prefill: Wanted active + starting prefill workers, or -1 to leave them; ignored
                by an aggregated fleet. No more than ``MAX_WORKERS``.
            target_decode: The same for decode workers, or for the workers of an aggregated fleet.
            next_tick_ms: Absolute time of the next tick; no more ticks unless finite and later.

        Raises:
            ReplayError: If no tick waits for a decision.
        """
        if not self.current_run.answer(target_prefill, target_decode, next_tick_ms):
            raise no_tick_waits(self.state, "answer")

    @classmethod
    def run(
        cls,
        spec: ReplaySpec | Mapping[str, Any] | str | Path,
        policy: ScalingPolicy | None = None,
        requests: RequestTable | None = None,
        *,
        limits: ScalingLimits | None = None,
        seed: int | None = None,
        on_progress: ShowProgress | None = None,
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
        return cls(spec, requests, initial_tick_ms=first_tick_ms(spec, policy, limits, seed))

    def follow(
        self,
        policy: ScalingPolicy | None,
        on_progress: ShowProgress | None = None,
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
        follow_policy(self, policy, on_progress, give_up)

    def stand_still(self, until_ms: float) -> None:
        """Let time pass in a run that is stuck: its workers are paid for, its requests wait.

        Raises:
            ReplayError: If it is not stuck.
        """
        self.current_run.stand_still(until_ms)

    def fork(self) -> Self:
        """Return an independent copy that continues from the same state."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, current_run=self.current_run.copy())
        return copy

    def save(self, path: str | Path) -> None:
        """Write the whole state to one file (``.npz``), to be continued with :meth:`load`."""
        write_replay(path, SavedReplay(self.spec, self.session_ids, self.current_run))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the replay that :meth:`save` wrote.

        Raises:
            ReplayError: If the file is no saved replay, or one of another version.
        """
        replay = object.__new__(cls)
        replay.spec, replay.session_ids, replay.current_run = read_replay(path)
        return replay

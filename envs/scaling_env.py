"""What both environments share: an episode is a replay, a step is the time between two ticks."""

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from aisim_gym.envs.action import ACTIONS, Action, DirectAction, Targets, fleet_gpus
from aisim_gym.envs.capacity import check_capacity
from aisim_gym.envs.episode_workload import make_workload
from aisim_gym.envs.fleet_now import FleetNow, read_fleet
from aisim_gym.envs.load import LoadReader
from aisim_gym.envs.named_part import has_direct_form, make_part
from aisim_gym.envs.observation import Observation
from aisim_gym.envs.observer import OBSERVATIONS, Observer
from aisim_gym.envs.outcomes import OutcomeLedger, Outcomes
from aisim_gym.envs.rendering import fleet_text
from aisim_gym.envs.reward import REWARDS, Reward, reward_info
from aisim_gym.envs.step_outcome import NOTHING, StepOutcome
from aisim_gym.fleet.tick import KEEP
from aisim_gym.replay import (
    FleetDescription,
    Replay,
    ScalingLimits,
    ScalingSnapshot,
    describe_fleet,
)
from aisim_gym.replay.snapshot import take_snapshot
from aisim_gym.spec import AggregatedFleet, FleetSpec, ReplaySpec
from aisim_gym.spec.argument_checks import check_integer, check_number
from aisim_gym.spec.wording import closest
from aisim_gym.workload import RequestTable

GRACE_S = 300.0
"""Time after the last arrival that the default horizon leaves for the fleet to drain."""

SUCCESS_FRAC = 0.95
"""Share of good requests from which on an episode is a success."""


class ScalingEnv(gymnasium.Env[Any, Any]):
    """Base of the environments; see :class:`AggregatedEnv` and :class:`DisaggregatedEnv`.

    A subclass says which topology it is for, its default fleet and the names of the reset options
    that set the workers at the start.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012
    kind: ClassVar[Literal["agg", "disagg"]]
    worker_options: ClassVar[Mapping[str, str]]
    """Reset option -> field of the fleet spec, pool by pool."""

    def __init__(
        self,
        *,
        fleet: Mapping[str, Any] | None = None,
        generator: Mapping[str, Any] | None = None,
        trace: str | Path | None = None,
        trace_format: str | None = None,
        requests: RequestTable | None = None,
        tick_s: float = 30.0,
        horizon_s: float | None = None,
        ttft_slo_ms: float = 500.0,
        itl_slo_ms: float = 30.0,
        min_workers: int | Mapping[str, int] = 1,
        max_workers: int | Mapping[str, int] = 8,
        max_gpus: int | None = None,
        gpu_hour_usd: float = 1.0,
        observation: str | Mapping[str, Any] | Observation = "summary",
        action: str | Mapping[str, Any] | Action = "targets",
        reward: str | Mapping[str, Any] | Reward = "cost_slo",
        capture_details: bool = False,
        render_mode: str | None = None,
    ) -> None:
        """Build the environment; the arguments are explained in the subclasses.

        Raises:
            TypeError: If an argument is not of its type.
            ValueError: If an argument is not allowed (``SpecError`` if it is in the fleet).
            WorkloadError: If the workload is not valid or holds a request that can never run.
        """
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            allowed = ", ".join(self.metadata["render_modes"])
            raise ValueError(
                f"render_mode: got {render_mode!r}, expected None or one of: {allowed}"
            )
        self.render_mode = render_mode
        _check_slo("ttft_slo_ms", ttft_slo_ms)
        _check_slo("itl_slo_ms", itl_slo_ms)
        if not isinstance(max_workers, Mapping):
            check_integer("max_workers", max_workers, ">= min_workers: it bounds the action space")
        if not isinstance(capture_details, bool):
            raise TypeError(f"capture_details: got {capture_details!r}, expected True or False")
        fleet = self.default_fleet() if fleet is None else fleet
        self._spec = ReplaySpec.from_data(
            {
                "fleet": dict(fleet) if isinstance(fleet, Mapping) else fleet,
                "sla": {"ttft_ms": float(ttft_slo_ms), "itl_ms": float(itl_slo_ms)},
                "capture_per_request": capture_details,
                "capture_token_gaps": capture_details,
                "capture_planner_details": capture_details,
            }
        )
        if self._spec.fleet.kind != self.kind:
            raise ValueError(
                f"fleet.kind: got {self._spec.fleet.kind!r}, expected {self.kind!r} for "
                f"{type(self).__name__}"
            )
        limits = ScalingLimits(tick_s, min_workers, max_workers, max_gpus)
        self.fleet_description: FleetDescription = describe_fleet(self._spec, limits)
        self._check_limits()
        self._workload = make_workload(generator, trace, trace_format, requests)
        check_capacity(self._spec.fleet, self._workload.lengths())
        self._tick_ms = float(tick_s) * 1000.0
        self._horizon_s = horizon_s
        self._episode_horizon_ms({})  # refuses a horizon that is too short

        self._observer = Observer(
            make_part(
                "observation",
                observation,
                OBSERVATIONS,
                self.fleet_description,
                methods=("space", "observe"),
            )
        )
        self._action: Action = make_part(
            "action",
            action,
            ACTIONS,
            self.fleet_description,
            methods=("space", "decode", "encode", "mask"),
        )
        self.reward_object: Reward = make_part(
            "reward", reward, REWARDS, self.fleet_description, methods=("__call__",)
        )
        self._load_reader = LoadReader(self.fleet_description)
        self._gpu_hour_usd = float(gpu_hour_usd)
        self._needs_no_snapshot = has_direct_form(self._action, "decode", "targets_of")
        self._masks_need_no_snapshot = has_direct_form(self._action, "mask", "mask_of")
        self.observation_space = self._observer.space
        self.action_space = self._action.space()
        self._replay: Replay | None = None

    @classmethod
    def default_fleet(cls) -> dict[str, Any]:
        """Return the fleet of an environment that is given none."""
        raise NotImplementedError

    @property
    def replay(self) -> Replay:
        """The replay of the current episode.

        Raises:
            ResetNeeded: Before the first reset and after ``close()``.
        """
        if self._replay is None:
            raise ResetNeeded("call reset() first: there is no episode yet")
        return self._replay

    @property
    def snapshot(self) -> ScalingSnapshot:
        """What a planner sees now; after the episode, the fleet as it ended."""
        snapshot = self.replay.snapshot
        return take_snapshot(self.replay.state) if snapshot is None else snapshot

    @property
    def action_object(self) -> Action:
        """What translates between actions and targets."""
        return self._action

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode and run to its first tick.

        Args:
            seed: Starts a sequence of episodes; None goes on with the current sequence.
            options: For this episode only, as listed in the class.

        Raises:
            TypeError: If an option is not of its type.
            ValueError: If an option is unknown or not allowed.
        """
        super().reset(seed=seed)
        chosen = self._checked_options({} if options is None else options)
        requests = self._workload.draw(self.np_random)
        if "start_s" in chosen or "duration_s" in chosen:
            start_ms, end_ms = (1000.0 * at_s for at_s in self._slice_s(chosen))
            requests = requests.between(start_ms, end_ms)
            if len(requests) == 0:
                raise ValueError(
                    f"options: no request arrives between {start_ms / 1000.0} s and "
                    f"{end_ms / 1000.0} s"
                )
        self._horizon_ms = self._episode_horizon_ms(chosen)
        fleet = self._initial_fleet(chosen)
        spec = self._spec.model_copy(update={"fleet": fleet, "max_sim_time_ms": self._horizon_ms})
        self._replay = Replay(spec, requests, initial_tick_ms=self._tick_ms)
        self._replay.run_to_tick()
        self._fleet = self._read_fleet()
        sla = spec.sla
        assert sla.ttft_ms is not None
        assert sla.itl_ms is not None
        self._ledger = OutcomeLedger(sla.ttft_ms, sla.itl_ms)
        self._is_over = False
        self._rewarded_until_ms = 0.0
        self._paid_gpu_hours = 0.0
        self._totals = Outcomes()
        self._observer.begin_episode()
        observation, num_clipped = self._observe(NOTHING)
        return observation, self._info(NOTHING, {}, num_clipped, False)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Set the targets that ``action`` means and run to the next tick, or to the end.

        Raises:
            ResetNeeded: Before the first reset and after the end of an episode.
            ValueError: If the action is not in the action space.
            ReplayError: If the replay breaks.
        """
        replay = self.replay
        if self._is_over:
            raise ResetNeeded("step(): the episode is over, call reset()")
        current = self._current_targets()
        targets = self._targets_of(action, current)
        is_refused = not self._fits_budget(targets)
        if is_refused:
            targets = current
        if not replay.is_done:  # a workload may end before the first tick
            next_ms = min(self._fleet.now_ms + self._tick_ms, self._horizon_ms)
            prefill = KEEP if targets.prefill is None else targets.prefill
            replay.answer(prefill, targets.decode, next_ms)
            replay.run_to_tick()
            self._fleet = self._read_fleet()
        terminated = replay.is_done and not replay.hit_time_limit
        truncated = not terminated and (
            replay.hit_time_limit or self._fleet.now_ms >= self._horizon_ms
        )
        self._is_over = terminated or truncated

        outcome = self._settle_step(_distance(targets, current))
        # Adding 0.0 turns -0.0, which nobody wants to read in a log, into 0.0.
        terms = {name: float(value) + 0.0 for name, value in self.reward_object(outcome).items()}
        observation, num_clipped = self._observe(outcome)
        info = self._info(outcome, terms, num_clipped, is_refused)
        info |= reward_info(self.reward_object, outcome)
        return observation, math.fsum(terms.values()), terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which choices of each pool are possible now: flat, prefill first.

        All are, unless ``max_gpus`` forbids some even with every other pool at its least. Two
        choices that are possible one by one may still be refused together.
        """
        if self._masks_need_no_snapshot:
            return cast(DirectAction, self._action).mask_of(self._current_targets())
        return self._action.mask(self.snapshot)

    def render(self) -> str | None:
        """Return the fleet and its traffic as text, or None without a render mode."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render(): no render_mode was given; use "
                f'gymnasium.make("{self.spec.id if self.spec else "…"}", render_mode="ansi")'
            )
            return None
        return fleet_text(self.snapshot, self.fleet_description, self._totals, self._paid_gpu_hours)

    def close(self) -> None:
        """Forget the episode; ``reset()`` begins a new one."""
        self._replay = None

    def fork(self) -> Self:
        """Return an independent copy that continues from the same state, random state included."""
        fork = copy.copy(self)
        fork._replay = None if self._replay is None else self._replay.fork()
        for name in ("_np_random", "_observer", "_action", "reward_object", "_ledger"):
            if hasattr(self, name):
                setattr(fork, name, copy.deepcopy(getattr(self, name)))
        fork.observation_space = copy.deepcopy(self.observation_space)
        fork.action_space = copy.deepcopy(self.action_space)
        return fork

    def _check_limits(self) -> None:
        """Refuse limits that the fleet at its start does not keep."""
        limits = self.fleet_description.limits
        min_workers, _ = limits.of_pool("decode")
        if self.kind == "agg" and min_workers < 1:
            raise ValueError(
                f"min_workers: got {min_workers}, expected >= 1: requests that arrive at an "
                "aggregated fleet without workers end the replay with an error"
            )
        self._check_initial_workers(self._spec.fleet)

    def _check_initial_workers(self, fleet: FleetSpec) -> None:
        limits = self.fleet_description.limits
        for field in self.worker_options.values():
            count = getattr(fleet, field)
            least, most = limits.of_pool("prefill" if "prefill" in field else "decode")
            assert most is not None
            if not least <= count <= most:
                raise ValueError(
                    f"{field}: got {count}, expected {least} (min_workers) to {most} (max_workers)"
                )
        if isinstance(fleet, AggregatedFleet):
            targets = Targets(None, fleet.num_workers)
        else:
            targets = Targets(fleet.num_prefill_workers, fleet.num_decode_workers)
        if not self._fits_budget(targets):
            raise ValueError(
                f"max_gpus: got {limits.max_gpus}, expected at least the "
                f"{fleet_gpus(targets, self.fleet_description)} GPUs of the fleet at its start"
            )

    def _fits_budget(self, targets: Targets) -> bool:
        max_gpus = self.fleet_description.limits.max_gpus
        return max_gpus is None or fleet_gpus(targets, self.fleet_description) <= max_gpus

    def _checked_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(options, Mapping):
            raise TypeError(f"options: got {options!r}, expected a mapping or None")
        known = ("start_s", "duration_s", *self.worker_options)
        for name, value in options.items():
            if name not in known:
                raise ValueError(
                    f"unknown option {name!r}{closest(str(name), known)} "
                    f"(known: {', '.join(known)})"
                )
            if name in self.worker_options:
                check_integer(f"options.{name}", value, "")
            else:
                check_number(f"options.{name}", value, ">= 0" if name == "start_s" else "> 0")
        start_s, duration_s = options.get("start_s", 0.0), options.get("duration_s", 1.0)
        if not (math.isfinite(start_s) and start_s >= 0.0):
            raise ValueError(f"options.start_s: got {start_s}, expected a finite number >= 0")
        if not duration_s > 0.0:
            raise ValueError(f"options.duration_s: got {duration_s}, expected > 0")
        return options

    def _slice_s(self, options: Mapping[str, Any]) -> tuple[float, float]:
        """Return start and end of the part of the workload that an episode plays."""
        start_s = float(options.get("start_s", 0.0))
        return start_s, start_s + float(options.get("duration_s", math.inf))

    def _episode_horizon_ms(self, options: Mapping[str, Any]) -> float:
        """Return the time at which an episode is truncated."""
        horizon_s = self._horizon_s
        if horizon_s is not None:
            horizon_s = check_number("horizon_s", horizon_s, "larger than tick_s, or None")
        else:
            start_s, end_s = self._slice_s(options)
            horizon_s = max(0.0, min(self._workload.duration_s, end_s) - start_s) + GRACE_S
            horizon_s = max(horizon_s, 2.0 * self._tick_ms / 1000.0)
        if not (math.isfinite(horizon_s) and horizon_s * 1000.0 > self._tick_ms):
            raise ValueError(
                f"horizon_s: got {horizon_s}, expected a finite number larger than tick_s "
                f"({self._tick_ms / 1000.0})"
            )
        return horizon_s * 1000.0

    def _initial_fleet(self, options: Mapping[str, Any]) -> FleetSpec:
        counts = {
            field: int(options[name])
            for name, field in self.worker_options.items()
            if name in options
        }
        if not counts:
            return self._spec.fleet
        fleet = self._spec.fleet.model_copy(update=counts)
        self._check_initial_workers(fleet)
        return fleet

    def _current_targets(self) -> Targets:
        """Return the targets that change nothing."""
        return Targets(None if self.kind == "agg" else self._fleet.prefill, self._fleet.decode)

    def _targets_of(self, action: Any, current: Targets) -> Targets:
        """Return what an action means, once it is known to be one."""
        if self._needs_no_snapshot:
            targets = cast(DirectAction, self._action).targets_of(action, current)
            if targets is not None:
                return targets
        elif self.action_space.contains(action):
            return self._action.decode(action, self.snapshot)
        raise ValueError(f"action: got {action!r}, expected an element of {self.action_space}")

    def _read_fleet(self) -> FleetNow:
        return FleetNow(*read_fleet(self.replay.state.world()))

    def _observe(self, outcome: StepOutcome) -> tuple[Any, int]:
        """Return the observation, and how many of its entries had to be clipped."""
        return self._observer.observe(self.replay, self._horizon_ms, outcome)

    def _settle_step(self, churn: int) -> StepOutcome:
        """Return what happened since the last reward, and remember that it was rewarded."""
        state = self.replay.state
        outcomes = self._ledger.count_step(state)
        violations = float(outcomes.violations)
        if self._is_over:
            violations += self._ledger.late_frac_of_unfinished(state)
        gpu_hours = self._gpu_hours()
        now_ms = self._fleet.now_ms
        self._totals = self._totals.plus(outcomes)
        totals = self._totals
        outcome = StepOutcome(
            duration_s=(now_ms - self._rewarded_until_ms) / 1000.0,
            gpu_hours=gpu_hours - self._paid_gpu_hours,
            cost_usd=(gpu_hours - self._paid_gpu_hours) * self._gpu_hour_usd,
            arrived=outcomes.arrived,
            completed=outcomes.completed,
            rejected=outcomes.rejected,
            good=outcomes.good,
            violations=violations,
            overdue_s=outcomes.overdue_s,
            churn=churn,
            in_flight=totals.arrived - totals.completed - totals.rejected,
            load=self._load_reader.read(state.world()),
        )
        self._rewarded_until_ms = now_ms
        self._paid_gpu_hours = gpu_hours
        return outcome

    def _gpu_hours(self) -> float:
        """Return the GPU-hours of the episode so far (replay-runtime.md §7.6)."""
        fleet = self.fleet_description
        gpu_s = self._fleet.decode_s * fleet.decode.gpus_per_worker
        if fleet.prefill is not None:
            gpu_s += self._fleet.prefill_s * fleet.prefill.gpus_per_worker
        return gpu_s / 3600.0

    def _info(
        self, outcome: StepOutcome, terms: dict[str, float], num_clipped: int, is_refused: bool
    ) -> dict[str, Any]:
        totals = self._totals
        info: dict[str, Any] = {
            "now_s": self._fleet.now_ms / 1000.0,
            "duration_s": outcome.duration_s,
            "gpu_hours": outcome.gpu_hours,
            "arrived": outcome.arrived,
            "completed": outcome.completed,
            "rejected": outcome.rejected,
            "good": outcome.good,
            "violations": outcome.violations,
            "overdue_s": outcome.overdue_s,
            "churn": outcome.churn,
            "action_refused": int(is_refused),
            "obs_clipped": num_clipped,
            "total_gpu_hours": self._paid_gpu_hours,
            "total_arrived": totals.arrived,
            "total_completed": totals.completed,
            "total_rejected": totals.rejected,
            "total_good": totals.good,
        }
        for name, value in terms.items():
            info[f"reward_{name}"] = value
        if self._is_over:
            info["is_success"] = totals.good >= SUCCESS_FRAC * totals.arrived
        return info


def _check_slo(name: str, limit_ms: object) -> None:
    """Refuse a limit that is no finite number > 0; rewards and observations divide by it."""
    limit = check_number(name, limit_ms, "> 0 and finite (ms)")
    if not (math.isfinite(limit) and limit > 0.0):
        raise ValueError(f"{name}: got {limit_ms}, expected > 0 and finite (ms)")


def _distance(targets: Targets, current: Targets) -> int:
    """Return by how many workers the targets move."""
    prefill = abs((targets.prefill or 0) - (current.prefill or 0))
    return prefill + abs(targets.decode - current.decode)

"""What both environments share: an episode is a replay, a step is the time between two ticks."""

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from aisim_gym.envs.action import (
    ACTIONS,
    Action,
    DirectAction,
    Targets,
    check_targets,
    fleet_gpus,
)
from aisim_gym.envs.capacity import check_capacity
from aisim_gym.envs.episode_account import EpisodeAccount
from aisim_gym.envs.episode_workload import (
    Episode,
    EpisodeWorkload,
    FixedWorkload,
    make_workload,
    read_trace,
)
from aisim_gym.envs.fleet_choice import (
    COUNT_FIELDS,
    Kind,
    choose_fleet,
    gpu_hour_prices,
    read_pass_times,
)
from aisim_gym.envs.fleet_now import FleetNow, read_fleet
from aisim_gym.envs.load import NO_LOAD, LoadReader
from aisim_gym.envs.named_part import has_direct_form, make_part
from aisim_gym.envs.observation import Observation
from aisim_gym.envs.observer import OBSERVATIONS, Observer
from aisim_gym.envs.render_text import fleet_text
from aisim_gym.envs.rendering import RENDER_FPS, RENDER_MODES, Renderer, modes_of
from aisim_gym.envs.reset_options import ResetOptions, read_options
from aisim_gym.envs.reward import REWARDS, Reward, reward_info, reward_terms
from aisim_gym.envs.step_outcome import NOTHING, StepOutcome
from aisim_gym.envs.time_blocks import Split
from aisim_gym.errors import ReplayError
from aisim_gym.fleet.tick import KEEP
from aisim_gym.replay import (
    FleetDescription,
    Pool,
    Replay,
    ScalingLimits,
    ScalingSnapshot,
    describe_fleet,
)
from aisim_gym.replay.snapshot import take_snapshot
from aisim_gym.spec import AggregatedFleet, FleetSpec, ReplaySpec
from aisim_gym.spec.argument_checks import check_integer, check_number
from aisim_gym.workload import RequestTable

GRACE_S = 300.0
"""Time after the last arrival that the default horizon leaves for the fleet to drain."""

SUCCESS_FRAC = 0.95
"""Share of good requests from which on an episode is a success."""


class ScalingEnv(gymnasium.Env[Any, Any]):
    """Base of the environments: what :class:`AggregatedEnv` and :class:`DisaggregatedEnv` share.

    A subclass says which topology it is for and the names of the reset options that set the workers
    at the start.

    ## Rewards

    The default ``cost_slo`` is the sum of four terms, all negative: GPU-hours at their price
    (``gpu_hour_usd``), 0.01 per request that ended outside its TTFT or ITL limit, and 0.001 per
    worker by which the action moved the targets (``overdue``, the fourth, has weight 0). Starting,
    active and draining workers are paid for. Other weights: ``reward={"name": "cost_slo",
    "violation_weight": 0.1}``; other rewards: see :mod:`aisim_gym.envs.reward`.

    The first reward includes the time before the first action, the last one everything up to the
    end of the episode, so the rewards of an episode add up to the cost of the whole run. At the end
    of a truncated episode, requests still open count as violations in proportion to how far they
    are past a limit, each at most once.

    ## Episode End

    * ``terminated``: every request has ended. The last step runs up to that moment; an episode
      without a request ends at time 0, in its first step.
    * ``truncated``: the tick at the horizon came with work left. If the last request ends exactly
      at the horizon, the episode is terminated.

    It is never both. The horizon is ``horizon_s``, by default the length of the workload plus
    300 s; ``gymnasium.make(..., max_episode_steps=n)`` truncates earlier, without the count of open
    requests in the last reward.

    Requests that each fit can together hold memory that the others wait for (SGLang with two
    pools). If nothing can move any more, the episode is truncated as if all had stood still until
    the horizon: the fleet is paid for, open requests are late, those to come count as arrived and
    as violations; ``is_stuck`` in the info is 1.

    ## Info

    Numbers and a truth value, the same keys after every step: ``now_s``; of this step
    ``duration_s``, ``gpu_hours``, ``gpu_usd``, ``arrived``, ``completed``, ``rejected``, ``good``,
    ``violations``, ``overdue_s``, ``churn``, ``action_refused`` (1: over ``max_gpus``, so targets
    were left as they are), ``is_stuck`` (1: nothing can move any more), ``obs_clipped`` (entries
    outside their bounds) and each ``reward_<term>``; of the episode so far ``total_gpu_hours``,
    ``total_gpu_usd``, ``total_arrived``, ``total_completed``, ``total_rejected``, ``total_good``
    and ``is_success`` (at least 95 % of the requests that arrived were good; that of the last step
    is the episode's). A reward with constraints adds each ``cost_<name>`` and their sum ``cost``.
    ``reset()`` leaves out the terms of the reward.

    ``env.unwrapped.snapshot`` is what a planner sees, ``env.unwrapped.replay`` the whole run,
    ``env.unwrapped.fork()`` an independent copy to look ahead with.

    ## Arguments

    All but ``requests`` and objects for ``observation``, ``action`` and ``reward`` are JSON values,
    so that ``env.spec.to_json()`` describes the environment: paths are strings, a timing table is
    its ``model_dump(mode="json")``. A ``Path`` and the table itself work too, but not in JSON. "Per
    pool" means one value for all, or a mapping from pool to value.

    | argument | default | meaning |
    |---|---|---|
    | ``engine`` | None | engine profile by name, an ``engine`` table, or one of them per pool |
    | ``fleet`` | None | the whole ``fleet`` table of a replay spec instead |
    | ``initial_workers`` | None | workers at the start, per pool; None: 3, or 1 and 2 |
    | ``startup_s`` | None | seconds until a new worker is active; None: as engine or fleet say |
    | ``min_workers`` | 1 | fewest workers, per pool; 0 is possible with two pools |
    | ``max_workers`` | 8 | most workers, per pool |
    | ``max_gpus`` | None | most GPUs of the fleet; an action that asks for more changes nothing |
    | ``gpu_hour_usd`` | None | price of a GPU-hour; None: the engine profile's, or 1 |
    | ``workload`` | None | preset, generator fields or a ``[workload]`` table; see below |
    | ``trace`` | None | trace file to play instead |
    | ``requests`` | None | a ``RequestTable`` to play instead (not JSON) |
    | ``split`` | None | "train", "validation" or "test": play that part of the workload |
    | ``blocks`` | None | split -> list of [start_s, end_s], for a trace; None: 60, 20, 20 % |
    | ``episode_s`` | None | length of the window of a trace that an episode plays |
    | ``tick_s`` | 30 | seconds between actions, >= 0.001 |
    | ``horizon_s`` | None | seconds after which an episode is truncated |
    | ``ttft_slo_ms`` | 500 | limit on the time to the first token, > 0 |
    | ``itl_slo_ms`` | 30 | limit on a request's mean gap between tokens, > 0 |
    | ``observation`` | "summary" | name, ``{"name": …, parameters}`` or object |
    | ``action`` | "targets" | likewise |
    | ``reward`` | "cost_slo" | likewise |
    | ``capture_details`` | False | keep requests, ticks, operations and token gaps for reports |
    | ``render_mode`` | None | "ansi": text, "rgb_array": pictures, "human": a window |

    A workload with a request that no worker can ever hold is refused when the environment is built,
    and so are limits that the fleet at its start does not keep.

    ``workload`` describes traffic that is generated anew in every episode. Any number in it may be
    a range that each episode draws from (:mod:`aisim_gym.envs.ranges`):
    ``{"kind": "chat-wave", "peak_rate_rps": {"uniform": [10, 20]}}``. With a ``seed`` in it, or
    ``trace_files``, the workload exists once and episodes play parts of it.

    ``reset(options=…)``, for one episode: ``episode`` (a number: the same traffic for everybody),
    ``trace`` (a file to play instead), ``start_s``, ``duration_s`` (play only the requests that
    arrive in this part of the episode, from time 0) and the workers at the start:

    * ``workers`` of one pool
    * ``prefill_workers`` and ``decode_workers`` of two

    ## Version History

    * v0: the first version. The default engine is the reference's polynomial, which behaves about
      like an 8B model in FP8 on one H200.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": list(RENDER_MODES),
        "render_fps": RENDER_FPS,
    }
    kind: ClassVar[Kind]
    worker_options: ClassVar[Mapping[str, str]]
    """Reset option -> field of the fleet spec, pool by pool."""

    def __init__(
        self,
        *,
        engine: str | Mapping[str, Any] | None = None,
        fleet: Mapping[str, Any] | None = None,
        initial_workers: int | Mapping[str, int] | None = None,
        startup_s: float | None = None,
        min_workers: int | Mapping[str, int] = 1,
        max_workers: int | Mapping[str, int] = 8,
        max_gpus: int | None = None,
        gpu_hour_usd: float | None = None,
        workload: str | Mapping[str, Any] | None = None,
        trace: str | Path | None = None,
        requests: RequestTable | None = None,
        split: Split | None = None,
        blocks: Mapping[str, Sequence[Sequence[float]]] | None = None,
        episode_s: float | None = None,
        tick_s: float = 30.0,
        horizon_s: float | None = None,
        ttft_slo_ms: float = 500.0,
        itl_slo_ms: float = 30.0,
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
        self.metadata = {**self.metadata, "render_modes": modes_of(render_mode)}
        _check_slo("ttft_slo_ms", ttft_slo_ms)
        _check_slo("itl_slo_ms", itl_slo_ms)
        if not isinstance(max_workers, Mapping):
            check_integer("max_workers", max_workers, ">= min_workers: it bounds the action space")
        if not isinstance(capture_details, bool):
            raise TypeError(f"capture_details: got {capture_details!r}, expected True or False")
        chosen = choose_fleet(self.kind, fleet, engine, initial_workers, startup_s)
        self._spec = ReplaySpec.from_data(
            {
                "fleet": chosen,
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
        read_pass_times(self._spec.fleet)
        limits = ScalingLimits(tick_s, min_workers, max_workers, max_gpus)
        self.fleet_description: FleetDescription = describe_fleet(self._spec, limits)
        self._renderer = Renderer(render_mode, self.fleet_description)
        self._check_limits(fleet, initial_workers)
        prices = gpu_hour_prices(self.kind, chosen, gpu_hour_usd)
        self._account = EpisodeAccount(self.fleet_description, prices)
        self._workload = make_workload(
            workload,
            trace,
            requests,
            split=split,
            blocks=blocks,
            episode_s=episode_s,
            engine_block_size=self._spec.engine_block_size,
        )
        self._check_capacity(self._workload)
        self._tick_ms = float(tick_s) * 1000.0
        self._horizon_s = horizon_s
        self._episode_horizon_ms(self._workload.longest_s)  # refuses one that is too short

        described = self.fleet_description
        self._observer = Observer(
            make_part(
                "observation", observation, OBSERVATIONS, described, methods=("space", "observe")
            )
        )
        self._action: Action = make_part(
            "action", action, ACTIONS, described, methods=("space", "decode", "encode", "mask")
        )
        self.reward_object: Reward = make_part(
            "reward", reward, REWARDS, described, methods=("__call__",)
        )
        self._load_reader = LoadReader(described)
        self._is_own_action = type(self._action) in ACTIONS.values()  # keeps within the limits
        self._needs_no_snapshot = has_direct_form(self._action, "decode", "targets_of")
        self._masks_need_no_snapshot = has_direct_form(self._action, "mask", "mask_of")
        self.observation_space = self._observer.space
        self.action_space = self._action.space()
        self._replay: Replay | None = None

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

    @property
    def observation_object(self) -> Observation:
        """What an observation is read with."""
        return self._observer.observation

    @property
    def workers_at_start(self) -> dict[str, int]:
        """Workers at the start of an episode by reset option, prefill first."""
        return {name: getattr(self._spec.fleet, f) for name, f in self.worker_options.items()}

    @property
    def longest_episode_s(self) -> float:
        """Time in which requests may arrive in the longest episode."""
        return self._workload.longest_s

    @property
    def num_episodes(self) -> int | None:
        """How many different episodes there are; None without end."""
        return self._workload.num_episodes

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
            WorkloadError: If the trace of an option is not valid or can never run.
        """
        self.start_episode(*self.draw_episode(seed, options))
        self._run_to_tick()
        return self.first_observation()

    def draw_episode(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Replay, float]:
        """Return the replay of a new episode and its horizon in ms; the current one goes on."""
        super().reset(seed=seed)
        chosen = read_options(options, self.worker_options)
        fleet = self._initial_fleet(chosen)
        episode = self._draw_episode(chosen)
        horizon_ms = self._episode_horizon_ms(episode.duration_s)
        spec = self._spec.model_copy(update={"fleet": fleet, "max_sim_time_ms": horizon_ms})
        return Replay(spec, episode.requests, initial_tick_ms=self._tick_ms), horizon_ms

    def start_episode(self, replay: Replay, horizon_ms: float) -> None:
        """Make what :meth:`draw_episode` returned the current episode: :meth:`reset` so far."""
        self._replay, self._horizon_ms = replay, horizon_ms

    def first_observation(self) -> tuple[Any, dict[str, Any]]:
        """Return what :meth:`reset` returns, once the replay has run to its first tick."""
        self._fleet = self._read_fleet()
        self._account.begin_episode()
        self._is_over = False
        self._churn, self._is_refused = 0, False
        self._observer.begin_episode()
        observation, num_clipped = self._observe(NOTHING)
        self._renderer.begin_episode(self._horizon_ms / 1000.0)
        self._render_tick(self._current_targets())
        return observation, self._info(NOTHING, {}, num_clipped)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Set the targets that ``action`` means and run to the next tick, or to the end.

        Raises:
            ResetNeeded: Before the first reset and after the end of an episode.
            TypeError: If an action object returns no targets, or a reward no numbers.
            ValueError: If the action is not in the action space, targets are outside the limits of
                a pool, or a term of the reward is not finite.
            ReplayError: If the replay breaks.
        """
        self.set_targets(self.read_action(action))
        self._run_to_tick()
        return self.outcome()

    def _run_to_tick(self) -> None:
        if not self._goes_on:
            return
        try:
            self.replay.run_to_tick()
        except ReplayError:
            if not self.replay.is_stuck:
                raise

    @property
    def _goes_on(self) -> bool:
        """Whether the replay can run; it may end, or get stuck, before the first tick."""
        return not (self.replay.is_done or self.replay.is_stuck)

    def read_action(self, action: Any, at: str = "action") -> Targets:
        """Return the targets that ``action`` means; nothing changes yet.

        Args:
            action: What :meth:`step` is given.
            at: What to call it in messages.

        Raises:
            ResetNeeded: Before the first reset and after the end of an episode.
            TypeError: If an action object returns no targets.
            ValueError: If the action is not in the action space, or an action object returns
                targets outside the limits of a pool.
        """
        current = self._current_targets()
        if self._is_over:
            raise ResetNeeded("step(): the episode is over, call reset()")
        if self._needs_no_snapshot:
            targets = cast(DirectAction, self._action).targets_of(action, current)
            if targets is not None:
                if self._is_own_action:
                    return targets
                return check_targets(targets, self.fleet_description, at)
        elif self.action_space.contains(action):
            decoded = self._action.decode(action, self.snapshot)
            return check_targets(decoded, self.fleet_description, at)
        raise ValueError(f"{at}: got {action!r}, expected an element of {self.action_space}")

    def set_targets(self, targets: Targets) -> None:
        """Answer the tick: :meth:`step` up to the point where the replay has to run."""
        replay, current = self.replay, self._current_targets()
        self._is_refused = not self._fits_budget(targets)
        if self._is_refused:
            targets = current
        self._targets, self._churn = targets, _distance(targets, current)
        if self._goes_on:
            next_ms = min(self._fleet.now_ms + self._tick_ms, self._horizon_ms)
            prefill = KEEP if targets.prefill is None else targets.prefill
            replay.answer(prefill, targets.decode, next_ms)

    def outcome(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return what :meth:`step` returns, once the replay has run to its next tick or its end."""
        replay = self.replay
        if replay.is_stuck:
            replay.stand_still(self._horizon_ms)
        self._fleet = self._read_fleet()
        terminated = replay.is_done and not replay.hit_time_limit
        truncated = not terminated and (
            replay.hit_time_limit or replay.is_stuck or self._fleet.now_ms >= self._horizon_ms
        )
        self._is_over = terminated or truncated
        reads_load = getattr(self.reward_object, "reads_load", True)
        load = self._load_reader.read(replay.state.world) if reads_load else NO_LOAD
        outcome = self._account.settle(
            replay.state,
            self._fleet,
            self._churn,
            load,
            is_over=self._is_over,
            is_stuck=replay.is_stuck,
        )
        terms = reward_terms(self.reward_object, outcome)
        observation, num_clipped = self._observe(outcome)
        info = self._info(outcome, terms, num_clipped)
        info |= reward_info(self.reward_object, outcome)
        self._render_tick(self._targets)
        return observation, math.fsum(terms.values()), terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which choices of each pool are possible now: flat, prefill first.

        All are, unless ``max_gpus`` forbids some even with every other pool at its least. Two
        choices that are possible one by one may still be refused together.

        Raises:
            ResetNeeded: Before the first reset and after ``close()``.
        """
        if self._masks_need_no_snapshot:
            return cast(DirectAction, self._action).mask_of(self._current_targets())
        return self._action.mask(self.snapshot)

    def render(self) -> str | NDArray[np.uint8] | None:
        """Show the episode so far.

        Returns:
            One screen of text ("ansi"), a frame of shape (height, width, 3) ("rgb_array"), or None:
            in a window ("human"), which :meth:`reset` and :meth:`step` keep up to date by
            themselves, or without a render mode.

        Raises:
            ResetNeeded: Before the first reset and after ``close()``.
            ImportError: If what draws a picture or shows a window is not installed.
            RuntimeError: If a window has no display.
        """
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render(): no render_mode was given; use "
                f'gymnasium.make("{self.spec.id if self.spec else "…"}", render_mode="ansi")'
            )
            return None
        if self.render_mode == "ansi":
            account = self._account
            return fleet_text(self.snapshot, self.fleet_description, account.totals, account.paid)
        return self._renderer.render()

    def close(self) -> None:
        """Forget the episode and close its window; ``reset()`` begins a new one."""
        self._replay = None
        self._renderer.close()

    def fork(self) -> Self:
        """Return an independent copy that continues from the same state, random state included."""
        fork = copy.copy(self)
        fork._replay = None if self._replay is None else self._replay.fork()
        for name in ("_np_random", "_observer", "_action", "reward_object"):
            setattr(fork, name, copy.deepcopy(getattr(self, name)))
        fork._account = self._account.fork()
        fork._renderer = self._renderer.fork()
        fork.render_mode = fork._renderer.mode
        fork.observation_space = copy.deepcopy(self.observation_space)
        fork.action_space = copy.deepcopy(self.action_space)
        return fork

    def _render_tick(self, targets: Targets) -> None:
        """Keep what pictures show of a tick; ``targets`` were in force up to it."""
        if self._renderer.is_recording:
            in_flight = int(self.replay.state.world.clock.in_flight)
            self._renderer.add_tick(
                self.snapshot,
                targets,
                in_flight,
                self._account.paid_until(self._fleet),
                self._account.totals,
            )

    def _check_limits(
        self,
        fleet: Mapping[str, Any] | None,
        initial_workers: int | Mapping[str, int] | None,
    ) -> None:
        """Refuse limits that the fleet at its start does not keep."""
        least, _ = self.fleet_description.limits.of_pool("decode")
        if self.kind == "agg" and least < 1:
            raise ValueError(
                f"min_workers: got {least}, expected >= 1: requests that arrive at an "
                "aggregated fleet without workers end the replay with an error"
            )
        names = {
            field: "initial_workers" if self.kind == "agg" else f"initial_workers.{pool}"
            for pool, field in COUNT_FIELDS[self.kind].items()
        }
        if initial_workers is None and fleet is not None:
            names = {field: f"fleet.{field}" for field in names}
        is_default = initial_workers is None and fleet is None
        self._check_initial_workers(self._spec.fleet, names, " (the default)" if is_default else "")

    def _check_initial_workers(
        self, fleet: FleetSpec, names: Mapping[str, str], source: str = ""
    ) -> None:
        """Refuse a fleet that is outside the limits at its start.

        Args:
            fleet: The fleet.
            names: Field of the fleet -> what the user calls it.
            source: Where the numbers come from, for messages.
        """
        limits = self.fleet_description.limits
        for field, name in names.items():
            count = getattr(fleet, field)
            pool: Pool = "prefill" if "prefill" in field else "decode"
            least, most = limits.of_pool(pool)
            if most is None:
                raise TypeError(
                    f"max_workers.{pool}: got None, expected an integer >= min_workers ({least}): "
                    "it bounds the action space"
                )
            if not least <= count <= most:
                raise ValueError(
                    f"{name}: got {count}{source}, expected {least} (min_workers) to {most} "
                    "(max_workers)"
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

    def _check_capacity(self, workload: EpisodeWorkload) -> None:
        for lengths in workload.lengths():
            check_capacity(self._spec.fleet, lengths)

    def _draw_episode(self, options: ResetOptions) -> Episode:
        workload = self._workload
        if options.trace is not None:
            path, table = read_trace(options.trace)
            workload = FixedWorkload(table, path)
            self._check_capacity(workload)
        return workload.draw(self.np_random, options.episode, options.part)

    def _episode_horizon_ms(self, duration_s: float) -> float:
        """Return the time at which an episode is truncated."""
        horizon_s = self._horizon_s
        if horizon_s is not None:
            horizon_s = check_number("horizon_s", horizon_s, "larger than tick_s, or None")
        else:
            horizon_s = max(duration_s + GRACE_S, 2.0 * self._tick_ms / 1000.0)
        if not (math.isfinite(horizon_s) and horizon_s * 1000.0 > self._tick_ms):
            raise ValueError(
                f"horizon_s: got {horizon_s}, expected a finite number larger than tick_s "
                f"({self._tick_ms / 1000.0})"
            )
        return horizon_s * 1000.0

    def _initial_fleet(self, options: ResetOptions) -> FleetSpec:
        if not options.workers:
            return self._spec.fleet
        fleet = self._spec.fleet.model_copy(update=dict(options.workers))
        names = {field: f"options.{option}" for option, field in self.worker_options.items()}
        self._check_initial_workers(fleet, names)
        return fleet

    def _current_targets(self) -> Targets:
        """Return the targets that change nothing.

        Raises:
            ResetNeeded: If there is no episode.
        """
        _ = self.replay  # what was read of an episode outlives close()
        return Targets(None if self.kind == "agg" else self._fleet.prefill, self._fleet.decode)

    def _read_fleet(self) -> FleetNow:
        return FleetNow(*read_fleet(self.replay.state.world))

    def _observe(self, outcome: StepOutcome) -> tuple[Any, int]:
        """Return the observation, and how many of its entries had to be clipped."""
        return self._observer.observe(self.replay, self._horizon_ms, outcome)

    def _info(
        self, outcome: StepOutcome, terms: dict[str, float], num_clipped: int
    ) -> dict[str, Any]:
        paid, totals = self._account.paid, self._account.totals
        info: dict[str, Any] = {
            "now_s": self._fleet.now_ms / 1000.0,
            "duration_s": outcome.duration_s,
            "gpu_hours": outcome.gpu_hours,
            "gpu_usd": outcome.gpu_usd,
            "arrived": outcome.arrived,
            "completed": outcome.completed,
            "rejected": outcome.rejected,
            "good": outcome.good,
            "violations": outcome.violations,
            "overdue_s": outcome.overdue_s,
            "churn": outcome.churn,
            "action_refused": int(self._is_refused),
            "is_stuck": int(self.replay.is_stuck),
            "obs_clipped": num_clipped,
            "total_gpu_hours": paid.gpu_hours,
            "total_gpu_usd": paid.gpu_usd,
            "total_arrived": totals.arrived,
            "total_completed": totals.completed,
            "total_rejected": totals.rejected,
            "total_good": totals.good,
            "is_success": totals.good >= SUCCESS_FRAC * totals.arrived,
        }
        for name, value in terms.items():
            info[f"reward_{name}"] = value
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

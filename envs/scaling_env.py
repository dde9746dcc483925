"""Base class of the environments: an episode is a replay, a step the time between two ticks."""

import copy
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from aisim_gym.envs.action import ACTIONS, Action
from aisim_gym.envs.component import make_component
from aisim_gym.envs.episode import Episode
from aisim_gym.envs.episode_source import EpisodeSource
from aisim_gym.envs.episode_workload import make_workload
from aisim_gym.envs.fleet_choice import Kind
from aisim_gym.envs.fleet_setup import FleetChoice, PerPool, make_fleet_setup, make_limits
from aisim_gym.envs.observation import Observation
from aisim_gym.envs.observer import OBSERVATIONS, Observer
from aisim_gym.envs.render_text import fleet_text
from aisim_gym.envs.rendering import RENDER_FPS, RENDER_MODES, Renderer, checked_mode, modes_of
from aisim_gym.envs.reset_options import read_options
from aisim_gym.envs.reward import REWARDS, Reward, reward_info, reward_terms
from aisim_gym.envs.spaces_fit import ActionCheck
from aisim_gym.envs.step_info import step_info
from aisim_gym.envs.targets import Targets
from aisim_gym.envs.tick_view import TickView
from aisim_gym.envs.time_blocks import Split
from aisim_gym.replay import FleetDescription, Replay, ScalingSnapshot
from aisim_gym.workload import RequestTable


class ScalingEnv(gymnasium.Env[Any, Any]):
    """Base class of :class:`AggregatedEnv` and :class:`DisaggregatedEnv`.

    A subclass defines its topology and the names of the reset options for the initial workers.

    ## Rewards

    The default ``cost_slo`` is the sum of four terms, all negative: GPU-hours at their price
    (``gpu_hour_usd``), 0.01 per request that ended outside its TTFT or ITL limit, and 0.001 per
    worker by which the action moved the targets (``overdue``, the fourth, has weight 0). Starting,
    active and draining workers are paid for. Other weights: ``reward={"name": "cost_slo",
    "violation_weight": 0.1}``; other rewards: see :mod:`aisim_gym.envs.reward`.

    The first reward includes the time before the first action, the last one everything up to the
    end of the episode, so the rewards of an episode add up to the cost of the whole run. At the end
    of a truncated episode, open requests count as violations in proportion to their excess over a
    limit, each at most once.

    ## Episode End

    * ``terminated``: every request has ended. The last step runs up to that moment; an episode
      without a request ends at time 0, in its first step.
    * ``truncated``: the tick at the horizon comes before all requests have ended. If the last
      request ends exactly at the horizon, the episode is terminated.

    It is never both. The horizon is ``horizon_s``, by default the length of the workload plus
    300 s; ``gymnasium.make(..., max_episode_steps=n)`` truncates earlier, without the count of open
    requests in the last reward.

    Requests can deadlock on KV memory, even if each fits alone (SGLang with two pools). Then the
    episode is truncated as if the fleet had been idle until the horizon: the fleet is paid for,
    open requests are late, and future requests count as arrived and as violations; ``is_stuck`` in
    the info is 1.

    ## Info

    Numbers and a boolean, with the same keys after every step: ``now_s``; for this step
    ``duration_s``, ``gpu_hours``, ``gpu_usd``, ``arrived``, ``completed``, ``rejected``, ``good``,
    ``violations``, ``overdue_s``, ``churn``, ``action_refused`` (1: over ``max_gpus``, so targets
    are unchanged), ``is_stuck`` (1: the requests are deadlocked), ``obs_clipped`` (entries outside
    their bounds) and each ``reward_<term>``; for the episode so far ``total_gpu_hours``,
    ``total_gpu_usd``, ``total_arrived``, ``total_completed``, ``total_rejected``, ``total_good``
    and ``is_success`` (at least 95 % of the requests that arrived are good; the last step's value
    is the episode's). A reward with constraints adds each ``cost_<name>`` and their sum ``cost``.
    ``reset()`` omits the terms of the reward.

    ``env.unwrapped.snapshot`` is the planner's snapshot, ``env.unwrapped.replay`` the whole run,
    ``env.unwrapped.fork()`` an independent copy for look-ahead.

    ## Arguments

    All but ``requests`` and objects for ``observation``, ``action`` and ``reward`` are JSON values,
    so that ``env.spec.to_json()`` describes the environment: paths are strings, a timing table is
    its ``model_dump(mode="json")``. A ``Path`` and the table itself work too, but not in JSON. "Per
    pool" means one value for all pools, or a mapping from pool to value.

    | argument | default | meaning |
    |---|---|---|
    | ``engine`` | None | engine profile by name, an ``engine`` table, or one of them per pool |
    | ``fleet`` | None | the whole ``fleet`` table of a replay spec instead |
    | ``initial_workers`` | None | initial workers, per pool; None: 3, or 1 and 2 |
    | ``startup_s`` | None | seconds until a new worker is active; None: value of engine or fleet |
    | ``min_workers`` | 1 | minimum workers, per pool; 0 is possible with two pools |
    | ``max_workers`` | 8 | maximum workers, per pool |
    | ``max_gpus`` | None | maximum GPUs of the fleet; an action beyond it changes nothing |
    | ``gpu_hour_usd`` | None | price of a GPU-hour; None: price of the engine profile, or 1 |
    | ``workload`` | None | preset, generator fields or a ``[workload]`` table; see below |
    | ``trace`` | None | trace file to play instead |
    | ``requests`` | None | a ``RequestTable`` to play instead (not JSON) |
    | ``split`` | None | "train", "validation" or "test": play this split of the workload |
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
    | ``render_mode`` | None | "ansi": text, "rgb_array": images, "human": a window |

    Building the environment raises if no worker can ever hold a request of the workload, or if the
    initial fleet violates the limits.

    ``workload`` describes traffic that is generated for every episode. Any number in it may be a
    range from which each episode draws (:mod:`aisim_gym.envs.ranges`): ``{"kind": "chat-wave",
    "peak_rate_rps": {"uniform": [10, 20]}}``. With a ``seed`` in it, or ``trace_files``, the
    workload is fixed and episodes play windows of it.

    ``reset(options=…)``, for one episode: ``episode`` (a number, which always gives the same
    traffic), ``trace`` (a file to play instead), ``start_s``, ``duration_s`` (play only the
    requests that arrive in this interval of the episode, from time 0) and the initial workers:

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
    """Reset option -> field of the fleet spec, by pool."""

    def __init__(
        self,
        *,
        engine: str | Mapping[str, Any] | None = None,
        fleet: Mapping[str, Any] | None = None,
        initial_workers: PerPool | None = None,
        startup_s: float | None = None,
        min_workers: PerPool = 1,
        max_workers: PerPool = 8,
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
        """Build the environment; the class docstring explains the arguments.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If an argument is not allowed (``SpecError`` if it is in the fleet).
            WorkloadError: If the workload is not valid or contains a request that can never run.
        """
        self.render_mode = checked_mode(render_mode)
        self.metadata = {**self.metadata, "render_modes": modes_of(render_mode)}
        setup = make_fleet_setup(
            FleetChoice(self.kind, fleet, engine, initial_workers, startup_s, gpu_hour_usd),
            make_limits(tick_s, min_workers, max_workers, max_gpus),
            ttft_slo_ms=ttft_slo_ms,
            itl_slo_ms=itl_slo_ms,
            capture_details=capture_details,
        )
        traffic = make_workload(
            workload,
            trace,
            requests,
            split=split,
            blocks=blocks,
            episode_s=episode_s,
            engine_block_size=setup.spec.engine_block_size,
        )
        option_names = {field: option for option, field in self.worker_options.items()}
        self._setup = setup
        self._source = EpisodeSource(setup, traffic, tick_s, horizon_s, option_names)
        self._episode: Episode | None = None
        self.fleet_description: FleetDescription = setup.description
        self._renderer = Renderer(render_mode, self.fleet_description)

        self._observer = Observer(
            self._component("observation", observation, OBSERVATIONS, "space", "observe")
        )
        self.action_object: Action = self._component(
            "action", action, ACTIONS, "space", "decode", "encode", "mask"
        )
        self.reward_object: Reward = self._component("reward", reward, REWARDS, "__call__")
        self.observation_space = self._observer.space
        self.action_space = self.action_object.space()
        self._is_action = ActionCheck(self.action_space)

    def _component(self, kind: str, choice: Any, registry: Any, *methods: str) -> Any:
        return make_component(kind, choice, registry, self.fleet_description, methods=methods)

    @property
    def episode(self) -> Episode:
        """The current episode.

        Raises:
            ResetNeeded: Before the first reset and after ``close()``.
        """
        if self._episode is None:
            raise ResetNeeded("call reset() first: there is no episode yet")
        return self._episode

    @property
    def replay(self) -> Replay:
        """The replay of the current episode.

        Raises:
            ResetNeeded: Before the first reset and after ``close()``.
        """
        return self.episode.replay

    @property
    def view(self) -> TickView:
        """Current view for observation, action and reward objects."""
        return self.episode.view

    @property
    def snapshot(self) -> ScalingSnapshot:
        """Current snapshot for planners; after the episode, the final fleet."""
        return self.view.snapshot

    @property
    def observation_object(self) -> Observation:
        """The observation object."""
        return self._observer.observation

    @property
    def workers_at_start(self) -> dict[str, int]:
        """Initial workers of an episode by reset option, prefill first."""
        fleet = self._setup.spec.fleet
        return {name: getattr(fleet, field) for name, field in self.worker_options.items()}

    @property
    def longest_episode_s(self) -> float:
        """Arrival time span of the longest episode."""
        return self._source.workload.longest_s

    @property
    def num_episodes(self) -> int | None:
        """Number of distinct episodes; None if unlimited."""
        return self._source.workload.num_episodes

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode and run to its first tick.

        Args:
            seed: Starts a sequence of episodes; None continues the current sequence.
            options: For this episode only, as listed in the class.

        Raises:
            TypeError: If an option has the wrong type.
            ValueError: If an option is unknown or not allowed.
            WorkloadError: If a trace given by an option is not valid or can never run.
        """
        self.start_episode(self.draw_episode(seed, options))
        self.episode.run()
        return self.first_observation()

    def draw_episode(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> Episode:
        """Return a new episode at time 0; the current one is unaffected."""
        super().reset(seed=seed)
        return self._source.draw(self.np_random, read_options(options, self.worker_options))

    def start_episode(self, episode: Episode) -> None:
        """Make an episode the current one: the part of :meth:`reset` before the replay runs."""
        self._episode = episode

    def first_observation(self) -> tuple[Any, dict[str, Any]]:
        """Return the result of :meth:`reset`, after the replay has run to its first tick."""
        episode = self.episode
        episode.begin()
        self._observer.begin_episode()
        observation, num_clipped = self._observer.observe(episode.view)
        self._renderer.begin_episode(episode.horizon_ms / 1000.0)
        self._render_tick()
        return observation, step_info(episode, {}, num_clipped)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Set the targets of ``action`` and run to the next tick or to the end.

        Raises:
            ResetNeeded: Before the first reset and after the end of an episode.
            TypeError: If an action object does not return targets, or a reward does not return
                numbers.
            ValueError: If the action is not in the action space, targets are outside the limits of
                a pool, or a term of the reward is not finite.
            ReplayError: If the replay fails.
        """
        targets = self.read_action(action)
        episode = self.episode
        episode.answer(targets)
        episode.run()
        return self.outcome()

    def read_action(self, action: Any, at: str = "action") -> Targets:
        """Return the targets of ``action``, without setting them.

        Args:
            action: Argument of :meth:`step`.
            at: Name of the action in messages.

        Raises:
            ResetNeeded: Before the first reset and after the end of an episode.
            TypeError: If an action object does not return targets.
            ValueError: If the action is not in the action space, or an action object returns
                targets outside the limits of a pool.
        """
        episode = self.episode
        if episode.is_over:
            raise ResetNeeded("step(): the episode is over, call reset()")
        if not self._is_action(action):
            raise ValueError(f"{at}: got {action!r}, expected an element of {self.action_space}")
        return self._setup.limits.check(self.action_object.decode(action, episode.view), at)

    def outcome(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the result of :meth:`step`, after the replay has run to its next tick or end."""
        episode = self.episode
        episode.settle()
        view = episode.view
        terms = reward_terms(self.reward_object, view)
        observation, num_clipped = self._observer.observe(view)
        info = step_info(episode, terms, num_clipped)
        info |= reward_info(self.reward_object, view)
        self._render_tick()
        return observation, math.fsum(terms.values()), episode.terminated, episode.truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Return the mask of currently possible choices, flat over pools, prefill first.

        A choice is impossible if it exceeds ``max_gpus`` even with all other pools at their
        minimum. Choices that are possible alone may still exceed the budget together.

        Raises:
            ResetNeeded: Before the first reset and after ``close()``.
        """
        return self.action_object.mask(self.view)

    def render(self) -> str | NDArray[np.uint8] | None:
        """Show the episode so far.

        Returns:
            One screen of text ("ansi"), a frame of shape (height, width, 3) ("rgb_array"), or None
            for a window ("human"), which :meth:`reset` and :meth:`step` update, or without a render
            mode.

        Raises:
            ResetNeeded: Before the first reset and after ``close()``.
            ImportError: If matplotlib or pygame is required and not installed.
            RuntimeError: If a window has no display.
        """
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render(): no render_mode was given; use "
                f'gymnasium.make("{self.spec.id if self.spec else "…"}", render_mode="ansi")'
            )
            return None
        if self.render_mode == "ansi":
            account = self.episode.account
            return fleet_text(self.snapshot, self.fleet_description, account.totals, account.paid)
        return self._renderer.render()

    def close(self) -> None:
        """Discard the episode and close its window; ``reset()`` starts a new one."""
        self._episode = None
        self._renderer.close()

    def fork(self) -> Self:
        """Return an independent copy that continues from the same state, random state included."""
        fork = copy.copy(self)
        fork._episode = None if self._episode is None else self._episode.fork()
        for name in ("_np_random", "_observer", "action_object", "reward_object"):
            setattr(fork, name, copy.deepcopy(getattr(self, name)))
        fork._renderer = self._renderer.fork()
        fork.render_mode = fork._renderer.mode
        fork.observation_space = copy.deepcopy(self.observation_space)
        fork.action_space = copy.deepcopy(self.action_space)
        return fork

    def _render_tick(self) -> None:
        """Record a tick for rendering."""
        if self._renderer.is_recording:
            episode = self.episode
            account = episode.account
            self._renderer.add_tick(
                self.snapshot,
                episode.targets,
                episode.view.in_flight,
                account.paid_until(episode.fleet),
                account.totals,
            )

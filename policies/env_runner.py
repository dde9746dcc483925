"""Planners against environments: a snapshot goes in, an action of the environment comes out."""

from typing import Any, NamedTuple, Protocol

import gymnasium

from aisim_gym.envs.scaling_env import ScalingEnv
from aisim_gym.envs.targets import Targets
from aisim_gym.replay import ScalingDecision, ScalingPolicy


class EpisodeResult(NamedTuple):
    """A finished episode.

    Attributes:
        total_reward: Sum of all rewards.
        num_steps: Steps taken.
        terminated: Whether the workload was finished.
        truncated: Whether the horizon or a step limit came first.
        info: What the last step told.
    """

    total_reward: float
    num_steps: int
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Actor(Protocol):
    """Chooses the actions of an episode."""

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode, after the environment has."""
        ...

    def act(self, observation: Any) -> Any:
        """Return an action for what the environment shows."""
        ...


class EnvPolicy:
    """Lets a planner choose the actions of an environment.

    The planner sees ``env.unwrapped.snapshot`` at every tick of the environment, whenever it asked
    to be called next; one that asked for no more ticks is not called again and its fleet stays. To
    get exactly the decisions of ``Replay.run``, give the environment the planner's tick length.
    A target that the action space cannot express becomes the nearest one that it can; with delta
    actions it is approached step by step.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], policy: ScalingPolicy) -> None:
        """Wrap ``policy`` for ``env``, which may be wrapped itself.

        Raises:
            TypeError: If the environment is not one of this package.
        """
        self._env = unwrap(env)
        self._policy = policy
        self._is_asked = True
        self._wanted: Targets | None = None

    def reset(self, seed: int | None = None) -> None:
        """Prepare the planner for an episode; ``seed`` is told to it."""
        self._policy.reset(self._env.fleet_description, seed)
        self._is_asked = True
        self._wanted = None

    def act(self, observation: Any = None) -> Any:
        """Return the action for the tick at which the environment waits.

        The planner looks at the snapshot there; ``observation`` is not used.
        """
        view = self._env.view
        if self._wanted is None:
            self._wanted = view.targets
        if self._is_asked:
            decision = ScalingDecision.of(self._policy.on_tick(view.snapshot))
            self._is_asked = decision.next_tick_ms is not None
            self._wanted = _changed(self._wanted, decision)
        return self._env.action_object.encode(self._wanted, view)


def run_policy_in_env(
    env: gymnasium.Env[Any, Any],
    policy: ScalingPolicy,
    *,
    seed: int | None = None,
    options: dict[str, Any] | None = None,
) -> EpisodeResult:
    """Return the result of one episode in which ``policy`` chooses the actions.

    Args:
        env: An environment of this package, possibly wrapped.
        policy: Any planner.
        seed: For ``env.reset`` and for the policy.
        options: For ``env.reset``.

    Raises:
        TypeError: If the environment is not one of this package.
    """
    return play_episode(env, EnvPolicy(env, policy), seed=seed, options=options)


def play_episode(
    env: gymnasium.Env[Any, Any],
    actor: Actor,
    *,
    seed: int | None = None,
    options: dict[str, Any] | None = None,
) -> EpisodeResult:
    """Return the result of one episode.

    Args:
        env: Any environment.
        actor: Who chooses the actions.
        seed: For ``env.reset`` and for the actor.
        options: For ``env.reset``.
    """
    observation, info = env.reset(seed=seed, options=options)
    actor.reset(seed)
    total_reward, num_steps = 0.0, 0
    terminated = truncated = False
    while not (terminated or truncated):
        observation, reward, terminated, truncated, info = env.step(actor.act(observation))
        total_reward += float(reward)
        num_steps += 1
    return EpisodeResult(total_reward, num_steps, terminated, truncated, info)


def unwrap(env: gymnasium.Env[Any, Any]) -> ScalingEnv:
    """Return the environment below its wrappers.

    Raises:
        TypeError: If it is not one of this package.
    """
    if not isinstance(env.unwrapped, ScalingEnv):
        raise TypeError(f"env: got {env}, expected an environment of aisim_gym.envs")
    return env.unwrapped


def _changed(wanted: Targets, decision: ScalingDecision) -> Targets:
    """Return the targets after a decision; what it leaves open stays as it is."""
    prefill, decode = wanted
    if decision.target_prefill is not None and prefill is not None:
        prefill = int(decision.target_prefill)
    if decision.target_decode is not None:
        decode = int(decision.target_decode)
    return Targets(prefill, decode)

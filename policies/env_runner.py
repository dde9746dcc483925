"""Run planners in environments, converting snapshots to actions."""

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
        terminated: Whether all requests have ended.
        truncated: Whether the horizon or a step limit came first.
        info: Info of the last step.
    """

    total_reward: float
    num_steps: int
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Actor(Protocol):
    """Chooses the actions of an episode."""

    def reset(self, seed: int | None = None) -> None:
        """Start an episode, after the reset of the environment."""
        ...

    def act(self, observation: Any) -> Any:
        """Return an action for an observation."""
        ...


class EnvPolicy:
    """An actor that uses a planner.

    The planner receives ``env.unwrapped.snapshot`` at every tick of the environment, regardless of
    its requested next tick. A planner that requests no more ticks is not called again, and the
    fleet stays as it is. To get exactly the decisions of ``Replay.run``, use the planner's tick
    length in the environment. A target outside the action space becomes the nearest one; delta
    actions approach it step by step.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], policy: ScalingPolicy) -> None:
        """Create an actor for ``env``, possibly wrapped.

        Raises:
            TypeError: If the environment is not one of this package.
        """
        self._env = unwrap(env)
        self._policy = policy
        self._is_asked = True
        self._wanted: Targets | None = None

    def reset(self, seed: int | None = None) -> None:
        """Reset the planner with ``seed``."""
        self._policy.reset(self._env.fleet_description, seed)
        self._is_asked = True
        self._wanted = None

    def act(self, observation: Any = None) -> Any:
        """Return the action for the current tick of the environment.

        The planner reads the snapshot; ``observation`` is not used.
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
        seed: Seed for ``env.reset`` and for the policy.
        options: Options for ``env.reset``.

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
        actor: Chooses the actions.
        seed: Seed for ``env.reset`` and for the actor.
        options: Options for ``env.reset``.
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
        TypeError: If the environment is not one of this package.
    """
    if not isinstance(env.unwrapped, ScalingEnv):
        raise TypeError(f"env: got {env}, expected an environment of aisim_gym.envs")
    return env.unwrapped


def _changed(wanted: Targets, decision: ScalingDecision) -> Targets:
    """Return the targets after a decision; None keeps a target."""
    prefill, decode = wanted
    if decision.target_prefill is not None and prefill is not None:
        prefill = int(decision.target_prefill)
    if decision.target_decode is not None:
        decode = int(decision.target_decode)
    return Targets(prefill, decode)

"""A trained policy as a :class:`~aisim_gym.replay.ScalingPolicy`, for replays without Gymnasium."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aisim_gym.envs.action import current_targets, fleet_gpus
from aisim_gym.envs.observation import fit_to_space
from aisim_gym.envs.scaling_env import ScalingEnv
from aisim_gym.policies.rl.learned_policy import LearnedPolicy
from aisim_gym.replay import FleetDescription, ScalingDecision, ScalingSnapshot


class LearnedPlanner:
    """Decides at every tick what the policy would have done in its environment.

    Snapshots become observations by the environment's own observation object, actions become
    targets by its own action object; what the environment would refuse leaves the fleet as it is.

    Example:
        planner = LearnedPlanner(load_policy("runs/chat-ppo/seed-1"))
        replay = Replay.run(spec, planner, requests, limits=planner.fleet.limits)

    Attributes:
        fleet: The fleet of the training, with the limits that the policy scales within.
    """

    def __init__(self, policy: LearnedPolicy, horizon_s: float | None = None) -> None:
        """Wrap a policy.

        Args:
            policy: It must not act anywhere else meanwhile: a recurrent one remembers.
            horizon_s: Length of an episode, which the observed time is a share of; None takes the
                ``horizon_s`` of the training environment.

        Raises:
            TypeError: If the environment is not one of this package.
            ValueError: If the length is not known.
        """
        env = policy.make_env().unwrapped
        if not isinstance(env, ScalingEnv):
            raise TypeError(f"policy: trained in {env}, expected an environment of aisim_gym.envs")
        horizon_s = (
            policy.description.env.kwargs.get("horizon_s") if horizon_s is None else horizon_s
        )
        if horizon_s is None:
            raise ValueError(
                "horizon_s: got None, and the policy's environment was given none; expected the "
                "length of an episode in seconds"
            )
        self.fleet: FleetDescription = env.fleet_description
        self._policy = policy
        self._observation = env._observation
        self._space = env.observation_space
        self._action = env.action_object
        self._num_pools = len(env.worker_options)
        self._horizon_ms = float(horizon_s) * 1000.0
        self._tick_ms = env.fleet_description.limits.tick_s * 1000.0

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        """Prepare for a run; ``seed`` is not used, the policy draws nothing.

        Raises:
            ValueError: If topology or limits are not those of the training.
        """
        for name in ("mode", "limits"):
            got, wanted = getattr(fleet, name), getattr(self.fleet, name)
            if got != wanted:
                raise ValueError(f"fleet.{name}: got {got}, expected {wanted} as in the training")
        self._policy.reset()

    def initial_tick_ms(self) -> float:
        """Return one tick length, as in the environments."""
        return self._tick_ms

    def on_tick(self, snapshot: ScalingSnapshot) -> ScalingDecision:
        """Return the targets that the policy's action means."""
        time_frac = snapshot.now_ms / self._horizon_ms
        observation, _ = fit_to_space(self._observation.observe(snapshot, time_frac), self._space)
        targets = self._action.decode(self._act(observation, snapshot), snapshot)
        max_gpus = self.fleet.limits.max_gpus
        if max_gpus is not None and fleet_gpus(targets, self.fleet) > max_gpus:
            targets = current_targets(snapshot, self._num_pools)
        return ScalingDecision(targets.prefill, targets.decode, snapshot.now_ms + self._tick_ms)

    def _act(self, observation: NDArray[Any], snapshot: ScalingSnapshot) -> NDArray[np.int64]:
        masks = self._action.mask(snapshot) if self._policy.is_maskable else None
        return self._policy.act(observation, masks)

"""Gymnasium environments on the replay.

Importing this package registers them; ``gymnasium.make`` can also do that by itself:
``gymnasium.make("aisim_gym.envs:aisim_gym/Disaggregated-v0")``.

==============================  ========================================================
id                              class
==============================  ========================================================
``aisim_gym/Aggregated-v0``     :class:`AggregatedEnv`: one pool
``aisim_gym/Disaggregated-v0``  :class:`DisaggregatedEnv`: prefill and decode pools
==============================  ========================================================

The ids are provisional; see the version history of the classes.
"""

if __name__ == "envs":
    raise ImportError("import aisim_gym.envs instead")

import gymnasium

from aisim_gym.envs.action import Action, Targets
from aisim_gym.envs.aggregated import AggregatedEnv
from aisim_gym.envs.disaggregated import DisaggregatedEnv
from aisim_gym.envs.observation import Observation
from aisim_gym.envs.reward import Reward
from aisim_gym.envs.scaling_env import ScalingEnv
from aisim_gym.envs.step_outcome import StepOutcome

__all__ = [
    "ENTRY_POINTS",
    "Action",
    "AggregatedEnv",
    "DisaggregatedEnv",
    "Observation",
    "Reward",
    "ScalingEnv",
    "StepOutcome",
    "Targets",
]

ENTRY_POINTS = {
    "aisim_gym/Aggregated-v0": "aisim_gym.envs.aggregated:AggregatedEnv",
    "aisim_gym/Disaggregated-v0": "aisim_gym.envs.disaggregated:DisaggregatedEnv",
}
"""Id of each environment, and where its class is."""

VECTOR_ENTRY_POINTS = {
    "aisim_gym/Aggregated-v0": "aisim_gym.envs.vector_env:AggregatedVectorEnv",
    "aisim_gym/Disaggregated-v0": "aisim_gym.envs.vector_env:DisaggregatedVectorEnv",
}
"""Id of each environment, and where its vector form is."""

for _id, _entry_point in ENTRY_POINTS.items():
    if _id not in gymnasium.registry:
        gymnasium.register(_id, _entry_point, vector_entry_point=VECTOR_ENTRY_POINTS[_id])

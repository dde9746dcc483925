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

from collections.abc import Mapping
from typing import Any

import gymnasium

from aisim_gym.envs.action import Action, Targets
from aisim_gym.envs.aggregated import AggregatedEnv
from aisim_gym.envs.disaggregated import DisaggregatedEnv
from aisim_gym.envs.observation import Observation
from aisim_gym.envs.reward import Reward
from aisim_gym.envs.scaling_env import ScalingEnv
from aisim_gym.envs.scenarios import SCENARIOS, Scenario
from aisim_gym.envs.step_outcome import StepOutcome

__all__ = [
    "ENTRY_POINTS",
    "SCENARIOS",
    "Action",
    "AggregatedEnv",
    "DisaggregatedEnv",
    "Observation",
    "Reward",
    "ScalingEnv",
    "Scenario",
    "StepOutcome",
    "Targets",
]

ENTRY_POINTS = {
    "aisim_gym/Aggregated-v0": "aisim_gym.envs.aggregated:AggregatedEnv",
    "aisim_gym/Disaggregated-v0": "aisim_gym.envs.disaggregated:DisaggregatedEnv",
}
"""Id of each general environment, and where its class is."""


def _register(env_id: str, kind: str, arguments: Mapping[str, Any]) -> None:
    if env_id not in gymnasium.registry:
        name = {"agg": "aggregated", "disagg": "disaggregated"}[kind]
        gymnasium.register(
            env_id,
            f"aisim_gym.envs.{name}:{name.capitalize()}Env",
            vector_entry_point=f"aisim_gym.envs.vector_env:{name.capitalize()}VectorEnv",
            kwargs=dict(arguments),
        )


_register("aisim_gym/Aggregated-v0", "agg", {})
_register("aisim_gym/Disaggregated-v0", "disagg", {})
for _scenario in SCENARIOS:
    _register(_scenario.id, _scenario.kind, {"split": "train", **_scenario.arguments})

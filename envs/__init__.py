"""Gymnasium environments on the replay.

Importing this package registers them; ``gymnasium.make`` can also import it:
``gymnasium.make("aisim_gym.envs:aisim_gym/Disaggregated-v0")``.

==============================  ========================================================
id                              class
==============================  ========================================================
``aisim_gym/Aggregated-v0``     :class:`AggregatedEnv`: one pool
``aisim_gym/Disaggregated-v0``  :class:`DisaggregatedEnv`: prefill and decode pools
==============================  ========================================================

The scenarios of :data:`SCENARIOS` use the same classes with preset arguments.
"""

if __name__ == "envs":
    raise ImportError("import aisim_gym.envs instead")

from collections.abc import Mapping
from typing import Any

import gymnasium

from aisim_gym.envs.action import Action
from aisim_gym.envs.aggregated import AggregatedEnv
from aisim_gym.envs.disaggregated import DisaggregatedEnv
from aisim_gym.envs.observation import Observation
from aisim_gym.envs.reward import Reward
from aisim_gym.envs.scaling_env import ScalingEnv
from aisim_gym.envs.scenarios import SCENARIOS, Scenario
from aisim_gym.envs.step_outcome import StepOutcome
from aisim_gym.envs.targets import Targets
from aisim_gym.envs.tick_view import TickView

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
    "TickView",
]

_NAMES = {"agg": "Aggregated", "disagg": "Disaggregated"}

ENTRY_POINTS = {
    f"aisim_gym/{name}-v0": f"aisim_gym.envs.{name.lower()}:{name}Env" for name in _NAMES.values()
}
"""Entry point of each general environment by id."""


def _register(env_id: str, name: str, arguments: Mapping[str, Any]) -> None:
    if env_id not in gymnasium.registry:
        gymnasium.register(
            env_id,
            ENTRY_POINTS[f"aisim_gym/{name}-v0"],
            vector_entry_point=f"aisim_gym.envs.vector_env:{name}VectorEnv",
            kwargs=dict(arguments),
        )


for _name in _NAMES.values():
    _register(f"aisim_gym/{_name}-v0", _name, {})
for _scenario in SCENARIOS:
    _register(_scenario.id, _NAMES[_scenario.kind], {"split": "train", **_scenario.arguments})

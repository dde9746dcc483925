"""Nothing depends on what the caller makes of floating-point errors (F14).

In a process of its own: tables that others have filled would hide what filling them needs.
"""

import subprocess
import sys

import pytest

TRAFFIC_IN_BURSTS = """
import numpy as np
np.seterr(all="raise")
from aisim_gym.spec import WorkloadSpec
from aisim_gym.spec.traffic_presets import PRESETS
from aisim_gym.workload import load_workload
bursts = {"kind": "renewal", "rate_rps": 5.0, "cv": 100.0}
changes = [{"preset": name, "duration_s": 1800.0} for name in PRESETS]
changes += [{"preset": "steady", "arrivals": {**bursts, "family": f}} for f in ("gamma", "weibull")]
for change in changes:
    generator = {"kind": "traffic", "seed": 3, **change}
    print(len(load_workload(WorkloadSpec.from_data({"generator": generator}))))
"""

EVERY_ENVIRONMENT = """
import numpy as np
np.seterr(all="raise")
import gymnasium
from aisim_gym.envs import ENTRY_POINTS, SCENARIOS
for env_id in [*ENTRY_POINTS, *(scenario.id for scenario in SCENARIOS)]:
    env = gymnasium.make(env_id)
    env.reset(seed=1)
    env.action_space.seed(1)
    for _ in range(10):
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            break
    print(env_id, reward)
"""


def lines_of(script: str) -> list[str]:
    """Return what a script prints in a fresh process that must not fail."""
    command = [sys.executable, "-W", "ignore::UserWarning", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.slow
def test_environments_run_when_every_floating_point_error_is_raised() -> None:
    assert len(lines_of(EVERY_ENVIRONMENT)) == 15


def test_traffic_is_generated_when_every_floating_point_error_is_raised() -> None:
    assert len(lines_of(TRAFFIC_IN_BURSTS)) > 10

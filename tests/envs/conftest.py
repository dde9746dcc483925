"""Environments whose episodes take a fraction of a second."""

from collections.abc import Callable
from typing import Any

import gymnasium
import pytest

from aisim_gym.envs import ENTRY_POINTS, ScalingEnv

SHORT: dict[str, Any] = {
    "duration_s": 60.0,
    "base_rate_rps": 2.0,
    "peak_rate_rps": 8.0,
    "period_s": 60.0,
    "spike_at_s": None,
    "mean_input_tokens": 300.0,
    "mean_output_tokens": 40.0,
}

EnvBuilder = Callable[..., ScalingEnv]


@pytest.fixture(params=ENTRY_POINTS)
def env_id(request: pytest.FixtureRequest) -> str:
    """Run a test for every registered id."""
    return str(request.param)


@pytest.fixture
def make_env() -> EnvBuilder:
    """Return a builder of unwrapped environments with short episodes."""

    def build(env_id: str, **arguments: Any) -> ScalingEnv:
        if not {"trace", "requests", "workload"} & arguments.keys():
            arguments["workload"] = SHORT
        env = gymnasium.make(env_id, **{"tick_s": 10.0, **arguments}).unwrapped
        assert isinstance(env, ScalingEnv)
        return env

    return build

"""What must work with the oldest Numba that is allowed, and with the newest: ``make numba-range``.

A handful of recorded runs of every backend, and an episode.
"""

import gymnasium
import pytest
from support.goldens import golden_path

from aisim_gym import numba_adapter
from aisim_gym.conformance import Status, check_golden
from aisim_gym.envs import ENTRY_POINTS

NAMES = (
    "agg-sglang-kvpressure-01",
    "agg-sglang-options-01",
    "agg-trtllm-kvpressure-01",
    "agg-trtllm-maxlen-01",
    "agg-vllm-kvpressure-03",
    "agg-vllm-micro-01",
    "disagg-sglang-prefix-01",
    "disagg-trtllm-reject-01",
    "disagg-vllm-dp-02",
    "disagg-vllm-scale-zero-02",
)


def test_nothing_is_missing() -> None:
    assert numba_adapter.IS_COMPLETE, numba_adapter.MISSING


@pytest.mark.parametrize("name", NAMES)
def test_recorded_run_is_reproduced(name: str) -> None:
    outcome = check_golden(golden_path(name))
    assert outcome.status is Status.PASSED, outcome


def test_an_episode_runs_to_its_end() -> None:
    env = gymnasium.make(next(iter(ENTRY_POINTS)))
    env.reset(seed=1)
    env.action_space.seed(1)
    is_over = False
    while not is_over:
        _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert float(reward) == reward
        is_over = terminated or truncated
    env.close()

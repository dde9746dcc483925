"""What a planner is told: limits that are checked, and the capacity of a worker."""

import math
from typing import Any

import numpy as np
import pytest

from aisim_gym.replay import ScalingLimits, describe_fleet
from aisim_gym.spec import ReplaySpec


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"tick_s": "3"}, "tick_s: got '3', expected a number >= 0.001 and finite"),
        ({"tick_s": None}, "tick_s: got None, expected a number >= 0.001 and finite"),
        ({"tick_s": True}, "tick_s: got True, expected a number >= 0.001 and finite"),
        ({"min_workers": 1.0}, "min_workers: got 1.0, expected an integer >= 0"),
        ({"min_workers": False}, "min_workers: got False, expected an integer >= 0"),
        (
            {"max_workers": 2.5},
            r"max_workers: got 2.5, expected an integer >= min_workers \(1\), or None",
        ),
        ({"max_gpus": "8"}, "max_gpus: got '8', expected an integer >= 1, or None"),
    ],
)
def test_limit_of_a_wrong_type_is_refused(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}$"):
        ScalingLimits(**limits)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"tick_s": 0}, "tick_s: got 0, expected >= 0.001 and finite"),
        ({"tick_s": 0.00099}, "tick_s: got 0.00099, expected >= 0.001 and finite"),
        ({"tick_s": math.inf}, "tick_s: got inf, expected >= 0.001 and finite"),
        ({"tick_s": math.nan}, "tick_s: got nan, expected >= 0.001 and finite"),
        ({"tick_s": 10**400}, "tick_s: got 10+, expected >= 0.001 and finite"),
        ({"min_workers": -1}, "min_workers: got -1, expected >= 0"),
        (
            {"min_workers": 3, "max_workers": 2},
            r"max_workers: got 2, expected >= min_workers \(3\), or None",
        ),
        ({"max_gpus": 0}, "max_gpus: got 0, expected >= 1, or None"),
    ],
)
def test_limit_out_of_range_is_refused(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        ScalingLimits(**limits)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"max_workers": {"prefil": 1, "decode": 2}},
            "max_workers: got the key 'prefil', expected prefill and decode; "
            r"did you mean `prefill`\?",
        ),
        (
            {"min_workers": {"prefill": 1}},
            "min_workers: got no 'decode', expected both prefill and decode",
        ),
        (
            {"min_workers": {"prefill": 1, "decode": -1}},
            r"min_workers\.decode: got -1, expected >= 0",
        ),
        (
            {"min_workers": {"prefill": 1, "decode": 5}, "max_workers": 4},
            r"max_workers: got 4, expected >= min_workers \(5\), or None",
        ),
    ],
)
def test_wrong_limit_of_a_pool_is_named(limits: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        ScalingLimits(**limits)


def test_pools_may_have_limits_of_their_own() -> None:
    limits = ScalingLimits(1.0, {"prefill": 0, "decode": 2}, {"prefill": 4, "decode": None})
    assert limits.of_pool("prefill") == (0, 4)
    assert limits.of_pool("decode") == (2, None)
    same = ScalingLimits(1.0, 1, 8)
    assert same.of_pool("prefill") == same.of_pool("decode") == (1, 8)


def test_numbers_of_numpy_are_limits() -> None:
    values: dict[str, Any] = {
        "tick_s": np.float32(5.0),
        "min_workers": np.int64(1),
        "max_workers": np.int32(4),
        "max_gpus": np.uint8(9),
    }
    assert ScalingLimits(**values) == ScalingLimits(5.0, 1, 4, 9)


def test_worker_is_described_with_its_ranks() -> None:
    engine = {"num_gpu_blocks": 100, "block_size": 16}
    launch = {"engine": engine, "dp_size": 2, "tensor_parallel_size": 4}
    role = describe_fleet(ReplaySpec.from_data({"fleet": {"kind": "agg", "engine": launch}})).decode
    assert (role.dp_size, role.gpus_per_worker, role.max_kv_tokens) == (2, 8, 3200)

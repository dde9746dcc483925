"""The fleet of an environment: what its GPUs cost, and files it needs, known when it is built."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aisim_gym.envs import ScalingEnv
from aisim_gym.errors import SpecError
from aisim_gym.profiles import load_profile, profile_fleet
from aisim_gym.profiles.engine_profile import FORMAT

EnvBuilder = Callable[..., ScalingEnv]

AGG, DISAGG = "aisim_gym/Aggregated-v0", "aisim_gym/Disaggregated-v0"
NAME, OTHER = "h100-llama31-8b", "l40s-llama31-8b"

PROFILE_FILE: dict[str, Any] = {
    "prefill_isl": [100.0, 200.0],
    "prefill_ttft_ms": [50.0, 80.0],
    "decode_active_kv_tokens": [0.0, 1000.0],
    "decode_context_length": [0.0, 1000.0],
    "decode_itl": [[10.0, 11.0], [15.0, 16.0]],
}


def usd_per_gpu_hour(env: ScalingEnv) -> float:
    """Return what a GPU-hour of the first step costs."""
    env.reset(seed=1)
    _, _, _, _, info = env.step(env.action_space.sample())
    return float(info["gpu_usd"] / info["gpu_hours"])


# Prices


@pytest.mark.parametrize(
    ("env_id", "fleet"),
    [
        (AGG, profile_fleet(NAME)),
        (DISAGG, profile_fleet(NAME, "disagg")),
        (AGG, {"kind": "agg", "engine": {"engine": NAME}}),
        (AGG, {"kind": "agg", "engine": {"engine": {"profile": NAME, "max_num_seqs": 8}}}),
    ],
)
def test_fleet_of_a_profile_has_its_price(
    env_id: str, fleet: dict[str, Any], make_env: EnvBuilder
) -> None:
    price = load_profile(NAME).usd_per_gpu_hour
    assert price != 1.0
    assert usd_per_gpu_hour(make_env(env_id, fleet=fleet)) == pytest.approx(price)
    assert usd_per_gpu_hour(make_env(env_id, engine=NAME)) == pytest.approx(price)


def test_every_pool_of_a_fleet_has_the_price_of_its_profile(make_env: EnvBuilder) -> None:
    fleet = profile_fleet(NAME, "disagg", prefill_workers=1, decode_workers=2)
    fleet["decode"] = {"engine": OTHER}
    # The pools cannot change, so 1 of 3 GPU-hours is a prefill worker's.
    counts = {"prefill": 1, "decode": 2}
    env = make_env(DISAGG, fleet=fleet, min_workers=counts, max_workers=counts)
    first, second = (load_profile(name).usd_per_gpu_hour for name in (NAME, OTHER))
    assert usd_per_gpu_hour(env) == pytest.approx((first + 2.0 * second) / 3.0)


def test_given_price_counts_more_than_that_of_a_profile(make_env: EnvBuilder) -> None:
    fleet = profile_fleet(NAME)
    assert usd_per_gpu_hour(make_env(AGG, fleet=fleet, gpu_hour_usd=2.0)) == pytest.approx(2.0)


def test_price_of_a_profile_of_ones_own_is_found(tmp_path: Path, make_env: EnvBuilder) -> None:
    own = {"format": FORMAT, **asdict(load_profile(NAME)), "usd_per_gpu_hour": 7.0}
    path = tmp_path / "own.json"
    path.write_text(json.dumps(own), "utf-8")
    assert usd_per_gpu_hour(make_env(AGG, fleet=profile_fleet(path))) == pytest.approx(7.0)


def test_fleet_without_a_profile_costs_one_usd(make_env: EnvBuilder) -> None:
    fleet = {"kind": "agg", "engine": {"engine": {"num_gpu_blocks": 2048}}}
    assert usd_per_gpu_hour(make_env(AGG, fleet=fleet)) == pytest.approx(1.0)


# Pass times in a file


def external(path: Path) -> dict[str, Any]:
    timing = {"type": "external", "provider": "dynamo_profile", "config": {"path": str(path)}}
    return {"timing_model": timing}


def test_missing_profile_file_is_refused_when_the_environment_is_built(
    env_id: str, tmp_path: Path, make_env: EnvBuilder
) -> None:
    with pytest.raises(
        SpecError, match=r"^fleet\.\w+\.engine\.timing_model: Failed to open NPZ file: .*no\.npz"
    ):
        make_env(env_id, engine=external(tmp_path / "no.npz"))


def test_bad_profile_file_of_one_pool_is_named(tmp_path: Path, make_env: EnvBuilder) -> None:
    np.savez(tmp_path / "bad.npz", **{**PROFILE_FILE, "prefill_isl": [200.0, 100.0]})
    with pytest.raises(SpecError, match=r"^fleet\.decode\.engine\.timing_model: .* monotonic"):
        make_env(DISAGG, engine={"prefill": {}, "decode": external(tmp_path / "bad.npz")})


def test_profile_file_is_read_once(env_id: str, tmp_path: Path, make_env: EnvBuilder) -> None:
    path = tmp_path / "profile.npz"
    np.savez(path, **PROFILE_FILE)
    env = make_env(env_id, engine=external(path))
    path.unlink()
    workers = {name: 1 for name in env.workers_at_start}
    for options in (None, workers):
        env.reset(seed=1, options=options)
    assert env.replay.now_ms > 0.0

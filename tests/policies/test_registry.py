"""Planners by name, and what all of them must be able to do."""

from collections.abc import Callable
from typing import Any

import pytest

from aisim_gym.errors import SpecError
from aisim_gym.policies import POLICIES, HpaPolicy, make_policy
from aisim_gym.replay import FleetDescription, PoolSnapshot, ScalingDecision, ScalingSnapshot

SAMPLES: dict[str, dict[str, Any]] = {
    "static agg": {"replicas": 2},
    "static disagg": {"prefill": 1, "decode": 2},
    "static-from-ratio": {"total_gpus": 6},
    "schedule": {"entries": [(0.0, 1, 1), (60.0, 1, 2)]},
    "hpa": {},
}
"""Parameters by name, or by name and topology."""

CASES = [(name, mode) for name in POLICIES for mode in ("agg", "disagg")]


def test_policy_by_name() -> None:
    policy = make_policy("hpa", tolerance_up=0.2)
    assert isinstance(policy, HpaPolicy)
    assert policy.parameters.tolerance_up == 0.2


def test_unknown_name_is_answered_with_a_guess_and_the_list() -> None:
    with pytest.raises(ValueError, match=r"unknown planner 'hap'; did you mean `hpa`\? .*static"):
        make_policy("hap")


def test_unknown_parameter_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown field `tolerence_up`"):
        make_policy("hpa", tolerence_up=0.2)


def test_wrong_item_is_the_only_complaint_about_its_list() -> None:
    with pytest.raises(SpecError) as raised:
        make_policy("hpa", metrics=["conc"])
    assert str(raised.value) == 'metrics.0: invalid type: string "conc", expected a table'


def test_empty_list_is_refused_with_the_least_length() -> None:
    with pytest.raises(SpecError, match=r"^metrics: got 0 items, expected at least 1$"):
        make_policy("hpa", metrics=[])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("static", "expected either prefill and decode, or replicas for an aggregated fleet"),
        ("static-from-ratio", r"missing field `total_gpus` \(GPUs of the whole fleet, > 0\)"),
        ("schedule", r"missing field `entries` \(\(seconds, prefill workers, decode workers\), "),
    ],
)
def test_missing_parameter_is_named_with_what_is_allowed(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=f"^{message}"):
        make_policy(name)


def test_misspelt_parameter_of_a_schedule_is_guessed() -> None:
    with pytest.raises(SpecError, match="unknown field `entry`, expected `entries`; did you mean"):
        make_policy("schedule", entry=[(0.0, 1, 1)])


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_same_snapshots_give_the_same_decisions_and_silence_never_raises(
    name: str,
    mode: str,
    make_fleet: Callable[..., FleetDescription],
    make_snapshot: Callable[..., ScalingSnapshot],
    make_pool: Callable[..., PoolSnapshot],
) -> None:
    pools = [make_pool(conc) for conc in ([], [None], [80, 90], [None, 90], [0])]
    snapshots = [
        make_snapshot(15.0 * (i + 1), pool, prefill=pool if mode == "disagg" else None)
        for i, pool in enumerate(pools)
    ]
    parameters = SAMPLES.get(name, SAMPLES.get(f"{name} {mode}", {}))
    policy = make_policy(name, **parameters)
    runs: list[list[Any]] = []
    for _ in range(2):
        policy.reset(make_fleet(mode), seed=3)
        runs.append([policy.initial_tick_ms()])
        runs[-1] += [ScalingDecision.of(policy.on_tick(snapshot)) for snapshot in snapshots]
    assert runs[0] == runs[1]
    fresh = make_policy(name, **parameters)
    fresh.reset(make_fleet(mode), seed=3)
    assert [ScalingDecision.of(fresh.on_tick(snapshot)) for snapshot in snapshots] == runs[0][1:]

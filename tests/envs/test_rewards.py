"""The named rewards by hand, their costs, and what their sums over an episode mean."""

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from support.views import view_of

from aisim_gym.envs import ScalingEnv, StepOutcome, TickView
from aisim_gym.envs.component import make_component
from aisim_gym.envs.reward import (
    REWARDS,
    ConstrainedReward,
    CostSloReward,
    FirmReward,
    GoodputReward,
    LagrangianReward,
    ShapedReward,
    reward_info,
)
from aisim_gym.envs.tick_view import Load
from aisim_gym.replay import FleetDescription, RoleDescription, ScalingLimits

EnvBuilder = Callable[..., ScalingEnv]

AGG = "aisim_gym/Aggregated-v0"

FLEET = FleetDescription(
    "agg",
    RoleDescription(30.0, 1, 1, 8192, 256, 100_000, None, 16),
    limits=ScalingLimits(max_workers=8),
    ttft_slo_ms=500.0,
    itl_slo_ms=30.0,
)

STEP = StepOutcome(
    duration_s=30.0,
    gpu_hours=0.05,
    gpu_usd=0.1,
    arrived=90,
    completed=80,
    rejected=2,
    good=70,
    violations=12.5,
    overdue_s=3.0,
    churn=2,
    in_flight=28,
)
VIEW = view_of(STEP, load=Load(ttft_ms=1000.0, itl_ms=20.0, kv_frac=0.4, batch_frac=0.2))


def play(env: ScalingEnv) -> list[tuple[float, dict[str, Any]]]:
    """Return rewards and infos of an episode of random actions."""
    env.reset(seed=1)
    env.action_space.seed(1)
    steps, ended = [], False
    while not ended:
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        steps.append((reward, info))
        ended = terminated or truncated
    return steps


def test_default_reward_by_hand() -> None:
    terms = CostSloReward(FLEET, overdue_weight=0.1)(VIEW)
    expected = {"gpus": -0.1, "violations": -0.125, "overdue": -0.3, "churn": -0.002}
    assert terms == pytest.approx(expected)


def test_goodput_by_hand() -> None:
    # Six GPUs: each good request counts a sixth.
    assert GoodputReward(FLEET, weight=1.0)(VIEW) == pytest.approx({"goodput": 70 / 6})
    assert GoodputReward(FLEET)(view_of()) == {"goodput": 0.0}


def test_constrained_reward_by_hand() -> None:
    reward = ConstrainedReward(FLEET)
    assert reward(VIEW) == pytest.approx({"gpus": -0.1, "churn": -0.002})
    assert reward_info(reward, VIEW) == {"cost_violations": 12.5, "cost": 12.5}


def test_lagrangian_by_hand() -> None:
    reward = LagrangianReward(FLEET, multiplier=2.0, allowed_frac=0.1)
    excess = 12.5 - 9.0
    expected = {"gpus": -0.1, "churn": -0.002, "constraint": -2.0 * excess}
    assert reward(VIEW) == pytest.approx(expected)
    info = {"cost_excess": excess, "cost": excess, "multiplier": 2.0}
    assert reward_info(reward, VIEW) == pytest.approx(info)


def test_multiplier_of_the_lagrangian_can_be_replaced() -> None:
    reward = dataclasses.replace(LagrangianReward(FLEET), multiplier=5.0)
    assert reward(VIEW)["constraint"] == pytest.approx(-5.0 * (12.5 - 4.5))


def test_learner_hands_over_a_reward_with_another_multiplier(make_env: EnvBuilder) -> None:
    env = make_env(AGG, reward="lagrangian")
    env.reset(seed=1)
    assert env.step(0)[-1]["multiplier"] == 0.01
    assert isinstance(env.reward_object, LagrangianReward)
    env.reward_object = dataclasses.replace(env.reward_object, multiplier=3.0)
    *_, info = env.step(0)
    assert info["multiplier"] == 3.0
    assert info["reward_constraint"] == -3.0 * info["cost_excess"]


@pytest.mark.parametrize(
    ("latencies_ms", "change", "kept"),
    [
        ((1000.0, 20.0), {}, 0.5),
        ((100.0, 20.0), {}, 1.0),
        ((100.0, 120.0), {}, 0.25),
        ((0.0, 0.0), {"completed": 0, "overdue_s": 0.0}, 1.0),
        ((0.0, 0.0), {"completed": 0}, 0.0),
    ],
)
def test_firm_by_hand(
    latencies_ms: tuple[float, float], change: dict[str, Any], kept: float
) -> None:
    view = view_of(STEP._replace(**change), load=Load(*latencies_ms, 0.4, 0.2))
    terms = FirmReward(FLEET, alpha=0.7)(view)
    assert terms == pytest.approx({"preserved": 0.7 * kept * 2, "utilisation": 0.3 * 0.6})


def test_shaping_by_hand() -> None:
    reward = ShapedReward(FLEET, "cmdp", gamma=0.9, weight=0.1)
    before = 28 - 90 + 80 + 2
    shaping = -0.1 * 0.9 * 28 + 0.1 * before
    expected = {"gpus": -0.1, "churn": -0.002, "shaping": shaping}
    assert reward(VIEW) == pytest.approx(expected)
    assert reward_info(reward, VIEW)["cost"] == 12.5  # that of the other reward
    assert reward_info(ShapedReward(FLEET), VIEW) == {}


@pytest.mark.parametrize("name", REWARDS)
def test_named_reward_adds_up_and_is_json(name: str, make_env: EnvBuilder) -> None:
    env = make_env(AGG, reward=name, gpu_hour_usd=2.5)
    keys = set()
    for reward, info in play(env):
        json.dumps(info, allow_nan=False)
        terms = [value for key, value in info.items() if key.startswith("reward_")]
        assert reward == math.fsum(terms)
        costs = [value for key, value in info.items() if key.startswith("cost_")]
        if "cost" in info:
            assert info["cost"] == math.fsum(costs)
        assert ("cost" in info) == (name in ("cmdp", "lagrangian"))
        keys.add(frozenset(info))
    assert len(keys) == 1
    assert env.spec is not None
    assert env.spec.to_json()


def test_price_of_gpus_is_paid_in_the_reward(make_env: EnvBuilder) -> None:
    for _, info in play(make_env(AGG, gpu_hour_usd=2.5)):
        assert info["reward_gpus"] == pytest.approx(-2.5 * info["gpu_hours"])


def test_sum_of_goodput_is_its_mean_over_time(make_env: EnvBuilder) -> None:
    steps = play(make_env(AGG, reward={"name": "goodput_per_gpu_hour", "weight": 1.0}))
    integral = sum(
        info["good"] / info["gpu_hours"] * info["duration_s"] / 3600.0 for _, info in steps
    )
    assert integral > 0.0
    assert sum(reward for reward, _ in steps) == pytest.approx(integral)


def test_excess_adds_up_to_what_attainment_misses(make_env: EnvBuilder) -> None:
    steps = play(make_env(AGG, reward={"name": "lagrangian", "allowed_frac": 0.2}))
    *_, (_, last) = steps
    missed = last["total_arrived"] - last["total_good"]  # all requests of this episode end
    excess = sum(info["cost"] for _, info in steps)
    assert last["total_completed"] + last["total_rejected"] == last["total_arrived"]
    assert excess == pytest.approx(missed - 0.2 * last["total_arrived"])


def test_shaping_without_discount_adds_up_to_nothing(make_env: EnvBuilder) -> None:
    steps = play(make_env(AGG, reward={"name": "shaped", "gamma": 1.0, "weight": 1.0}))
    shaping = [info["reward_shaping"] for _, info in steps]
    assert min(shaping) < 0.0 < max(shaping)
    assert sum(shaping) == pytest.approx(0.0)  # from an empty fleet to an empty fleet


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (-0.5, TypeError, r"reward: got -0.5, expected a mapping from the names of its terms"),
        (None, TypeError, "reward: got None, expected a mapping"),
        ({"gpus": -1.0, "good": math.nan}, ValueError, "reward.good: got nan, expected a finite"),
        ({"gpus": -math.inf}, ValueError, "reward.gpus: got -inf, expected a finite number"),
        ({"gpus": "much"}, TypeError, "reward.gpus: got 'much', expected a finite number"),
        ({"gpus": None}, TypeError, "reward.gpus: got None, expected a finite number"),
    ],
)
@pytest.mark.parametrize(
    "wrap", [lambda reward: reward, lambda reward: ShapedReward(FLEET, reward)]
)
def test_reward_that_returns_no_finite_terms_is_told(
    returned: Any,
    error: type[Exception],
    message: str,
    wrap: Callable[[Any], Any],
    make_env: EnvBuilder,
) -> None:
    env = make_env(AGG, reward=wrap(lambda view: returned))
    env.reset(seed=1)
    with pytest.raises(error, match=f"^{message}"):
        env.step(0)


def test_cost_that_is_not_finite_is_told() -> None:
    class Endless(ConstrainedReward):
        def costs(self, view: TickView) -> dict[str, float]:
            return {"violations": math.inf}

    with pytest.raises(ValueError, match=r"^cost.violations: got inf, expected a finite number$"):
        reward_info(Endless(FLEET), VIEW)


@pytest.mark.parametrize(
    ("choice", "error", "message"),
    [
        ({"name": "cmdp", "price": 1}, TypeError, r"reward 'cmdp': unknown parameter 'price'"),
        (
            {"name": "cost_slo", "churn_wieght": 1},
            TypeError,
            "unknown parameter 'churn_wieght'; did you mean `churn_weight`",
        ),
        (
            {"name": "firm", "alpha": 1.5},
            ValueError,
            "reward 'firm': alpha: got 1.5, exp",
        ),
        (
            {"name": "lagrangian", "allowed_frac": 2},
            ValueError,
            "allowed_frac: got 2, expected 0",
        ),
        (
            {"name": "lagrangian", "multiplier": -1},
            ValueError,
            "multiplier: got -1, expected a f",
        ),
        ({"name": "shaped", "gamma": 1.01}, ValueError, "gamma: got 1.01, expected 0..1"),
        ({"name": "shaped", "of": "cmpd"}, ValueError, "unknown of 'cmpd'; did you mean `cmdp`"),
        ("costs_slo", ValueError, "unknown reward 'costs_slo'; did you mean `cost_slo`"),
        ({"name": ["cmdp"]}, ValueError, r"unknown reward \['cmdp'\]"),
    ],
)
def test_wrong_rewards_are_refused(choice: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_component("reward", choice, REWARDS, FLEET, methods=("__call__",))

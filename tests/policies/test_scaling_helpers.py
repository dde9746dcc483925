"""Rounding, stabilisation windows, rate rules and budgets (policies.md §0.4, §2.9, §3.4, §3.5)."""

import pytest

from aisim_gym.policies.budget import FleetBudget
from aisim_gym.policies.rate_rules import ChangeLog, RateRule, RateRules, limit_change
from aisim_gym.policies.rounding import ceil_tol, round_half_up
from aisim_gym.policies.stabilizer import Stabilizer
from aisim_gym.replay import ScalingLimits

UP = RateRules(
    rules=(
        RateRule(kind="Percent", value=100.0, period_s=15.0),
        RateRule(kind="Pods", value=4.0, period_s=15.0),
    )
)
DOWN = RateRules(rules=(RateRule(kind="Percent", value=50.0, period_s=60.0),))


def test_ceiling_ignores_float_noise() -> None:
    assert [ceil_tol(x) for x in (3.0000000001, 3.001, 2.9, -0.0)] == [3, 4, 3, 0]


def test_one_half_rounds_up_and_the_number_before_it_down() -> None:
    assert [round_half_up(x) for x in (0.5, 1.5, 2.49, 0.49999999999999994)] == [1, 2, 2, 0]


def test_fall_is_followed_after_the_window_only() -> None:
    stabilizer = Stabilizer(up_s=0.0, down_s=300.0)
    stabilizer.record(0.0, 4)
    seen = {t: stabilizer.stabilize(float(t), 4, 1) for t in (15, 150, 300, 315)}
    assert seen == {15: 4, 150: 4, 300: 4, 315: 1}


def test_fall_goes_to_the_highest_recent_recommendation() -> None:
    stabilizer = Stabilizer(up_s=0.0, down_s=30.0)
    targets = [stabilizer.stabilize(15.0 * i, 9, n) for i, n in enumerate((5, 7, 3, 2, 2, 2))]
    assert targets == [5, 7, 7, 7, 3, 2]


def test_rise_is_followed_up_to_the_lowest_recent_recommendation() -> None:
    stabilizer = Stabilizer(up_s=30.0, down_s=0.0)
    targets = [stabilizer.stabilize(15.0 * i, 2, n) for i, n in enumerate((3, 6, 5, 7, 8))]
    assert targets == [3, 3, 3, 5, 5]


def test_rates_allow_the_largest_of_the_rules() -> None:
    log = ChangeLog(15.0)
    assert limit_change(99, 1, 0.0, UP, DOWN, log) == 5  # 1 + 4 pods beats 200 %
    assert limit_change(99, 6, 0.0, UP, DOWN, log) == 12  # 200 % beats 6 + 4 pods


def test_select_min_allows_the_smallest_and_disabled_nothing() -> None:
    log = ChangeLog(15.0)
    strict = UP.model_copy(update={"select": "Min"})
    frozen = UP.model_copy(update={"select": "Disabled"})
    assert limit_change(99, 1, 0.0, strict, DOWN, log) == 2
    assert limit_change(99, 1, 0.0, frozen, DOWN, log) == 1
    assert limit_change(0, 4, 0.0, UP, DOWN.model_copy(update={"select": "Disabled"}), log) == 4


def test_changes_of_the_period_count_against_the_rate() -> None:
    log = ChangeLog(60.0)
    log.record(100.0, +4)  # 4 -> 8 at 100 s
    assert limit_change(99, 8, 110.0, UP, DOWN, log) == 8  # the period started with 4: at most 8
    assert limit_change(99, 8, 115.0, UP, DOWN, log) == 16  # a new period
    log.record(120.0, -2)  # 8 -> 6
    # Within 60 s: +4 - 2, so the period started with 4, of which half may go: already below.
    assert limit_change(0, 6, 130.0, UP, DOWN, log) == 2
    assert limit_change(0, 6, 165.0, UP, DOWN, log) == 4  # started with 8


def test_percentage_of_workers_to_remove_is_rounded_down() -> None:
    log = ChangeLog(60.0)
    assert limit_change(0, 5, 0.0, UP, DOWN, log) == 2  # int(2.5)


@pytest.mark.parametrize(
    ("limits", "gpus", "wanted", "expected"),
    [
        (ScalingLimits(max_gpus=8), (1, 1), (2, 12), (1, 7)),
        (ScalingLimits(max_gpus=8), (1, 1), (3, 5), (3, 5)),
        (ScalingLimits(max_gpus=12), (4, 1), (3, 1), (2, 4)),
        (ScalingLimits(max_workers=4), (1, 1), (9, 0), (4, 1)),
        (ScalingLimits(max_workers=6, max_gpus=8), (1, 1), (1, 12), (1, 6)),
        (ScalingLimits(max_workers={"prefill": 2, "decode": 4}), (1, 1), (9, 9), (2, 4)),
        (ScalingLimits(1.0, {"prefill": 0, "decode": 2}, 9, 6), (2, 1), (3, 4), (1, 4)),
    ],
)
def test_pair_is_clamped_to_workers_and_gpus(
    limits: ScalingLimits, gpus: tuple[int, int], wanted: tuple[int, int], expected: tuple[int, int]
) -> None:
    budget = FleetBudget(limits, decode_gpus=gpus[1], prefill_gpus=gpus[0])
    assert budget.clamp_pair(*wanted) == expected


def test_single_pool_is_clamped_to_whole_workers() -> None:
    budget = FleetBudget(ScalingLimits(max_gpus=11), decode_gpus=4)
    assert [budget.clamp_single(n) for n in (0, 2, 3)] == [1, 2, 2]


def test_minimum_that_exceeds_the_gpus_is_refused() -> None:
    with pytest.raises(ValueError, match="max_gpus: got 4, expected at least 6 for min_workers 3"):
        FleetBudget(ScalingLimits(min_workers=3, max_gpus=4), decode_gpus=1, prefill_gpus=1)

"""Known answers of the HPA's arithmetic (policies.md §3.2, §3.3, §19)."""

import pytest

from aisim_gym.policies.replica_calculator import (
    Tolerance,
    combine_recommendations,
    recommend_from_total,
    recommend_from_workers,
)

TENTH = Tolerance(0.1, 0.1)


@pytest.mark.parametrize(
    ("values", "num_missing", "current", "expected"),
    [
        ([16.0] * 4, 0, 4, 7),  # ratio 1.6 -> ceil(6.4)
        ([10.9] * 4, 0, 4, 4),  # 1.09 is tolerated
        ([11.0] * 4, 0, 4, 4),  # so is 1.1, the bound itself
        ([9.0] * 4, 0, 4, 4),  # and 0.9
        ([8.9] * 4, 0, 4, 4),  # ratio 0.89 -> ceil(3.56)
        ([2.0] * 4, 0, 4, 1),
        ([30.0], 0, 1, 3),  # exactly 3.0 workers, not 4
        ([12.0] * 3, 1, 4, 4),  # 1.2 becomes 36/40 with an idle fourth: the direction flips
        ([20.0] * 3, 1, 4, 6),  # 60/40 = 1.5 -> ceil(1.5 * 4)
        ([14.5] * 3, 1, 4, 4),  # 43.5/40 = 1.0875 is tolerated
        ([5.0] * 2, 2, 4, 3),  # fewer wanted: missing ones count as on target, 30/40 -> 3
        ([9.5, 8.0], 2, 4, 4),  # 37.5/40 is tolerated
        ([10.0, 10.0], 3, 5, 5),  # exactly on target
        ([15.0], 5, 6, 6),  # 15/60: flips
    ],
)
def test_recommendation_from_workers(
    values: list[float], num_missing: int, current: int, expected: int
) -> None:
    assert recommend_from_workers(values, num_missing, current, 10.0, TENTH) == expected


def test_recommendation_never_turns_against_the_ratio() -> None:
    # Two of six workers are known; even with the others on target the mean is high, but
    # ceil(1.2 * 3) = 4 would remove workers.
    assert recommend_from_workers([40.0, 5.0], 1, 6, 10.0, TENTH) == 6


def test_tolerance_may_differ_per_direction() -> None:
    tolerance = Tolerance(up=0.5, down=0.0)
    assert recommend_from_workers([14.0] * 4, 0, 4, 10.0, tolerance) == 4
    assert recommend_from_workers([7.0] * 4, 0, 4, 10.0, tolerance) == 3


def test_no_value_or_no_target_means_hold() -> None:
    assert recommend_from_workers([], 2, 2, 10.0, TENTH) is None
    assert recommend_from_workers([1.0], 0, 1, 0.0, TENTH) is None
    assert recommend_from_total(5.0, 1, 0.0, TENTH) is None


@pytest.mark.parametrize(
    ("total", "current", "expected"),
    [(43.0, 4, 4), (45.0, 4, 5), (35.0, 4, 4), (20.0, 4, 2), (30.0, 0, 3)],
)
def test_recommendation_from_a_total(total: float, current: int, expected: int) -> None:
    assert recommend_from_total(total, current, 10.0, TENTH) == expected


@pytest.mark.parametrize(
    ("recommendations", "expected"),
    [([2, 5, 3], 5), ([None, 5], 5), ([None, 4], 4), ([None, 3], None), ([None], None), ([], None)],
)
def test_largest_of_several_metrics_counts_and_a_missing_one_blocks_scaling_down(
    recommendations: list[int | None], expected: int | None
) -> None:
    assert combine_recommendations(recommendations, current=4) == expected

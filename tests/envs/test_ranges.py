"""Ranges in place of values: draws, corners, refusals."""

from typing import Any

import numpy as np
import pytest

from aisim_gym.envs.ranges import corners, draw_values, has_ranges, range_places

TABLE: dict[str, Any] = {
    "rate": {"uniform": [1.0, 4.0]},
    "lengths": {"scale": {"log_uniform": [0.5, 2.0]}, "kind": "fixed"},
    "turns": {"integers": [2, 5]},
    "arrivals": {"choice": [{"kind": "a"}, {"kind": "b", "cv": {"uniform": [1.0, 2.0]}}]},
    "list": [1, {"integers": [7, 7]}],
}


def test_draws_stay_in_their_ranges_and_the_rest_stays_as_it_is() -> None:
    random = np.random.default_rng(1)
    draws = [draw_values(TABLE, random) for _ in range(500)]
    rates = [draw["rate"] for draw in draws]
    assert 1.0 <= min(rates) < 1.1
    assert 3.9 < max(rates) <= 4.0
    scales = [draw["lengths"]["scale"] for draw in draws]
    assert 0.5 <= min(scales) < 0.52
    assert 0.4 < np.mean(np.array(scales) < 1.0) < 0.6  # half of a log scale
    assert {draw["turns"] for draw in draws} == {2, 3, 4, 5}
    assert {draw["arrivals"]["kind"] for draw in draws} == {"a", "b"}
    assert all(draw["list"] == [1, 7] and draw["lengths"]["kind"] == "fixed" for draw in draws)
    assert not any(map(has_ranges, draws))
    assert has_ranges(TABLE)


def test_places_of_ranges_are_paths() -> None:
    places = ["w.rate", "w.lengths.scale", "w.turns", "w.arrivals", "w.list[1]"]
    assert list(range_places(TABLE, "w")) == places


def test_same_generator_state_draws_the_same() -> None:
    one, other = (draw_values(TABLE, np.random.default_rng(3)) for _ in range(2))
    assert one == other


def test_corners_are_all_combinations_of_ends_and_choices() -> None:
    found = list(corners(TABLE, "workload"))
    assert len(found) == 2 * 2 * 2 * (1 + 2) * 2
    assert {corner["rate"] for corner in found} == {1.0, 4.0}
    assert {str(corner["arrivals"]) for corner in found} == {
        "{'kind': 'a'}",
        "{'kind': 'b', 'cv': 1.0}",
        "{'kind': 'b', 'cv': 2.0}",
    }


def test_table_with_another_key_is_no_range() -> None:
    assert not has_ranges({"uniform": [1, 2], "seed": 3})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"uniform": [1.0]}, r"w.x.uniform: got 1 values, expected \[low, high\]"),
        ({"uniform": [2.0, 1.0]}, r"expected finite numbers with low <= high"),
        ({"uniform": [0.0, float("inf")]}, "expected finite numbers"),
        ({"log_uniform": [0.0, 1.0]}, "expected low > 0"),
        ({"choice": []}, "expected a list that is not empty"),
        ({"uniform": 3}, "got 3, expected a list"),
    ],
)
def test_bad_range_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(corners({"x": value}, "w"))


def test_bound_that_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match=r"w.x.integers\[1\]: got 2.5, expected an integer"):
        list(corners({"x": {"integers": [1, 2.5]}}, "w"))


def test_too_many_combinations_are_refused() -> None:
    table = {f"x{i}": {"uniform": [0.0, 1.0]} for i in range(11)}
    with pytest.raises(ValueError, match="2048 combinations of their ends, expected at most 1024"):
        list(corners(table, "workload"))

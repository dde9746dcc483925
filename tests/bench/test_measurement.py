"""Medians, ratios and targets of measurements; runs in turns."""

import pytest

from aisim_gym.bench.alternation import alternate
from aisim_gym.bench.measurement import Measurement, RatioKind, Target


@pytest.mark.parametrize(
    ("unit", "kind", "expected"),
    [
        ("ms", RatioKind.SPEED, 4.0),  # a quarter of the other's time
        ("steps/s", RatioKind.SPEED, 0.25),  # a quarter of the other's rate
        ("ms", RatioKind.COST, 0.25),
        ("us/request", RatioKind.COST, 0.25),
    ],
)
def test_ratio_is_of_the_medians(unit: str, kind: RatioKind, expected: float) -> None:
    found = Measurement("run", unit, (99.0, 2.0, 1.0), (8.0, 7.0, 99.0), "theirs", kind)
    assert found.ratio == expected


def test_measurement_without_another_side_has_no_ratio() -> None:
    assert Measurement("run", "ms", (1.0,)).ratio is None


@pytest.mark.parametrize(
    ("bound", "is_floor", "met"), [(2.0, True, True), (2.1, True, False), (2.0, False, True)]
)
def test_bound_itself_meets_a_target(bound: float, is_floor: bool, met: bool) -> None:
    of_value = Measurement("run", "s", (2.0,), target=Target(bound, is_floor))
    of_ratio = Measurement(
        "run", "s", (3.0,), (6.0,), "theirs", target=Target(bound, is_floor, of_ratio=True)
    )
    assert of_value.meets_target is of_ratio.meets_target is met


def test_target_of_a_ratio_needs_another_side() -> None:
    found = Measurement("run", "s", (2.0,), target=Target(2.0, True, of_ratio=True))
    with pytest.raises(ValueError, match="run: its target is of a ratio"):
        _ = found.meets_target


def test_json_has_every_repeat() -> None:
    target = Target(1.5, is_floor=True, of_ratio=True)
    found = Measurement("run", "ms", (1.0, 3.0, 2.0), (4.0,), "theirs", target=target)
    assert found.to_dict() == {
        "name": "run",
        "unit": "ms",
        "median": 2.0,
        "repeats": [1.0, 3.0, 2.0],
        "compared_with": "theirs",
        "compared_median": 4.0,
        "compared_repeats": [4.0],
        "ratio_kind": "speed",
        "ratio": 2.0,
        "target": {"bound": 1.5, "is_floor": True, "of_ratio": True, "is_met": True},
        "details": {},
    }


def test_runs_take_turns() -> None:
    order: list[str] = []

    def run(name: str) -> int:
        order.append(name)
        return len(order)

    results = alternate({"ours": lambda: run("ours"), "theirs": lambda: run("theirs")}, 3)
    assert order == ["ours", "theirs"] * 3
    assert results == {"ours": [1, 3, 5], "theirs": [2, 4, 6]}

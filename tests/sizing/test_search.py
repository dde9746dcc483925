"""The search for the smallest fleet, against looking at every fleet."""

import math
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aisim_gym.sizing.fleet_size import FleetSize
from aisim_gym.sizing.search import FleetBounds, FleetSearch

Suffices = Callable[[FleetSize], bool]


def all_fleets(bounds: FleetBounds) -> list[FleetSize]:
    counts = range(1, bounds.max_workers + 1)
    prefill = counts if bounds.has_two_pools else range(1)
    fleets = [FleetSize(p, d) for p in prefill for d in counts]
    return [fleet for fleet in fleets if bounds.gpus(fleet) <= bounds.gpu_limit]


def smallest_of_all(bounds: FleetBounds, suffices: Suffices) -> FleetSize | None:
    enough = [fleet for fleet in all_fleets(bounds) if suffices(fleet)]
    return min(enough, key=lambda fleet: (bounds.gpus(fleet), fleet.prefill), default=None)


class Measure:
    """Counts how often a fleet is measured."""

    def __init__(self, suffices: Suffices) -> None:
        self.suffices = suffices
        self.asked: list[FleetSize] = []

    def __call__(self, size: FleetSize) -> bool:
        self.asked.append(size)
        return self.suffices(size)


def search(bounds: FleetBounds, suffices: Suffices) -> tuple[FleetSize | None, Measure]:
    measure = Measure(suffices)
    found = FleetSearch(bounds, measure).run()
    assert len(measure.asked) == len(set(measure.asked)), "a fleet was measured twice"
    return found, measure


@pytest.mark.parametrize("needed", range(1, 66))
def test_one_pool_is_bisected_to_the_smallest_count(needed: int) -> None:
    bounds = FleetBounds(0, 2, 64)
    found, measure = search(bounds, lambda size: size.decode >= needed)
    assert found == (None if needed > 64 else FleetSize(0, needed))
    assert len(measure.asked) <= 2 * math.ceil(math.log2(64)) + 1
    if 1 < needed <= 64:
        assert FleetSize(0, needed - 1) in measure.asked


bounds_of_two_pools = st.builds(
    FleetBounds,
    prefill_gpus=st.integers(1, 4),
    decode_gpus=st.integers(1, 4),
    max_workers=st.integers(1, 9),
    max_gpus=st.none() | st.integers(8, 40),
)


@given(
    bounds=bounds_of_two_pools,
    corners=st.lists(st.builds(FleetSize, st.integers(1, 10), st.integers(1, 10)), max_size=4),
)
@example(bounds=FleetBounds(1, 1, 9), corners=[FleetSize(2, 7), FleetSize(5, 3)])
@example(bounds=FleetBounds(4, 1, 9, 20), corners=[FleetSize(1, 9)])
def test_two_pools_give_the_smallest_fleet_of_all(
    bounds: FleetBounds, corners: list[FleetSize]
) -> None:
    """Monotone: whatever has no fewer workers than a corner in either pool suffices."""

    def suffices(size: FleetSize) -> bool:
        return any(corner.is_within(size) for corner in corners)

    found, measure = search(bounds, suffices)
    assert found == smallest_of_all(bounds, suffices)
    if found is not None:
        assert set(found.neighbours) <= set(measure.asked)


@given(
    bounds=st.one_of(bounds_of_two_pools, st.just(FleetBounds(0, 1, 9))),
    enough=st.sets(st.builds(FleetSize, st.integers(0, 9), st.integers(1, 9)), max_size=40),
)
@example(bounds=FleetBounds(1, 1, 9), enough={FleetSize(4, 4), FleetSize(2, 6)})
def test_what_is_promised_holds_without_monotony(
    bounds: FleetBounds, enough: set[FleetSize]
) -> None:
    """The result suffices, its neighbours do not; all before it are behind a measured miss."""
    found, measure = search(bounds, lambda size: size in enough)
    misses = [size for size in measure.asked if size not in enough]
    if found is not None:
        assert found in enough & set(measure.asked)
        assert bounds.contain(found)
        assert set(found.neighbours) <= set(misses)
    for size in all_fleets(bounds):
        if found is None or bounds.order(size) < bounds.order(found):
            assert any(size.is_within(miss) for miss in misses)


def test_search_of_two_large_pools_measures_few_of_them() -> None:
    corner = FleetSize(3, 19)
    found, measure = search(FleetBounds(1, 1, 64), corner.is_within)
    assert found == corner
    assert len(measure.asked) <= 30  # of 4,096


def test_nothing_is_measured_that_needs_more_gpus_than_allowed() -> None:
    bounds = FleetBounds(2, 3, 64, 40)
    _, measure = search(bounds, FleetSize(2, 9).is_within)
    assert max(map(bounds.gpus, measure.asked)) <= 40
    _, measure = search(bounds, lambda _: False)
    assert max(map(bounds.gpus, measure.asked)) <= 40

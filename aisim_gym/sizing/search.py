"""Search the smallest sufficient fleet, given a function that tests a fleet.

Fleets are ordered by GPUs, then by prefill workers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from aisim_gym.sizing.fleet_size import FleetSize


@dataclass(frozen=True)
class FleetBounds:
    """Bounds of the search.

    Attributes:
        prefill_gpus: GPUs of a prefill worker; 0 for an aggregated fleet.
        decode_gpus: GPUs of a decode worker, or of a worker of an aggregated fleet.
        max_workers: Maximum workers of a pool.
        max_gpus: Maximum GPUs of the fleet; None = only ``max_workers`` applies.
    """

    prefill_gpus: int
    decode_gpus: int
    max_workers: int
    max_gpus: int | None = None

    @property
    def has_two_pools(self) -> bool:
        """Whether prefill workers form a pool of their own."""
        return self.prefill_gpus > 0

    @property
    def gpu_limit(self) -> int:
        """Maximum GPUs of a fleet."""
        most = self.max_workers * (self.prefill_gpus + self.decode_gpus)
        return most if self.max_gpus is None else min(most, self.max_gpus)

    def gpus(self, size: FleetSize) -> int:
        """Return the GPUs of a fleet."""
        return size.prefill * self.prefill_gpus + size.decode * self.decode_gpus

    def contain(self, size: FleetSize) -> bool:
        """Return whether a fleet is within the bounds."""
        return max(size) <= self.max_workers and self.gpus(size) <= self.gpu_limit

    def order(self, size: FleetSize) -> tuple[int, int]:
        """Return the sort key of a fleet."""
        return self.gpus(size), size.prefill

    def prefill_counts(self) -> range:
        """Return the possible numbers of prefill workers."""
        return range(1, self.max_workers + 1) if self.has_two_pools else range(1)

    def square(self, count: int) -> FleetSize:
        """Return the fleet with ``count`` workers in every pool."""
        return FleetSize(count if self.has_two_pools else 0, count)

    def most_decode(self, prefill: int, best: FleetSize | None) -> int:
        """Return the most decode workers with ``prefill`` that sort before ``best``, 0 for none.

        Args:
            prefill: Prefill workers.
            best: A sufficient fleet; None = only the bounds apply.
        """
        gpus = self.gpu_limit - prefill * self.prefill_gpus
        if best is not None:
            as_many = self.gpus(best) - prefill * self.prefill_gpus
            gpus = min(gpus, as_many if prefill < best.prefill else as_many - 1)
        return min(self.max_workers, max(0, gpus // self.decode_gpus))


@dataclass
class FleetSearch:
    """Finds the smallest sufficient fleet, measuring every fleet at most once.

    It assumes that a fleet is insufficient if a fleet with at least as many workers in both pools
    is. Measurements take precedence over this assumption.

    Attributes:
        bounds: Bounds of the search.
        measure: Returns whether a fleet suffices.
        known: Its results so far.
    """

    bounds: FleetBounds
    measure: Callable[[FleetSize], bool]
    known: dict[FleetSize, bool] = field(default_factory=dict)

    def run(self) -> FleetSize | None:
        """Return the smallest sufficient fleet, None if there is none.

        Every fleet within the bounds that sorts before the result is measured as insufficient, or
        has no more workers in either pool than such a fleet. The next smaller fleets of the result
        are always measured. Without a result, all fleets within the bounds are excluded in the same
        way.
        """
        best = self._first()
        if best is not None and self.bounds.has_two_pools:
            best = self._bound_pools(best)
        while (better := self._better(best)) is not None:
            best = better
        return best

    def _suffices(self, size: FleetSize) -> bool:
        """Return whether a fleet suffices, measuring it only if earlier results do not decide."""
        if size not in self.known:
            if any(
                size.is_within(missed) for missed, is_enough in self.known.items() if not is_enough
            ):
                return False
            self._ask(size)
        return self.known[size]

    def _ask(self, size: FleetSize) -> bool:
        """Return whether a fleet suffices, by measurement."""
        if size not in self.known:
            self.known[size] = self.measure(size)
        return self.known[size]

    def _first(self) -> FleetSize | None:
        """Return a sufficient fleet with equal pools, found by doubling."""
        per_pair = self.bounds.prefill_gpus + self.bounds.decode_gpus
        most = min(self.bounds.max_workers, self.bounds.gpu_limit // per_pair)
        count = 1
        while count <= most:
            if self._suffices(self.bounds.square(count)):
                return self.bounds.square(count)
            count = most if count < most < 2 * count else 2 * count
        return None

    def _bound_pools(self, best: FleetSize) -> FleetSize:
        """Find the fewest workers of each pool that suffice when the other pool is large.

        The result does not depend on it; it excludes most fleets from measurement.
        """

        def enough_prefill(count: int) -> bool:
            size = FleetSize(count, large)
            return not self.bounds.contain(size) or self._suffices(size)

        def enough_decode(count: int) -> bool:
            size = FleetSize(large, count)
            return not self.bounds.contain(size) or self._suffices(size)

        large = self.bounds.most_decode(1, best)
        if large >= best.decode:
            prefill = _smallest(enough_prefill, best.prefill)
            best = self._least_decode(prefill, best) or best
        large = max(
            (
                count
                for count in self.bounds.prefill_counts()
                if self.bounds.most_decode(count, best)
            ),
            default=0,
        )
        if large >= best.prefill:
            _smallest(enough_decode, best.decode)
        return best

    def _better(self, best: FleetSize | None) -> FleetSize | None:
        """Return a sufficient fleet that sorts before ``best``, None if there is none."""
        for size in self._before(best):
            if self._suffices(size):
                return self._least_decode(size.prefill, best)
        for size in best.neighbours if best is not None else ():
            if self._ask(size):
                return size
        return None

    def _before(self, best: FleetSize | None) -> Iterator[FleetSize]:
        """Yield the largest fleets that sort before ``best``, one per prefill count."""
        for prefill in self.bounds.prefill_counts():
            decode = self.bounds.most_decode(prefill, best)
            if decode:
                yield FleetSize(prefill, decode)

    def _least_decode(self, prefill: int, best: FleetSize | None) -> FleetSize | None:
        """Return a sufficient fleet before ``best`` with ``prefill`` and few decode workers."""
        enough = self.bounds.most_decode(prefill, best)
        if not enough or not self._suffices(FleetSize(prefill, enough)):
            return None
        return FleetSize(
            prefill, _smallest(lambda count: self._suffices(FleetSize(prefill, count)), enough)
        )


def _smallest(suffices: Callable[[int], bool], enough: int) -> int:
    """Return a sufficient count whose predecessor is insufficient, given a sufficient one."""
    too_few = 0
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if suffices(middle):
            enough = middle
        else:
            too_few = middle
    return enough

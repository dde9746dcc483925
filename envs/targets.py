"""Worker targets of the pools and their limits."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from aisim_gym.envs.pool_scales import most_workers, pools_of
from aisim_gym.replay import FleetDescription


class Targets(NamedTuple):
    """Target workers; an aggregated fleet has only ``decode``."""

    prefill: int | None
    decode: int

    @classmethod
    def of(cls, counts: Sequence[int]) -> "Targets":
        """Return targets from a count per pool, prefill first."""
        return cls(None if len(counts) == 1 else counts[0], counts[-1])

    def counts(self) -> list[int]:
        """Return a count per pool, prefill first."""
        return [self.decode] if self.prefill is None else [self.prefill, self.decode]

    def distance(self, other: "Targets") -> int:
        """Return the difference between two targets in workers, summed over pools."""
        prefill = abs((self.prefill or 0) - (other.prefill or 0))
        return prefill + abs(self.decode - other.decode)


class TargetLimits:
    """The limits of a fleet on targets.

    Attributes:
        max_gpus: Maximum GPUs of targets, None if unlimited.
    """

    def __init__(self, fleet: FleetDescription) -> None:
        """Create the limits of a fleet, whose ``limits.max_workers`` must be set."""
        self.max_gpus = fleet.limits.max_gpus
        self._gpus = gpus_per_pool(fleet)
        bounds = {
            pool: (int(fleet.limits.of_pool(pool)[0]), most_workers(fleet, pool))
            for pool, _ in pools_of(fleet).values()
        }
        self._prefill, self._decode = bounds.get("prefill"), bounds["decode"]

    def fits_budget(self, targets: Targets) -> bool:
        """Return whether targets are within ``max_gpus``."""
        return self.max_gpus is None or self.gpus(targets) <= self.max_gpus

    def gpus(self, targets: Targets) -> int:
        """Return the GPUs of targets."""
        return total_gpus(targets.counts(), self._gpus)

    def check(self, given: object, at: str) -> Targets:
        """Return the targets of an action object after checking them.

        Args:
            given: Result of the action object.
            at: Name of the action in messages.

        Raises:
            TypeError: If it is not ``Targets``, or the target of a pool is not an integer.
            ValueError: If a target is outside the limits of its pool, or its pool does not exist.
        """
        if not isinstance(given, Targets):
            raise TypeError(
                f"{at}: the action object returned {given!r}, expected Targets(prefill, decode)"
            )
        prefill, decode = given
        if self._prefill is not None:
            prefill = _checked(prefill, *self._prefill, "prefill", given, at)
        elif prefill is not None:
            raise ValueError(
                f"{at}: the action object returned {given!r}, expected prefill to be None: there "
                "is one pool"
            )
        return Targets(prefill, _checked(decode, *self._decode, "decode", given, at))


def gpus_per_pool(fleet: FleetDescription) -> list[int]:
    """Return the GPUs of a worker of each pool: decode (aggregated), or prefill and decode."""
    return [role.gpus_per_worker for _, role in pools_of(fleet).values()]


def fleet_gpus(targets: Targets, fleet: FleetDescription) -> int:
    """Return the GPUs of ``targets``."""
    return total_gpus(targets.counts(), gpus_per_pool(fleet))


def total_gpus(counts: Iterable[int], gpus: Iterable[int]) -> int:
    """Return the GPUs of a number of workers per pool."""
    return sum(map(int.__mul__, counts, gpus))


def _checked(count: object, least: int, most: int, pool: str, given: Targets, at: str) -> int:
    """Return the target of a pool as ``int``; raise unless it is an integer within limits."""
    if type(count) is int and least <= count <= most:
        return count
    is_integer = isinstance(count, int | np.integer) and not isinstance(count, bool)
    number = int(count) if is_integer else None  # type: ignore[call-overload]
    if number is None or not least <= number <= most:
        raise (TypeError if number is None else ValueError)(
            f"{at}: the action object returned {given!r}, expected {pool} to be an integer from "
            f"{least} (min_workers) to {most} (max_workers)"
        )
    return int(number)

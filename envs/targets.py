"""What the pools of a fleet are to become: worker targets, and whether they are allowed."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from aisim_gym.envs.pool_scales import most_workers, pools_of
from aisim_gym.replay import FleetDescription


class Targets(NamedTuple):
    """Wanted workers; an aggregated fleet has only ``decode``."""

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
        """Return by how many workers two targets differ, both pools together."""
        prefill = abs((self.prefill or 0) - (other.prefill or 0))
        return prefill + abs(self.decode - other.decode)


class TargetLimits:
    """The limits of a fleet on targets.

    Attributes:
        max_gpus: Most GPUs that targets may take, None for any number.
    """

    def __init__(self, fleet: FleetDescription) -> None:
        """Take the limits of a fleet; its ``limits.max_workers`` must be set."""
        self.max_gpus = fleet.limits.max_gpus
        self._gpus = gpus_per_pool(fleet)
        self._bounds = {
            pool: (int(fleet.limits.of_pool(pool)[0]), most_workers(fleet, pool))
            for pool, _ in pools_of(fleet).values()
        }

    def fits_budget(self, targets: Targets) -> bool:
        """Return whether targets keep within ``max_gpus``."""
        return self.max_gpus is None or self.gpus(targets) <= self.max_gpus

    def gpus(self, targets: Targets) -> int:
        """Return the GPUs that targets take."""
        return total_gpus(targets.counts(), self._gpus)

    def check(self, given: object, at: str) -> Targets:
        """Return the targets that an action object returned, once they are known to be allowed.

        Args:
            given: What it returned.
            at: What to call the action in messages.

        Raises:
            TypeError: If it is no ``Targets``, or the target of a pool is no integer.
            ValueError: If a target is outside the limits of its pool, or of a pool that is not
                there.
        """
        if not isinstance(given, Targets):
            raise TypeError(
                f"{at}: the action object returned {given!r}, expected Targets(prefill, decode)"
            )
        counts = []
        for pool, (least, most) in self._bounds.items():
            count: object = given.prefill if pool == "prefill" else given.decode
            if type(count) is not int:
                count = _as_integer(count)
            if count is None or not least <= count <= most:
                raise (TypeError if count is None else ValueError)(
                    f"{at}: the action object returned {given!r}, expected {pool} to be an integer "
                    f"from {least} (min_workers) to {most} (max_workers)"
                )
            counts.append(count)
        if len(counts) == 1 and given.prefill is not None:
            raise ValueError(
                f"{at}: the action object returned {given!r}, expected prefill to be None: there "
                "is one pool"
            )
        return Targets.of(counts)


def gpus_per_pool(fleet: FleetDescription) -> list[int]:
    """Return the GPUs of a worker of each pool: decode (aggregated), or prefill and decode."""
    return [role.gpus_per_worker for _, role in pools_of(fleet).values()]


def fleet_gpus(targets: Targets, fleet: FleetDescription) -> int:
    """Return the GPUs that ``targets`` take."""
    return total_gpus(targets.counts(), gpus_per_pool(fleet))


def total_gpus(counts: Iterable[int], gpus: Iterable[int]) -> int:
    """Return the GPUs of a number of workers per pool."""
    return sum(map(int.__mul__, counts, gpus))


def _as_integer(count: object) -> int | None:
    """Return an integer of any type as ``int``, None for anything else, truth values included."""
    is_integer = isinstance(count, int | np.integer) and not isinstance(count, bool)
    return int(count) if is_integer else None  # type: ignore[call-overload]

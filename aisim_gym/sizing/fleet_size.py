"""Fleet sizes and the results measured by replaying them."""

from dataclasses import dataclass
from typing import Any, NamedTuple


class FleetSize(NamedTuple):
    """Workers per pool; an aggregated fleet has only ``decode``, as in scaling decisions."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        """Return ``2P+4D``, or ``6 workers`` for an aggregated fleet."""
        if self.prefill:
            return f"{self.prefill}P+{self.decode}D"
        return f"{self.decode} worker{'s' * (self.decode != 1)}"

    @property
    def pools(self) -> dict[str, int]:
        """Workers by pool: ``workers``, or ``prefill`` and ``decode``."""
        if self.prefill:
            return {"prefill": self.prefill, "decode": self.decode}
        return {"workers": self.decode}

    @property
    def neighbours(self) -> "tuple[FleetSize, ...]":
        """The next smaller fleets: one worker fewer in one pool, with no empty pool."""
        fewer = (FleetSize(self.prefill - 1, self.decode),) if self.prefill > 1 else ()
        return (*fewer, FleetSize(self.prefill, self.decode - 1)) if self.decode > 1 else fewer

    def is_within(self, other: "FleetSize") -> bool:
        """Return whether no pool has more workers than that of ``other``."""
        return self.prefill <= other.prefill and self.decode <= other.decode


@dataclass(frozen=True)
class MeasuredFleet:
    """Results of replaying a fixed fleet.

    Attributes:
        size: Workers per pool.
        gpus: GPUs of all workers together.
        attainment_frac: Share of the requests that completed within every limit.
        gpu_hours: Paid GPU time, from the start to the end of the run.
    """

    size: FleetSize
    gpus: int
    attainment_frac: float
    gpu_hours: float

    def to_dict(self) -> dict[str, Any]:
        """Return the results as plain data."""
        return {
            "workers": self.size.pools,
            "gpus": self.gpus,
            "attainment_frac": self.attainment_frac,
            "gpu_hours": self.gpu_hours,
        }

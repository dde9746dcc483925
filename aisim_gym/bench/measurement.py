"""Benchmark results: repeated values of a quantity, with optional comparison and target."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any

REFERENCE = "reference"
"""Name of the other side if it is the reference."""


class RatioKind(StrEnum):
    """Meaning of a measurement's ratio."""

    SPEED = "speed"
    """Speed relative to the other side; higher is better."""
    COST = "cost"
    """Cost relative to the other side; lower is better."""


@dataclass(frozen=True)
class Target:
    """A bound on a measurement.

    Attributes:
        bound: Inclusive limit.
        is_floor: Whether the bound is a minimum rather than a maximum.
        of_ratio: Whether the bound applies to the ratio rather than the median.
    """

    bound: float
    is_floor: bool
    of_ratio: bool = False


@dataclass(frozen=True)
class Measurement:
    """One quantity.

    Attributes:
        name: Name with the size measured; unique in its section.
        unit: Unit of ``ours`` and ``other``: a time, a rate per second, or a size.
        ours: One value per repeat.
        other: Values of the other side, measured alternately with ``ours``; may be empty.
        other_name: Name of the other side.
        ratio_kind: Meaning of the ratio.
        target: Its bound, or None.
        details: Additional medians, by name and unit.
    """

    name: str
    unit: str
    ours: tuple[float, ...]
    other: tuple[float, ...] = ()
    other_name: str = ""
    ratio_kind: RatioKind = RatioKind.SPEED
    target: Target | None = None
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Ratio of the two medians; None without another side."""
        if not self.other:
            return None
        quotient = median(self.ours) / median(self.other)
        more_is_better = self.unit.endswith("/s")
        if self.ratio_kind is RatioKind.COST or more_is_better:
            return quotient
        return 1.0 / quotient

    @property
    def meets_target(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        value = self.ratio if self.target.of_ratio else median(self.ours)
        if value is None:
            raise ValueError(f"{self.name}: its target is of a ratio, but it has no other side")
        return value >= self.target.bound if self.target.is_floor else value <= self.target.bound

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        result: dict[str, Any] = {
            "name": self.name,
            "unit": self.unit,
            "median": median(self.ours),
            "repeats": list(self.ours),
        }
        if self.other:
            result |= {
                "compared_with": self.other_name,
                "compared_median": median(self.other),
                "compared_repeats": list(self.other),
                "ratio_kind": str(self.ratio_kind),
                "ratio": self.ratio,
            }
        if self.target is not None:
            result["target"] = {
                "bound": self.target.bound,
                "is_floor": self.target.is_floor,
                "of_ratio": self.target.of_ratio,
                "is_met": self.meets_target,
            }
        return result | {"details": dict(self.details)}


@dataclass(frozen=True)
class Skipped:
    """A skipped measurement and the reason."""

    name: str
    reason: str

"""What a benchmark finds: one quantity, several times, perhaps beside another, perhaps a target."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any

REFERENCE = "reference"
"""Name of the other side where that is the reference."""


class RatioKind(StrEnum):
    """What a ratio of a measurement says."""

    SPEED = "speed"
    """How many times as fast as the other side; more is better."""
    COST = "cost"
    """How many times the cost of the other side; less is better."""


@dataclass(frozen=True)
class Target:
    """A bound on a measurement.

    Attributes:
        bound: The limit itself is allowed.
        is_floor: Whether it is a least value; else it is a most one.
        of_ratio: Whether the ratio is meant; else it is the median.
    """

    bound: float
    is_floor: bool
    of_ratio: bool = False


@dataclass(frozen=True)
class Measurement:
    """One quantity.

    Attributes:
        name: What was measured, with its size; unique in its section.
        unit: Of ``ours`` and ``other``: a time, something ``per second``, or a size.
        ours: One value per repeat.
        other: Values of what it is compared with, measured in turns with ``ours``; or empty.
        other_name: What that is.
        ratio_kind: What the ratio of both says.
        target: Its bound, or None.
        details: Further medians that explain it, by name and unit.
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
    """Something that was not measured, and why."""

    name: str
    reason: str

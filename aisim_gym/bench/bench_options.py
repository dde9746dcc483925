"""What every section is told."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aisim_gym.bench.measurement import Measurement, Skipped
from aisim_gym.bench.reference_process import ReferenceProcess


@dataclass(frozen=True)
class BenchOptions:
    """How to measure.

    Attributes:
        repeats: Values per measurement, >= 1.
        is_short: Whether to leave out what takes long.
        reference: The reference, None to do without.
        mooncake: The Mooncake trace, None to do without.
        tell: Called with what is being measured, for a person who waits.
    """

    repeats: int
    is_short: bool = False
    reference: ReferenceProcess | None = None
    mooncake: Path | None = None
    tell: Callable[[str], None] = lambda what: None


Section = Callable[[BenchOptions], Iterator[Measurement | Skipped]]
"""Yields what it finds as soon as it is known."""

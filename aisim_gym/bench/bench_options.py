"""Options of all sections."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aisim_gym.bench.measurement import Measurement, Skipped
from aisim_gym.bench.reference_process import ReferenceProcess


@dataclass(frozen=True)
class BenchOptions:
    """Options of a benchmark run.

    Attributes:
        repeats: Values per measurement, >= 1.
        is_short: Whether to skip long measurements.
        reference: The reference, None to skip it.
        mooncake: The Mooncake trace, None to skip it.
        tell: Called with a progress message for the user.
    """

    repeats: int
    is_short: bool = False
    reference: ReferenceProcess | None = None
    mooncake: Path | None = None
    tell: Callable[[str], None] = lambda what: None


Section = Callable[[BenchOptions], Iterator[Measurement | Skipped]]
"""Yields results as soon as they are available."""

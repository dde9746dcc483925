"""Compare the ratios of a run with recorded ones.

Only ratios are compared, never times: both sides of a ratio are measured alternately on the same
machine, so ratios are comparable across machines.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from aisim_gym.bench.bench_run import SectionResults, write_json
from aisim_gym.bench.measurement import REFERENCE, RatioKind
from aisim_gym.errors import AisimError

FORMAT = "aisim-bench-ratios/1"

TOLERANCE = 2.0
"""Tolerated factor: a speed may halve, a cost may double."""


class RecordError(AisimError, ValueError):
    """A file does not contain recorded ratios."""


class Verdict(StrEnum):
    """Result of checking a recorded ratio."""

    KEPT = "kept"
    WORSE = "WORSE"
    MISSING = "MISSING"
    """Its section ran but did not measure it."""
    NO_REFERENCE = "no reference"
    """Its other side is the reference, which is not available; not a failure."""


@dataclass(frozen=True)
class RecordedRatio:
    """One ratio; the first three fields name it."""

    section: str
    name: str
    other_name: str
    kind: RatioKind
    ratio: float

    @property
    def limit(self) -> float:
        """The worst ratio that still passes."""
        is_speed = self.kind is RatioKind.SPEED
        return self.ratio / TOLERANCE if is_speed else self.ratio * TOLERANCE


@dataclass(frozen=True)
class RatioComparison:
    """A recorded ratio and the new one, None if not measured."""

    recorded: RecordedRatio
    ratio: float | None
    verdict: Verdict

    @property
    def is_failure(self) -> bool:
        """Whether the check fails for this ratio."""
        return self.verdict in (Verdict.WORSE, Verdict.MISSING)


def ratios_of(sections: Mapping[str, SectionResults]) -> list[RecordedRatio]:
    """Return all ratios of the sections."""
    return [
        RecordedRatio(section, found.name, found.other_name, found.ratio_kind, found.ratio)
        for section, results in sections.items()
        for found in results.measurements
        if found.ratio is not None
    ]


def compare_ratios(
    recorded: Iterable[RecordedRatio],
    sections: Mapping[str, SectionResults],
    has_reference: bool,
) -> list[RatioComparison]:
    """Return the comparison of all recorded ratios of the sections that ran.

    Args:
        recorded: Ratios of an earlier run.
        sections: The new run.
        has_reference: Whether the new run had the reference.
    """
    measured = {
        (found.section, found.name, found.other_name): found.ratio for found in ratios_of(sections)
    }
    comparisons = []
    for record in recorded:
        if record.section not in sections:
            continue
        ratio = measured.get((record.section, record.name, record.other_name))
        comparisons.append(RatioComparison(record, ratio, _verdict(record, ratio, has_reference)))
    return comparisons


def write_ratios(sections: Mapping[str, SectionResults], path: Path) -> None:
    """Write the ratios of a run to a file for :func:`read_ratios`."""
    ratios = [asdict(ratio) for ratio in ratios_of(sections)]
    write_json({"format": FORMAT, "ratios": ratios}, path)


def read_ratios(path: Path) -> list[RecordedRatio]:
    """Return the ratios of a file.

    Raises:
        RecordError: If it is not a file of ratios; names the file.
        OSError: If it cannot be read.
    """
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["format"] != FORMAT:
            raise ValueError(f"got format {data['format']!r}, expected {FORMAT!r}")
        return [
            RecordedRatio(**{**entry, "kind": RatioKind(entry["kind"])}) for entry in data["ratios"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path}: no recorded ratios: {error}") from error


def _verdict(record: RecordedRatio, ratio: float | None, has_reference: bool) -> Verdict:
    if ratio is None:
        needs_it = record.other_name == REFERENCE and not has_reference
        return Verdict.NO_REFERENCE if needs_it else Verdict.MISSING
    is_speed = record.kind is RatioKind.SPEED
    is_worse = ratio < record.limit if is_speed else ratio > record.limit
    return Verdict.WORSE if is_worse else Verdict.KEPT

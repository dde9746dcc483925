"""Run sections and keep their results, in memory and in a file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aisim_gym.bench.bench_options import BenchOptions, Section
from aisim_gym.bench.machine import describe_machine
from aisim_gym.bench.measurement import Measurement, Skipped
from aisim_gym.report.atomic_file import replace_file

FORMAT = "aisim-bench/1"


@dataclass
class SectionResults:
    """Results of a section, extended while it runs.

    Attributes:
        measurements: Measurements, in order.
        skipped: Skipped measurements.
        is_complete: Whether the section has finished.
    """

    measurements: list[Measurement] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    is_complete: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return everything as a JSON object."""
        return {
            "is_complete": self.is_complete,
            "measurements": [measurement.to_dict() for measurement in self.measurements],
            "skipped": [{"name": what.name, "reason": what.reason} for what in self.skipped],
        }


class BenchRun:
    """Runs sections in sequence.

    Attributes:
        sections: Results so far, by name of the section.
    """

    sections: dict[str, SectionResults]

    def __init__(self, options: BenchOptions, out: Path | None = None) -> None:
        """Prepare a run.

        Args:
            options: Options passed to every section.
            out: JSON file that is rewritten after every measurement, None for no file.
        """
        self.sections = {}
        self._options = options
        self._out = out
        self._machine = describe_machine()

    def measure(self, name: str, section: Section) -> SectionResults:
        """Run a section and return its results; results of an interrupted section are kept."""
        results = self.sections[name] = SectionResults()
        for found in section(self._options):
            if isinstance(found, Skipped):
                results.skipped.append(found)
            else:
                results.measurements.append(found)
            self._write()
        results.is_complete = True
        self._write()
        return results

    def to_dict(self) -> dict[str, Any]:
        """Return machine, settings and all results as a JSON object."""
        reference = self._options.reference
        return {
            "format": FORMAT,
            "machine": self._machine,
            "reference": None if reference is None else reference.version,
            "repeats": self._options.repeats,
            "is_short": self._options.is_short,
            "sections": {name: results.to_dict() for name, results in self.sections.items()},
        }

    def _write(self) -> None:
        if self._out is not None:
            write_json(self.to_dict(), self._out)


def write_json(data: Mapping[str, Any], path: Path) -> None:
    """Write a JSON file atomically."""
    with replace_file(path) as temporary:
        temporary.write_text(json.dumps(data, indent=1) + "\n", "utf-8")

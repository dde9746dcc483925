"""The check fails for a ratio that is twice as bad as recorded, or is not measured any more."""

from pathlib import Path

import pytest

from aisim_gym.bench.bench_run import SectionResults
from aisim_gym.bench.measurement import REFERENCE, Measurement, RatioKind
from aisim_gym.bench.recorded_ratios import (
    RatioComparison,
    RecordedRatio,
    RecordError,
    Verdict,
    compare_ratios,
    ratios_of,
    read_ratios,
    write_ratios,
)


def section(ratio: float, kind: RatioKind, other_name: str = "other") -> SectionResults:
    """Return a section that measured one ratio."""
    times = (ratio, 1.0) if kind is RatioKind.COST else (1.0, ratio)
    found = Measurement("run", "ms", times[:1], times[1:], other_name, kind)
    return SectionResults([found, Measurement("alone", "ms", (1.0,))], is_complete=True)


def compare(recorded: float, now: float, kind: RatioKind) -> RatioComparison:
    record = RecordedRatio("fleet", "run", "other", kind, recorded)
    (comparison,) = compare_ratios([record], {"fleet": section(now, kind)}, has_reference=True)
    return comparison


@pytest.mark.parametrize(
    ("kind", "now", "verdict"),
    [
        (RatioKind.SPEED, 30.0, Verdict.KEPT),
        (RatioKind.SPEED, 10.0, Verdict.KEPT),
        (RatioKind.SPEED, 9.99, Verdict.WORSE),
        (RatioKind.COST, 1.0, Verdict.KEPT),
        (RatioKind.COST, 40.0, Verdict.KEPT),
        (RatioKind.COST, 40.1, Verdict.WORSE),
    ],
)
def test_ratio_may_be_twice_as_bad(kind: RatioKind, now: float, verdict: Verdict) -> None:
    comparison = compare(20.0, now, kind)
    assert comparison.verdict is verdict
    assert comparison.is_failure == (verdict is Verdict.WORSE)


def test_recorded_ratio_that_is_not_measured_fails() -> None:
    record = RecordedRatio("fleet", "gone", "other", RatioKind.SPEED, 2.0)
    sections = {"fleet": section(2.0, RatioKind.SPEED)}
    (comparison,) = compare_ratios([record], sections, has_reference=True)
    assert (comparison.verdict, comparison.ratio) == (Verdict.MISSING, None)
    assert comparison.is_failure


@pytest.mark.parametrize(
    ("has_reference", "verdict"), [(False, Verdict.NO_REFERENCE), (True, Verdict.MISSING)]
)
def test_ratio_against_the_reference_needs_it(has_reference: bool, verdict: Verdict) -> None:
    record = RecordedRatio("fleet", "run", REFERENCE, RatioKind.SPEED, 2.0)
    (comparison,) = compare_ratios([record], {"fleet": SectionResults()}, has_reference)
    assert comparison.verdict is verdict
    assert comparison.is_failure is has_reference


def test_sections_that_did_not_run_are_not_compared() -> None:
    record = RecordedRatio("batch", "run", "other", RatioKind.SPEED, 2.0)
    assert compare_ratios([record], {"fleet": SectionResults()}, has_reference=True) == []


def test_written_ratios_are_read_back(tmp_path: Path) -> None:
    sections = {"fleet": section(1.25, RatioKind.COST), "env": section(3.0, RatioKind.SPEED)}
    write_ratios(sections, tmp_path / "ratios.json")
    assert read_ratios(tmp_path / "ratios.json") == ratios_of(sections)
    assert [ratio.ratio for ratio in ratios_of(sections)] == [1.25, 3.0]


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        '{"format": "other"}',
        '{"format": "aisim-bench-ratios/1"}',
        '{"format": "aisim-bench-ratios/1", "ratios": [{"kind": "speed"}]}',
        '{"format": "aisim-bench-ratios/1", "ratios": [{"kind": "size"}]}',
    ],
)
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "ratios.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"ratios\.json: no recorded ratios"):
        read_ratios(path)

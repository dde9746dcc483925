"""``aisim-gym bench`` as a command, with sections that measure nothing real."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli import run_cli

from aisim_gym.bench import sections
from aisim_gym.bench.bench_options import BenchOptions, Section
from aisim_gym.bench.measurement import Measurement, RatioKind, Skipped, Target

OTHER_TIMES = {"quick": 40.0, "slow": 10.0}


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sections with a ratio each, and one that is interrupted."""

    def of(name: str) -> Section:
        def measure(options: BenchOptions) -> Iterator[Measurement | Skipped]:
            ours, other = (10.0,) * options.repeats, (OTHER_TIMES[name],) * options.repeats
            target = Target(2.0, is_floor=True, of_ratio=True)
            details = {"build, ms": 3.0}
            yield Measurement("run", "ms", ours, other, "other", RatioKind.SPEED, target, details)
            yield Skipped("part", "not today")

        return measure

    def interrupted(options: BenchOptions) -> Iterator[Measurement | Skipped]:
        yield Measurement("first", "ms", (1.0,))
        raise KeyboardInterrupt

    made_up = {"quick": of("quick"), "slow": of("slow"), "broken": interrupted}
    monkeypatch.setattr(sections, "SECTIONS", made_up)


def record(path: Path, ratio: float, section: str = "quick", name: str = "run") -> Path:
    entry = {"section": section, "name": name, "other_name": "other", "kind": "speed"}
    data = {"format": "aisim-bench-ratios/1", "ratios": [{**entry, "ratio": ratio}]}
    path.write_text(json.dumps(data))
    return path


def test_table_says_ratio_target_and_what_is_missing(tmp_path: Path) -> None:
    result = run_cli("bench", "quick", "slow", "--repeats", "2", "--out", tmp_path / "b.json")
    assert result.status == 0
    for text in ("4.00x", "1.00x", ">= 2x", "yes", "NO", "build, ms"):
        assert text in result.out
    assert "quick: part was not measured: not today" in result.out
    written = json.loads((tmp_path / "b.json").read_text())
    assert list(written["sections"]) == ["quick", "slow"]
    assert written["sections"]["quick"]["measurements"][0]["repeats"] == [10.0, 10.0]


def test_tables_can_be_markdown() -> None:
    lines = run_cli("bench", "quick", "--markdown").out.splitlines()
    (row,) = [line for line in lines if "4.00x" in line]
    assert [cell.strip() for cell in row.split("|")] == (
        ["", "run", "10 ms", "40 ms other", "4.00x", ">= 2x", "yes", ""]
    )


def test_interrupted_run_shows_and_writes_what_it_has(tmp_path: Path) -> None:
    result = run_cli("bench", "quick", "broken", "--out", tmp_path / "b.json")
    assert result.status == 130
    assert "first" in result.out
    assert list(json.loads((tmp_path / "b.json").read_text())["sections"]) == ["quick", "broken"]


def test_unknown_section_is_refused_with_a_guess() -> None:
    result = run_cli("bench", "quikc")
    assert result.status == 2
    assert "unknown section 'quikc', expected of quick, slow, broken; did you mean" in result.err


def test_interpreter_without_the_reference_is_refused() -> None:
    result = run_cli("bench", "quick", "--reference", "/nowhere/python")
    assert result.status == 2
    assert "--reference: got /nowhere/python, expected a Python interpreter" in result.err
    assert result.out == ""


@pytest.mark.parametrize(("recorded", "status"), [(4.0, 0), (8.0, 0), (8.1, 1)])
def test_check_fails_below_half_of_the_recorded_ratio(
    recorded: float, status: int, tmp_path: Path
) -> None:
    path = record(tmp_path / "ratios.json", recorded)
    result = run_cli("bench", "quick", "--check", path)
    assert result.status == status
    assert ("WORSE" in result.out) == (status == 1)


def test_check_fails_if_a_recorded_ratio_is_not_measured_any_more(tmp_path: Path) -> None:
    record(tmp_path / "ratios.json", 4.0)
    data = json.loads((tmp_path / "ratios.json").read_text())
    data["ratios"].append({**data["ratios"][0], "name": "gone"})
    (tmp_path / "ratios.json").write_text(json.dumps(data))
    result = run_cli("bench", "quick", "--check", tmp_path / "ratios.json")
    assert result.status == 1
    assert "MISSING" in result.out


def test_check_of_nothing_is_an_error(tmp_path: Path) -> None:
    path = record(tmp_path / "ratios.json", 4.0, section="slow")
    result = run_cli("bench", "quick", "--check", path)
    assert result.status == 2
    assert "--check: none of the ratios in" in result.err


def test_recorded_run_passes_its_own_check(tmp_path: Path) -> None:
    path = tmp_path / "ratios.json"
    assert run_cli("bench", "quick", "slow", "--record", path).status == 0
    result = run_cli("bench", "quick", "slow", "--check", path)
    assert result.status == 0
    assert result.out.count("kept") == 2


def test_check_needs_a_file_of_ratios(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    for name, text in (("other.json", "no recorded ratios"), ("absent.json", "No such file")):
        result = run_cli("bench", "quick", "--check", tmp_path / name)
        assert result.status == 2
        assert text in result.err
        assert result.out == ""

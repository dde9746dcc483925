"""Finding and reading golden files (rulings.md 10)."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.goldens import golden_path, write_changed

from aisim_gym.conformance import Golden, GoldenError, find_goldens

NAMES = ("agg-vllm-basic-01", "agg-vllm-sla-01", "disagg-vllm-sla-01")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as the reference's: golden files, other files, and ``bench/``."""
    for name in NAMES:
        shutil.copy(golden_path(name), tmp_path)
    (tmp_path / "bench").mkdir()
    shutil.copy(golden_path(NAMES[0]), tmp_path / "bench")
    (tmp_path / "index.csv").write_text("name\n")
    (tmp_path / "errors.json").write_text("{}")
    return tmp_path


def found(folder: Path, match: str) -> list[str]:
    return [path.name.removesuffix(".json.gz") for path in find_goldens([folder], match)]


def test_folder_means_its_own_golden_files(folder: Path) -> None:
    assert found(folder, "*") == list(NAMES)


@pytest.mark.parametrize(
    ("match", "names"),
    [
        ("agg-*", NAMES[:2]),
        ("*-sla-01", NAMES[1:]),
        ("agg-vllm-basic-01", NAMES[:1]),
        ("*sla*", NAMES[1:]),
        ("agg-vllm-basic-??", NAMES[:1]),
    ],
)
def test_pattern_is_for_the_name_without_its_ending(
    folder: Path, match: str, names: tuple[str, ...]
) -> None:
    assert found(folder, match) == list(names)


def test_each_file_counts_once_and_paths_keep_their_order(folder: Path) -> None:
    last = folder / f"{NAMES[2]}.json.gz"
    assert find_goldens([last, folder])[0] == last
    assert len(find_goldens([last, folder])) == 3


def test_file_in_a_bench_folder_can_be_named(folder: Path) -> None:
    assert len(find_goldens([folder / "bench"])) == 1


def test_nothing_that_matches_is_an_error(folder: Path) -> None:
    with pytest.raises(GoldenError, match=r"none matches 'agg-\*-99'"):
        find_goldens([folder], "agg-*-99")


def test_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match=r"nowhere: no such file or folder"):
        find_goldens([tmp_path / "nowhere"])


def write_json(path: Path, value: Any) -> Path:
    with gzip.open(path, "wt", encoding="utf-8") as file:
        json.dump(value, file)
    return path


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([1], "got a list, expected a JSON object"),
        ({}, "got format None, expected 'aisim-golden/1'"),
        ({"format": "aisim-golden/2"}, "got format 'aisim-golden/2'"),
        ({"format": "aisim-golden/1"}, "scenario: got nothing, expected an object"),
    ],
)
def test_other_json_is_no_golden_file(value: Any, problem: str, tmp_path: Path) -> None:
    path = write_json(tmp_path / "other.json.gz", value)
    with pytest.raises(GoldenError) as caught:
        Golden.read(path)
    assert str(path) in str(caught.value)
    assert problem in str(caught.value)


def test_file_that_is_not_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "plain.json.gz"
    path.write_text("{}")
    with pytest.raises(GoldenError, match=r"plain\.json\.gz: cannot be read: .*gzip"):
        Golden.read(path)


def test_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "half.json.gz"
    path.write_bytes(golden_path(NAMES[0]).read_bytes()[:2000])
    with pytest.raises(GoldenError, match=r"half\.json\.gz: cannot be read"):
        Golden.read(path)


def test_text_that_is_not_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text.json.gz"
    with gzip.open(path, "wt") as file:
        file.write("{,}")
    with pytest.raises(GoldenError, match=r"text\.json\.gz: no golden file: invalid JSON"):
        Golden.read(path)


@pytest.mark.parametrize(
    ("keys", "value", "problem"),
    [
        (("scenario", "workload", "rows"), None, "scenario.workload.rows: got nothing"),
        (("scenario", "ticks"), 5, "scenario.ticks: got an integer, expected an object"),
        (("snapshots",), None, "got neither snapshots nor snapshot_count"),
    ],
)
def test_missing_part_is_named(
    keys: tuple[str, ...], value: Any, problem: str, tmp_path: Path
) -> None:
    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    with pytest.raises(GoldenError) as caught:
        Golden.read(write_changed(NAMES[0], tmp_path, change))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("replay", {"sla_ttft_ms": -1.0}, "sla_ttft_ms must be a finite, non-negative value"),
        ("replay", {"colour": 1}, "unexpected keyword argument 'colour'"),
        ("engine_overrides", {}, "'agg'"),
    ],
)
def test_scenario_that_is_not_valid_is_named(
    key: str, value: Any, problem: str, tmp_path: Path
) -> None:
    path = write_changed(NAMES[0], tmp_path, lambda golden: golden["scenario"].update({key: value}))
    with pytest.raises(GoldenError) as caught:
        Golden.read(path).spec()
    assert str(path) in str(caught.value)
    assert problem in str(caught.value)


def test_row_that_is_not_valid_is_named(tmp_path: Path) -> None:
    def change(content: dict[str, Any]) -> None:
        content["scenario"]["workload"]["rows"][1]["input_length"] = -1

    golden = Golden.read(write_changed(NAMES[0], tmp_path, change))
    with pytest.raises(GoldenError, match=r"scenario\.workload: .*line 2.*input_length"):
        golden.requests(golden.spec())

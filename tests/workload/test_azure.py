"""Azure LLM inference CSV files (rulings.md 7 and 8)."""

import gzip
from pathlib import Path

import pytest

from aisim_gym.errors import WorkloadError
from aisim_gym.workload import build_prompt_blocks, read_azure_csv

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def write_csv(path: Path, *lines: str, newline: str = "\n") -> Path:
    path.write_bytes(newline.join(lines).encode())
    return path


def test_first_row_is_zero_and_stamps_of_100_ns_are_exact(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "t.csv",
        HEADER,
        "2023-11-16 23:59:59.9999999,374,44",
        "2023-11-17 00:00:00.0000000,396,109",
        "2023-11-17 00:00:01.5,1,0",
        "2023-11-17 00:00:02,1,0",
    )
    table = read_azure_csv(path)
    assert table.arrival_ms.tolist() == [0.0, 0.0001, 1500.0001, 2000.0001]
    assert table.input_tokens.tolist() == [374, 396, 1, 1]
    assert table.output_tokens.tolist() == [44, 109, 0, 0]


def test_equal_stamps_keep_file_order_and_the_earliest_row_is_zero(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "t.csv",
        HEADER,
        "2023-11-16 00:00:02,1,1",
        "2023-11-16 00:00:01,2,2",
        "2023-11-16 00:00:02,3,3",
        "",
        "2023-11-16 00:00:01,4,4",
    )
    table = read_azure_csv(path, arrival_speedup_ratio=2.0)
    assert table.row.tolist() == [1, 3, 0, 2]
    assert table.arrival_ms.tolist() == [0.0, 0.0, 500.0, 500.0]


def test_prompts_share_no_blocks(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", HEADER, *["2023-11-16 00:00:00,640,1"] * 3)
    assert build_prompt_blocks(read_azure_csv(path), 64).num_shared == 0


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [[], [""]])
@pytest.mark.parametrize("compressed", [False, True])
def test_encoding_of_the_file_does_not_matter(
    tmp_path: Path, newline: str, last: list[str], compressed: bool
) -> None:
    lines = [f"\ufeff{HEADER}", "2023-11-16 00:00:00,3,1", "2023-11-16 00:00:04,3,1", *last]
    path = write_csv(tmp_path / "größe 東京.csv", *lines, newline=newline)
    if compressed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    assert read_azure_csv(path).arrival_ms.tolist() == [0.0, 4000.0]


@pytest.mark.parametrize("suffix", ["Z", "+00:00"])
def test_explicit_utc_is_accepted(tmp_path: Path, suffix: str) -> None:
    path = write_csv(tmp_path / "t.csv", HEADER, f"2024-05-10 00:00:00.009930{suffix},3,1")
    assert len(read_azure_csv(path)) == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2023-11-16 00:00:00,0,5", "ContextTokens: got '0', allowed: an integer from 1"),
        ("2023-11-16 00:00:00,-1,5", "ContextTokens: got '-1'"),
        ("2023-11-16 00:00:00,4.0,5", "ContextTokens: got '4.0'"),
        ("2023-11-16 00:00:00,4,", "GeneratedTokens: got '', allowed: an integer from 0"),
        (f"2023-11-16 00:00:00,4,{'9' * 5000}", "GeneratedTokens: got '9999"),
        ("2023-11-16 00:00:00,٣,5", "ContextTokens: got '٣'"),
        ("2023-11-16 00:00:00.12345678,4,5", "TIMESTAMP: got"),
        ("2023-11-16 00:00:00+01:00,4,5", "TIMESTAMP: got"),
        ("2023-11-16 24:00:00,4,5", "TIMESTAMP: got"),
        ("2023-11-31 00:00:00,4,5", "TIMESTAMP: got '2023-11-31 00:00:00', allowed: a date of"),
        ("12.5,4,5", "TIMESTAMP: got '12.5', allowed: like 2023-11-16 18:17:03.9799600 (UTC)"),
        ("2023-11-16 00:00:00,4", "got 2 fields, allowed: 3 (TIMESTAMP,"),
        ("2023-11-16 00:00:00,4,5,6", "got 4 fields"),
    ],
)
def test_bad_row_is_refused_by_file_line_and_field(tmp_path: Path, line: str, message: str) -> None:
    path = write_csv(tmp_path / "t.csv", HEADER, "2023-11-16 00:00:00,4,5", "", line)
    with pytest.raises(WorkloadError) as caught:
        read_azure_csv(path)
    assert f"{path} line 4: {message}" in str(caught.value)


@pytest.mark.parametrize("header", ["a,b,c", "2023-11-16 00:00:00,4,5", f"{HEADER},NumImages"])
def test_other_header_is_refused(tmp_path: Path, header: str) -> None:
    path = write_csv(tmp_path / "t.csv", header, "2023-11-16 00:00:00,4,5")
    with pytest.raises(WorkloadError, match=f"line 1: header: got .*, allowed: {HEADER}"):
        read_azure_csv(path)


@pytest.mark.parametrize("lines", [[], [HEADER], [HEADER, "", " "]])
def test_file_without_rows_is_refused(tmp_path: Path, lines: list[str]) -> None:
    path = write_csv(tmp_path / "t.csv", *lines)
    with pytest.raises(WorkloadError, match="did not contain any requests"):
        read_azure_csv(path)

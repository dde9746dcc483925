"""BurstGPT CSV files, in both published layouts."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aisim_gym.errors import WorkloadError
from aisim_gym.workload import (
    RequestTable,
    build_prompt_blocks,
    read_burstgpt,
    read_mooncake,
)

FIRST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
SECOND = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
)


def write_csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_stamps_are_seconds_from_the_earliest_row(tmp_path: Path) -> None:
    """F44: the unit of BurstGPT is the second."""
    path = write_csv(
        tmp_path / "t.csv",
        FIRST,
        "5,ChatGPT,472,18,490,Conversation log",
        "46.005,ChatGPT,1087,230,1317,Conversation log",
        "118,GPT-4,417,276,693,API log",
    )
    table = read_burstgpt(path)
    assert table.arrival_ms.tolist() == [0.0, 41_005.0, 113_000.0]
    assert table.input_tokens.tolist() == [472, 1087, 417]
    assert table.output_tokens.tolist() == [18, 230, 276]
    assert build_prompt_blocks(table, 16).num_shared == 0


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    line = "10.0,abc-1,2.5,ChatGPT,30,7,37,Conversation log"
    table = read_burstgpt(write_csv(tmp_path / "t.csv", SECOND, line, line.replace("10.0", "9.5")))
    assert table.row.tolist() == [1, 0]
    assert table.arrival_ms.tolist() == [0.0, 500.0]
    assert table.input_tokens.tolist() == [30, 30]
    assert not table.has_sessions


def test_failure_is_a_request_without_output(tmp_path: Path) -> None:
    table = read_burstgpt(write_csv(tmp_path / "t.csv", FIRST, "1,ChatGPT,40,0,40,API log"))
    assert table.output_tokens.tolist() == [0]


def test_stamps_in_milliseconds_are_sped_up(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", FIRST, "100,a,1,1,2,x", "500,a,1,1,2,x")
    table = read_burstgpt(path, arrival_speedup_ratio=4.0, time_unit="ms")
    assert table.arrival_ms.tolist() == [0.0, 100.0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nan,a,1,1,2,x", "Timestamp: got 'nan', allowed: a finite number >= 0 (s)"),
        ("inf,a,1,1,2,x", "Timestamp: got 'inf'"),
        ("-1,a,1,1,2,x", "Timestamp: got '-1'"),
        ("1e400,a,1,1,2,x", "Timestamp: got '1e400'"),
        ("1_0,a,1,1,2,x", "Timestamp: got '1_0'"),
        (",a,1,1,2,x", "Timestamp: got ''"),
        ("1,a,0,1,1,x", "Request tokens: got '0', allowed: an integer from 1"),
        ("1,a,2.0,1,1,x", "Request tokens: got '2.0'"),
        ("1,a,2,-3,1,x", "Response tokens: got '-3', allowed: an integer from 0"),
        ("1,a,2", f"got 3 fields, allowed: 6 ({FIRST})"),
    ],
)
def test_bad_row_is_refused_by_file_line_and_field(tmp_path: Path, line: str, message: str) -> None:
    """F50: NaN, infinity, negative and empty cells."""
    path = write_csv(tmp_path / "t.csv", FIRST, "1,a,1,1,2,x", "", line)
    with pytest.raises(WorkloadError) as caught:
        read_burstgpt(path)
    assert f"{path} line 4: {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("Timestamp,Model,Request tokens", "got no column 'Response tokens'"),
        (f"{FIRST},Model", "got 'Model' twice"),
    ],
)
def test_bad_header_is_refused(tmp_path: Path, header: str, message: str) -> None:
    path = write_csv(tmp_path / "t.csv", header, "1,a,1,1,2,x")
    with pytest.raises(WorkloadError, match=f"line 1: header: {message}"):
        read_burstgpt(path)


@pytest.mark.parametrize("read", [read_burstgpt, read_mooncake])
def test_unknown_unit_is_refused(tmp_path: Path, read: Callable[..., RequestTable]) -> None:
    with pytest.raises(WorkloadError, match="time_unit: got 'min', allowed: 's' or 'ms'"):
        read(write_csv(tmp_path / "t.csv", FIRST, "1,a,1,1,2,x"), time_unit="min")


@pytest.mark.parametrize("lines", [[], [FIRST], [FIRST, " "]])
def test_file_without_rows_is_refused(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(WorkloadError, match="did not contain any requests"):
        read_burstgpt(write_csv(tmp_path / "t.csv", *lines))

"""Our own CSV: read, written, and both in a row."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aisim_gym.errors import WorkloadError
from aisim_gym.workload import (
    RequestTable,
    build_prompt_blocks,
    read_mooncake,
    read_simple_csv,
    requests_from_arrays,
    requests_from_mooncake_rows,
    trace_statistics,
    write_mooncake,
    write_simple_csv,
    write_trace,
)

HEADER = "arrival_ms,input_tokens,output_tokens,hash_ids"


def write_csv(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_header_says_the_unit_and_the_order(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "a.csv", "output_tokens,arrival_s,input_tokens", "3,2.005,7")
    other = write_csv(tmp_path / "b.csv", HEADER, "2005,7,3,", "1000.0,8,0,")
    assert read_simple_csv(path).arrival_ms.tolist() == [0.0]
    table = read_simple_csv(other)
    assert table.row.tolist() == [1, 0]
    assert table.arrival_ms.tolist() == [0.0, 1005.0]
    assert table.input_tokens.tolist() == [8, 7]
    assert table.output_tokens.tolist() == [0, 3]


def test_seconds_become_the_nearest_milliseconds(tmp_path: Path) -> None:
    # 1.005 * 1000.0 is 1004.9999999999999.
    rows = ("0,1,1", "1.005,1,1", "2.5e-3,1,1")
    path = write_csv(tmp_path / "t.csv", "arrival_s,input_tokens,output_tokens", *rows)
    assert read_simple_csv(path, 512, 0.5).arrival_ms.tolist() == [0.0, 5.0, 2010.0]


def test_equal_hash_ids_are_shared_blocks(tmp_path: Path) -> None:
    rows = ("0,8,1,18446744073709551615 5", "1,6,1,18446744073709551615 9", "2,4,1,")
    table = read_simple_csv(write_csv(tmp_path / "t.csv", HEADER, *rows), trace_block_size=4)
    assert table.prompt_ids.tolist() == [0, 1, 0, 2]
    assert table.prompt_starts.tolist() == [0, 2, 4, 4]
    assert build_prompt_blocks(table, 4).shared_blocks.tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nan,4,1,", "arrival_ms: got 'nan', allowed: a finite number >= 0 (ms)"),
        ("-0.5,4,1,", "arrival_ms: got '-0.5'"),
        ("0,0,1,", "input_tokens: got '0', allowed: an integer from 1"),
        ("0,4,,", "output_tokens: got ''"),
        ("0,4,1", f"got 3 fields, allowed: 4 ({HEADER})"),
        ("0,4,1,-1", "hash_ids: got '-1', allowed: integers from 0 to 2**64-1"),
        ("0,4,1,18446744073709551616", "hash_ids: got '18446744073709551616'"),
        ("0,4,1,1 2", "hash_ids: got 2 for input_tokens 4, allowed: 1 of 4 tokens each"),
        ("0,5,1,1", "hash_ids: got 1 for input_tokens 5, allowed: 2 of 4 tokens each"),
    ],
)
def test_bad_row_is_refused_by_file_line_and_field(tmp_path: Path, line: str, message: str) -> None:
    """F50: NaN, negative, empty, and ids that do not cover the prompt."""
    path = write_csv(tmp_path / "t.csv", HEADER, "0,4,1,7", line)
    with pytest.raises(WorkloadError) as caught:
        read_simple_csv(path, trace_block_size=4)
    assert f"{path} line 3: {message}" in str(caught.value)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("arrival_s,input_tokens,output_token", "'output_token', .*did you mean 'output_tokens'"),
        ("arrival_s,arrival_ms,input_tokens,output_tokens", "got arrival_s,arrival_ms,"),
        ("arrival_s,input_tokens", "allowed: arrival_s or arrival_ms, input_tokens, output"),
        ("arrival_s,arrival_s,input_tokens,output_tokens", "got 'arrival_s' twice"),
    ],
)
def test_bad_header_is_refused(tmp_path: Path, header: str, message: str) -> None:
    path = write_csv(tmp_path / "t.csv", header, "1,1,1,1")
    with pytest.raises(WorkloadError, match=f"line 1: header: .*{message}"):
        read_simple_csv(path)


@pytest.mark.parametrize("lines", [[], [HEADER], [HEADER, "", " "]])
def test_file_without_rows_is_refused(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(WorkloadError, match="did not contain any requests"):
        read_simple_csv(write_csv(tmp_path / "t.csv", *lines))


@settings(deadline=None, max_examples=50)
@given(
    prompts=st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1),
    arrivals=st.lists(st.floats(0.0, 1e9), min_size=1),
    block_size=st.integers(1, 6),
    to_csv=st.booleans(),
)
def test_exported_trace_keeps_its_prefix_hits(
    tmp_path_factory: pytest.TempPathFactory,
    prompts: list[list[int]],
    arrivals: list[float],
    block_size: int,
    to_csv: bool,
) -> None:
    """F46: written and read again, a trace has the same shared blocks."""
    arrival_ms = np.resize(arrivals, len(prompts))
    inputs = [4 * len(ids) if ids else 9 for ids in prompts]
    table = requests_from_arrays(arrival_ms, inputs, [1] * len(inputs), prompts, 4)
    path = tmp_path_factory.mktemp("written") / ("t.csv" if to_csv else "t.jsonl")
    write_trace(table, path)
    again = read_simple_csv(path, 4) if to_csv else read_mooncake(path, 4)
    if to_csv:
        assert np.array_equal(again.arrival_ms, table.arrival_ms - table.arrival_ms[0])
    assert np.array_equal(again.input_tokens, table.input_tokens)
    before, after = trace_statistics(table), trace_statistics(again)
    assert before.reusable_frac == after.reusable_frac
    first, second = build_prompt_blocks(table, block_size), build_prompt_blocks(again, block_size)
    assert np.array_equal(first.contents, second.contents)
    assert np.array_equal(first.shared_blocks, second.shared_blocks)


def test_prompts_without_ids_stay_without(tmp_path: Path) -> None:
    table = requests_from_arrays([0.0, 1.5], [9, 4], [1, 2], [None, [7]], 4)
    write_simple_csv(table, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == f"{HEADER}\n0.0,9,1,\n1.5,4,2,0\n"
    assert read_simple_csv(tmp_path / "t.csv", 4).prompt_starts.tolist() == [0, 0, 1]


def test_table_without_ids_has_no_column_for_them(tmp_path: Path) -> None:
    write_simple_csv(requests_from_arrays([0.0], [9], [1]), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "arrival_ms,input_tokens,output_tokens\n0.0,9,1\n"


@pytest.mark.parametrize("name", ["t.csv.gz", "t.jsonl.gz"])
def test_gzip_files_of_equal_tables_are_equal(tmp_path: Path, name: str) -> None:
    table = requests_from_arrays([0.0, 3.25], [9, 4], [1, 2])
    (tmp_path / "b").mkdir()
    write_trace(table, tmp_path / name)
    write_trace(table, tmp_path / "b" / f"other {name}")
    packed = (tmp_path / name).read_bytes()
    assert packed == (tmp_path / "b" / f"other {name}").read_bytes()
    assert gzip.decompress(packed).count(b"\n") in (2, 3)


def sessions() -> RequestTable:
    row = {"input_length": 4, "output_length": 1, "hash_ids": [1], "session_id": "a"}
    return requests_from_mooncake_rows([row | {"timestamp": 0}, row | {"delay": 1}], 4)


def test_sessions_do_not_fit_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="our CSV holds lists of requests, got 1 sessions"):
        write_simple_csv(sessions(), tmp_path / "t.csv")
    assert list(tmp_path.iterdir()) == []
    write_mooncake(sessions(), tmp_path / "t.jsonl")


def test_content_of_outputs_does_not_fit_and_is_warned_about(tmp_path: Path) -> None:
    """F46: what a format cannot hold is said."""
    row = {"timestamp": 0, "input_length": 4, "output_length": 1, "hash_ids": [1]}
    table = requests_from_mooncake_rows([row | {"output_token_ids": [5]}], 4)
    with pytest.warns(UserWarning, match="no column for the content of outputs"):
        write_simple_csv(table, tmp_path / "t.csv")
    assert read_simple_csv(tmp_path / "t.csv", 4).output_ids.size == 0


def test_name_or_format_must_say_how_to_write(tmp_path: Path) -> None:
    table = requests_from_arrays([0.0], [9], [1])
    with pytest.raises(
        WorkloadError, match=r"the name implies no format, allowed: .*\.jsonl or \.csv"
    ):
        write_trace(table, tmp_path / "t.txt")
    with pytest.raises(WorkloadError, match="got 'azure', allowed: mooncake, csv"):
        write_trace(table, tmp_path / "t.csv", "azure")
    write_trace(table, tmp_path / "t.txt", "csv")
    assert len(read_simple_csv(tmp_path / "t.txt")) == 1

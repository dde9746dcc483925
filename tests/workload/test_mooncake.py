"""Mooncake JSONL files and rows (workloads.md §4, §14, §15.1)."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from aisim_gym.errors import WorkloadError
from aisim_gym.workload import read_mooncake, requests_from_mooncake_rows

ROW: dict[str, object] = {
    "timestamp": 0.0,
    "input_length": 100,
    "output_length": 5,
    "hash_ids": [1, 2],
}


def row(**changes: object) -> dict[str, object]:
    """A valid row with some fields changed; a field set to ``...`` is left out."""
    return {name: value for name, value in (ROW | changes).items() if value is not ...}


def write_rows(path: Path, rows: list[dict[str, object]], newline: str = "\n") -> Path:
    path.write_bytes(newline.join(json.dumps(item) for item in rows).encode())
    return path


def test_timestamps_are_shifted_to_begin_at_zero() -> None:
    table = requests_from_mooncake_rows([row(timestamp=100), row(timestamp=105)])
    assert table.arrival_ms.tolist() == [0.0, 5.0]
    table = requests_from_mooncake_rows([row(timestamp=-5), row(timestamp=5)])
    assert table.arrival_ms.tolist() == [0.0, 10.0]


def test_rows_out_of_order_are_sorted_stably() -> None:
    table = requests_from_mooncake_rows([row(timestamp=t) for t in (50, 20, 50, 20)])
    assert table.arrival_ms.tolist() == [0.0, 0.0, 30.0, 30.0]
    assert table.row.tolist() == [1, 3, 0, 2]


def test_speedup_divides_after_the_shift() -> None:
    rows = [row(timestamp=0.1), row(timestamp=30.1)]
    table = requests_from_mooncake_rows(rows, arrival_speedup_ratio=3.0)
    assert table.arrival_ms.tolist() == [0.0, (30.1 - 0.1) / 3.0]


def test_missing_input_length_is_the_capacity_of_the_hash_ids() -> None:
    table = requests_from_mooncake_rows([row(input_length=...)], trace_block_size=16)
    assert table.input_tokens.tolist() == [32]


def test_null_counts_as_absent() -> None:
    table = requests_from_mooncake_rows([row(input_length=None, delay=None, session_id=None)])
    assert table.input_tokens.tolist() == [1024]


def test_surplus_hash_ids_take_numbers_but_belong_to_no_prompt() -> None:
    # Seen in the reference through outputs that repeat the number of a hash id.
    rows = [row(hash_ids=[7, 9], input_length=4), row(hash_ids=[7, 10], input_length=8)]
    table = requests_from_mooncake_rows(rows, trace_block_size=4)
    assert table.prompt_ids.tolist() == [0, 0, 2]


def test_aliases_and_unknown_fields_are_accepted() -> None:
    line = (
        '{"created_time": 7, "input_tokens": 6, "output_tokens": 0, "hash_ids": [4, 4], '
        '"x": {"timestamp": 1, "timestamp": 2}, "x": 2}'
    )
    table = requests_from_mooncake_rows([line], trace_block_size=4)
    assert (table.input_tokens[0], table.output_tokens[0]) == (6, 0)
    assert table.prompt_ids.tolist() == [0, 0]


def test_blank_lines_are_no_rows_but_count_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"\n{json.dumps(ROW)}\n  \n{json.dumps(row(timestamp=3))}\n\n{{\n")
    with pytest.raises(WorkloadError, match=r"failed to parse line 6 from .*t\.jsonl as JSON: "):
        read_mooncake(path)
    path.write_text(f"\n{json.dumps(ROW)}\n  \n{json.dumps(row(timestamp=3))}\n\n")
    assert read_mooncake(path).row.tolist() == [0, 1]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("name", ["trace.jsonl", "größe 東京.gz", "trace"])
def test_encoding_and_name_of_the_file_do_not_matter(
    tmp_path: Path, newline: str, bom: bytes, compressed: bool, name: str
) -> None:
    text = newline.join(json.dumps(row(timestamp=t)) for t in (0, 40)).encode()
    folder = tmp_path / "with space"
    folder.mkdir()
    path = folder / name
    path.write_bytes(gzip.compress(bom + text) if compressed else bom + text)
    assert read_mooncake(path).arrival_ms.tolist() == [0.0, 40.0]
    assert len(read_mooncake(str(path))) == 2


def test_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    write_rows(tmp_path / "t.jsonl", [ROW])
    assert len(read_mooncake("~/t.jsonl")) == 1


def test_relative_path_is_shown_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkloadError) as caught:
        read_mooncake("absent.jsonl")
    assert f"failed to open trace file {tmp_path / 'absent.jsonl'}: No such file" in str(
        caught.value
    )


def test_folder_and_damaged_files_are_workload_errors(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="failed to open trace file"):
        read_mooncake(tmp_path)
    whole = gzip.compress(("\n".join([json.dumps(ROW)] * 500)).encode())
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(whole[:-20])
    with pytest.raises(WorkloadError, match=r"failed to read line \d+ from .*cut"):
        read_mooncake(path)
    path.write_bytes(json.dumps(ROW).encode() + b'\n{"session_id": "\xff"}')
    with pytest.raises(WorkloadError, match=r"failed to read line 2 from .* not UTF-8"):
        read_mooncake(path)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_file_without_rows_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=r"trace file .*t\.jsonl did not contain any requests"):
        read_mooncake(path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (row(input_length=-5), "input_length: got -5, allowed: an integer 0 .."),
        (row(input_length=4.0), "input_length: got 4.0"),
        (row(input_length=True), "input_length: got true"),
        (row(output_length="5"), 'output_length: got "5"'),
        (row(output_length=2**64), "output_length: got 18446744073709551616"),
        (row(hash_ids=[1, -1]), "hash_ids: got -1, allowed: integers 0 .. 18446744073709551615"),
        (row(hash_ids=[1, 2**64]), "hash_ids: got 18446744073709551616"),
        (row(hash_ids=[1.0]), "hash_ids: got 1.0"),
        (row(hash_ids=[None]), "hash_ids: got null"),
        (row(hash_ids=7), "hash_ids: got 7, allowed: a list of integers"),
        (row(hash_ids={}), "hash_ids: got an object"),
        (row(timestamp="5"), 'timestamp: got "5", allowed: a finite number (ms)'),
        (row(timestamp=True), "timestamp: got true"),
        (row(timestamp=10**400), "timestamp: got 1000"),
        (row(delay="1"), 'delay: got "1"'),
        (row(session_id=1), "session_id: got 1, allowed: a string"),
        (row(session_id="\ud800"), "session_id: got "),
        (row(request_id=1), "request_id: got 1"),
        (row(priority=2**31), "priority: got 2147483648"),
        (row(strict_priority=-1), "strict_priority: got -1"),
        (row(policy_class=1), "policy_class: got 1"),
        (row(output_token_ids=[1, 2, 3, 4, 2**32]), "output_token_ids: got 4294967296"),
        (row(created_time=0), "created_time: got timestamp twice"),
        (row(input_tokens=None), "input_tokens: got input_length twice"),
        ('{"timestamp": 0, "timestamp": 1}', "timestamp: got timestamp twice"),
        ('{"timestamp": NaN}', "got NaN, allowed: JSON numbers"),
        ('{"x": -Infinity}', "got -Infinity"),
        ('{"timestamp": 1e999}', "timestamp: got Infinity"),
        ("[1,2]", "got [1, 2], allowed: a JSON object"),
        ("null", "got null, allowed: a JSON object"),
        ('{"timestamp": 1,', "Expecting property name"),
        ("{} {}", "Extra data"),
        ('{"x": ' + "[" * 100_000, ""),
    ],
)
def test_line_that_is_no_row_is_refused_with_the_reason(
    line: dict[str, object] | str, reason: str
) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    with pytest.raises(WorkloadError) as caught:
        requests_from_mooncake_rows([json.dumps(ROW), text], source="memory")
    assert f"failed to parse line 2 from memory as JSON: {reason}" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # The reference looks at hash ids, capacity, output length and output ids in this order.
        ({"hash_ids": ..., "output_length": ...}, "trace line 1 is missing hash_ids"),
        (
            {"input_length": 5000, "output_length": ...},
            "trace line 1 input_length 5000 exceeds hash_ids capacity 1024",
        ),
        ({"output_length": ...}, "trace line 1 is missing output_length"),
        (
            {"output_token_ids": [1], "delay": 4},
            "trace line 1 output_length 5 does not match output_token_ids length 1",
        ),
        ({"delay": -1}, "trace line 1 sets delay on the first turn of session request_1"),
        ({"output_length": 2**63}, "trace line 1 output_length 9223372036854775808 is above"),
        # Whole-trace checks: the start comes before the lengths.
        (
            {"timestamp": ..., "input_length": 0},
            "trace mode requires first_arrival_timestamp_ms for session request_1",
        ),
        ({"input_length": 0}, "session request_1 turn 0 must have a positive input_length"),
        (
            {"hash_ids": [], "input_length": ...},
            "session request_1 turn 0 must have a positive input_length",
        ),
    ],
)
def test_row_errors_have_the_words_and_the_order_of_the_reference(
    changes: Mapping[str, object], message: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        requests_from_mooncake_rows([row(**changes)])
    assert message in str(caught.value)


def test_parse_error_on_a_later_line_comes_before_whole_trace_errors() -> None:
    with pytest.raises(WorkloadError, match="failed to parse line 2"):
        requests_from_mooncake_rows([row(input_length=0), "{"])


def test_first_bad_session_in_order_of_appearance_is_reported() -> None:
    rows = [row(session_id="a"), row(timestamp=...), row(session_id="a", input_length=0, delay=1)]
    with pytest.raises(WorkloadError, match=r"session a turn 1 .*\(line 3 of <rows>\)"):
        requests_from_mooncake_rows(rows)
    with pytest.raises(WorkloadError, match="for session request_1 "):
        requests_from_mooncake_rows([row(timestamp=...), row(input_length=0)])


def test_start_that_overflows_is_refused() -> None:
    rows = [row(timestamp=-1.7e308), row(timestamp=1.7e308)]
    with pytest.raises(
        WorkloadError, match="session request_2 has invalid first_arrival_timestamp_ms inf"
    ):
        requests_from_mooncake_rows(rows)


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ([{}, {"delay": -1}], "trace line 2 has invalid delay -1"),
        ([{"timestamp": 9}, {"timestamp": 1}], "trace line 2 has invalid delay -8"),
        # A timestamp next to an explicit delay still counts as the last one seen.
        (
            [{"timestamp": 9}, {"timestamp": 1, "delay": 0.5}, {"timestamp": 0.5}],
            "trace line 3 has invalid delay -0.5",
        ),
        (
            [{"timestamp": ...}, {"timestamp": 1}],
            "trace line 2 for session a cannot infer delay without a previous timestamp",
        ),
        (
            [{"timestamp": ...}, {"timestamp": 1, "delay": 3}],
            "trace mode requires first_arrival_timestamp_ms for session a",
        ),
    ],
)
def test_bad_turn_of_a_session_is_refused_by_line(
    turns: list[dict[str, object]], message: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        requests_from_mooncake_rows([row(session_id="a", **turn) for turn in turns])
    assert message in str(caught.value)


@pytest.mark.parametrize("delay", [0, -0.0, None])
def test_session_of_one_turn_is_a_plain_request(delay: float | None) -> None:
    table = requests_from_mooncake_rows([row(session_id="a", delay=delay)])
    assert len(table) == 1


def test_objects_and_lines_may_be_mixed() -> None:
    table = requests_from_mooncake_rows([ROW, "", json.dumps(row(timestamp=1))])
    assert table.row.tolist() == [0, 1]


def test_object_with_a_number_that_is_not_finite_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"failed to parse line 1 .* timestamp: got NaN"):
        requests_from_mooncake_rows([row(timestamp=float("nan"))])


@pytest.mark.parametrize(
    ("block_size", "ratio", "message"),
    [
        (0, 1.0, "trace_block_size must be greater than 0"),
        (512, 0.0, "ratio must be a finite positive number, got 0"),
        (512, float("nan"), "ratio must be a finite positive number, got NaN"),
    ],
)
def test_bad_options_are_refused_in_the_words_of_the_reference(
    block_size: int, ratio: float, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        requests_from_mooncake_rows([ROW], block_size, ratio)

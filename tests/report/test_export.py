"""Writing a report to files."""

import csv
import json
import sys
from pathlib import Path

import pytest
from support.fleets import SmallRun, arrivals, every, run_small, small_fleet

from aisim_gym.report import write_report
from aisim_gym.report.atomic_file import replace_file


@pytest.fixture(scope="module")
def run() -> SmallRun:
    spec = small_fleet(prefill=1, decode=1, prefill_ms=10.0 / 3.0, transfer_gb_s=0.7)
    return run_small(spec, arrivals(every(1.1, 6)), [(3.0, 2, 2), (9.0, 1, 1)])


def test_files_read_back_equal(run: SmallRun, tmp_path: Path) -> None:
    write_report(run.report, tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert json.loads((folder / "summary.json").read_text("utf-8")) == run.summary
    assert json.loads((folder / "lifecycle.json").read_text("utf-8")) == run.operations
    lines = (folder / "requests.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line) for line in lines] == list(run.report.per_request or ())


def test_keys_keep_their_order_in_files(run: SmallRun, tmp_path: Path) -> None:
    write_report(run.report, tmp_path)
    assert list(json.loads((tmp_path / "summary.json").read_text("utf-8"))) == list(run.summary)


def test_csv_holds_all_flat_columns_to_the_last_digit(run: SmallRun, tmp_path: Path) -> None:
    write_report(run.report, tmp_path)
    with (tmp_path / "requests.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    records = list(run.report.per_request or ())
    assert [float(row["ttft_ms"]) for row in rows] == [record["ttft_ms"] for record in records]
    assert [int(row["input_length"]) for row in rows] == [8] * 6
    assert {row["session_id"] for row in rows} == {""}
    lists = {"routing_history", "admission_history", "pressure_record_ordinals"}
    assert list(rows[0]) == [name for name in records[0] if name not in lists]


def test_tick_history_has_a_line_per_tick(run: SmallRun, tmp_path: Path) -> None:
    write_report(run.report, tmp_path)
    with (tmp_path / "ticks.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["now_ms"], row["target_prefill"]) for row in rows] == [("3.0", "2"), ("9.0", "1")]
    assert rows[-1]["next_tick_ms"] == ""


def test_parquet_holds_typed_columns(run: SmallRun, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_report(run.report, tmp_path, parquet=True)
    table = parquet.read_table(tmp_path / "requests.parquet")
    assert run.report.per_request is not None
    assert table.to_pydict() == run.report.per_request.flat_columns
    types = {field.name: str(field.type) for field in table.schema}
    assert types["session_id"] == "string"
    assert (types["dispatched_at_ms"], types["decode_worker_idx"]) == ("double", "int64")


def test_missing_pyarrow_is_named_with_the_extra_and_nothing_is_written(
    run: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'aisim-gym\[parquet\]'"):
        write_report(run.report, tmp_path / "out", parquet=True)
    assert not (tmp_path / "out").exists()


def test_folder_holds_one_report_and_no_temporary_files(run: SmallRun, tmp_path: Path) -> None:
    write_report(run.report, tmp_path)
    bare = small_fleet(workers=1, capture_per_request=False)
    written = write_report(run_small(bare, arrivals([0.0])).report, tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(written)
    assert [path.name for path in written] == ["summary.json", "ticks.csv", "lifecycle.json"]


def test_file_stays_as_it_was_if_writing_fails(tmp_path: Path) -> None:
    target = tmp_path / "summary.json"
    target.write_text("old")

    def fail() -> None:
        with replace_file(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]

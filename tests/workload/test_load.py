"""From a workload spec to requests: formats, generator, detection, odd rates."""

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aisim_gym.errors import SpecError, UnsupportedError, WorkloadError
from aisim_gym.spec.generator import GeneratorSpec
from aisim_gym.spec.synthetic import SyntheticSpec
from aisim_gym.spec.workload import WorkloadSpec
from aisim_gym.workload import detect_trace_format, generate_requests, load_workload

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 00:00:00,4,5\n"


def mooncake_text(*timestamps: float) -> str:
    return "\n".join(
        json.dumps({"timestamp": t, "input_length": 8, "output_length": 2, "hash_ids": [1, 2]})
        for t in timestamps
    )


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_mooncake_spec_passes_block_size_and_ratio(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_text(10, 1010))
    spec = WorkloadSpec(trace_files=(path,), trace_block_size=4, arrival_speedup_ratio=2.0)
    table = load_workload(spec)
    assert table.arrival_ms.tolist() == [0.0, 500.0]
    assert table.trace_block_size == 4


def test_azure_spec_reads_a_csv_file(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", AZURE)
    assert len(load_workload(WorkloadSpec(trace_files=(path,), trace_format="azure"))) == 1


def test_generator_spec_is_sped_up_like_a_trace() -> None:
    generator = GeneratorSpec(duration_s=100)
    plain = generate_requests(generator)
    table = load_workload(WorkloadSpec(generator=generator, arrival_speedup_ratio=4.0))
    assert np.array_equal(table.arrival_ms, plain.arrival_ms / 4.0)
    assert np.array_equal(table.input_tokens, plain.input_tokens)


@pytest.mark.parametrize(
    ("timestamps", "rate"), [((0.0, 1_000_000.0), "0.002"), ((0.0, 0.01, 0.02), "1.5e+05")]
)
def test_odd_mean_rate_is_legal_but_warned_about(
    tmp_path: Path, timestamps: tuple[float, ...], rate: str
) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_text(*timestamps))
    with pytest.warns(UserWarning, match="mean rate is") as caught:
        load_workload(WorkloadSpec(trace_files=(path,)))
    assert len(caught) == 1
    assert f"mean rate is {rate} requests per second" in str(caught[0].message)


def test_requests_at_one_instant_are_not_warned_about(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_text(5, 5, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load_workload(WorkloadSpec(trace_files=(path,)))) == 3


def session_text(*fields: dict[str, object]) -> str:
    row = {"input_length": 8, "output_length": 2, "hash_ids": [1, 2], "session_id": "a"}
    return "\n".join(json.dumps(row | extra) for extra in fields)


def test_delta_format_adds_up_the_turns(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", session_text({"timestamp": 0}, {"delay": 3}))
    spec = WorkloadSpec(trace_files=(path,), trace_format="mooncake-delta", trace_block_size=4)
    table = load_workload(spec)
    assert table.is_delta
    assert table.input_tokens.tolist() == [8, 18]
    assert not load_workload(spec.model_copy(update={"trace_format": "mooncake"})).is_delta


def test_closed_loop_makes_sessions_and_ignores_times_and_their_rate(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_text(0, 1e9))
    spec = WorkloadSpec(trace_files=(path,), replay_concurrency=2, arrival_speedup_ratio=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_workload(spec).session_ids == ("request_1", "request_2")


def test_closed_loop_leaves_lists_without_sessions_as_they_are(tmp_path: Path) -> None:
    rows = "2023-11-16 00:00:09,4,5\n2023-11-16 00:00:03,4,5\n"
    path = write(tmp_path / "t.csv", AZURE + rows)
    closed: dict[str, Any] = {"replay_concurrency": 3, "arrival_speedup_ratio": 0.0}
    table = load_workload(WorkloadSpec(trace_files=(path,), trace_format="azure", **closed))
    assert table.row.tolist() == [0, 2, 1]
    assert not table.has_sessions
    generator = GeneratorSpec(duration_s=100)
    table = load_workload(WorkloadSpec(generator=generator, **closed))
    assert np.array_equal(table.arrival_ms, generate_requests(generator).arrival_ms)


def test_synthetic_generator_uses_the_pace_of_the_workload_and_the_blocks_of_the_engine() -> None:
    generator = SyntheticSpec(
        input_tokens=8,
        output_tokens=1,
        request_count=3,
        arrival_interval_ms=30.0,
        shared_prefix_ratio=0.5,
        num_prefix_groups=1,
    )
    spec = WorkloadSpec(generator=generator, arrival_speedup_ratio=3.0)
    table = load_workload(spec, 2)
    assert table.start_ms.tolist() == pytest.approx([0.0, 10.0, 20.0])
    assert (table.trace_block_size, table.prompt_ids.tolist()) == (2, [0, 1] * 3)


def test_odd_rate_of_sessions_is_warned_about(tmp_path: Path) -> None:
    late = {"timestamp": 1e6, "session_id": "b"}
    path = write(tmp_path / "t.jsonl", session_text({"timestamp": 0}, {"delay": 1}, late))
    with pytest.warns(UserWarning, match=r"is 0\.002 sessions per second \(2 in 1000 s\)"):
        load_workload(WorkloadSpec(trace_files=(path,)))


def test_trace_without_a_file_or_a_reader_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="trace replay requires at least one trace file"):
        load_workload(WorkloadSpec())
    path = write(tmp_path / "t.jsonl", mooncake_text(0))
    for name in ("weka", "agentic_mooncake", "applied_compute_agentic", "dynamo"):
        spec = WorkloadSpec.from_data({"trace_files": [str(path)], "trace_format": name})
        with pytest.raises(UnsupportedError, match=f"trace_format='{name}' is not replayed yet"):
            load_workload(spec)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (mooncake_text(0), "mooncake"),
        ("\n  \n" + mooncake_text(0), "mooncake"),
        ("\ufeff" + mooncake_text(0), "mooncake"),
        ("{broken", "mooncake"),
        (AZURE, "azure"),
        ("\ufeff" + AZURE.replace("\n", "\r\n"), "azure"),
        ("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n", "burstgpt"),
        ("input_tokens, output_tokens, arrival_s\r\n", "csv"),
        ("arrival_ms,input_tokens,output_tokens,hash_ids\n", "csv"),
        ('{"schema": "dynamo.agentic_mooncake", "version": 2}', "agentic_mooncake"),
        ('{"schema": "dynamo.request.trace.v1"}', "dynamo"),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_format_is_told_by_the_first_line(
    tmp_path: Path, text: str, expected: str, compressed: bool
) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    assert detect_trace_format(path) == expected


def test_unknown_format_lists_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "a,b,c\n1,2,3\n")
    with pytest.raises(
        WorkloadError, match=r"begins with 'a,b,c', known: mooncake .* azure .* csv"
    ):
        detect_trace_format(path)
    with pytest.raises(WorkloadError, match="did not contain any requests"):
        detect_trace_format(write(path, "\n"))
    with pytest.raises(WorkloadError, match="failed to open trace file"):
        detect_trace_format(tmp_path / "absent")


def csv_text(*arrivals_s: float) -> str:
    rows = (f"{arrival},{100 + index},{index}" for index, arrival in enumerate(arrivals_s))
    return "\n".join(("arrival_s,input_tokens,output_tokens", *rows))


def csv_spec(path: Path, *arrivals_s: float, **fields: object) -> WorkloadSpec:
    data = {"trace_files": [str(write(path, csv_text(*arrivals_s)))], "trace_format": "csv"}
    return WorkloadSpec.from_data(data | fields)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mooncake", mooncake_text(3, 5)),
        ("burstgpt", "Timestamp,Request tokens,Response tokens\n3,8,2\n5,8,2\n"),
    ],
)
@pytest.mark.parametrize(("unit", "gap_ms"), [("s", 2000.0), ("ms", 2.0)])
def test_time_unit_of_the_spec_wins_over_the_usual_one(
    tmp_path: Path, name: str, text: str, unit: str, gap_ms: float
) -> None:
    """F44: the unit can be said, and there is a usual one per format."""
    path = write(tmp_path / "t", text)
    data = {"trace_files": [str(path)], "trace_format": name, "trace_block_size": 4}
    table = load_workload(WorkloadSpec.from_data(data | {"time_unit": unit}))
    assert table.arrival_ms.tolist() == [0.0, gap_ms]
    usual = "ms" if name == "mooncake" else "s"
    with warnings.catch_warnings(record=True):
        usual_table = load_workload(WorkloadSpec.from_data(data))
    assert (usual_table.arrival_ms[1] == gap_ms) == (unit == usual)


def test_seconds_in_a_session_trace_are_seconds_for_delays_too(tmp_path: Path) -> None:
    rows = session_text({"timestamp": 7.0}, {"delay": 1.5}, {"timestamp": 12.0})
    path = write(tmp_path / "t.jsonl", rows)
    table = load_workload(WorkloadSpec(trace_files=(path,), trace_block_size=4, time_unit="s"))
    # The last turn's delay counts from the last stamp that was given.
    assert table.delay_ms.tolist() == [0.0, 1500.0, 5000.0]


def test_warning_about_an_odd_rate_names_the_unit_read(tmp_path: Path) -> None:
    """F44: seconds taken for milliseconds, or the reverse, are noticed."""
    path = write(tmp_path / "t", "Timestamp,Request tokens,Response tokens\n0,8,2\n90000,8,2\n")
    spec = WorkloadSpec(trace_files=(path,), trace_format="burstgpt")
    with pytest.warns(UserWarning, match="times are read as s: is another time_unit meant?"):
        load_workload(spec)


def test_time_unit_is_refused_where_the_file_says_it(tmp_path: Path) -> None:
    for name in ("azure", "csv"):
        with pytest.raises(SpecError, match="time_unit is for mooncake, mooncake-delta, burstgpt"):
            WorkloadSpec.from_data({"trace_format": name, "time_unit": "s"})
    with pytest.raises(SpecError, match="time_unit"):
        WorkloadSpec.from_data({"time_unit": "min"})


def test_changes_are_made_in_the_documented_order(tmp_path: Path) -> None:
    """F49: stamps are spread before the slice, which is rebased and then sped up."""
    spec = csv_spec(
        tmp_path / "t.csv",
        *(10, 12, 12, 14, 16, 20),
        spread_ms=4000.0,
        start_s=4.0,
        duration_s=4.0,
        arrival_speedup_ratio=2.0,
        max_input_tokens=103,
    )
    # 0, 2, 2 + 2, 4, 6, 10 s; from 4 s on 0, 0, 2; the prompt of the last one has 104 tokens.
    with pytest.warns(UserWarning, match="1 of 3 requests are longer than allowed"):
        table = load_workload(spec)
    assert table.row.tolist() == [2, 3]
    assert table.arrival_ms.tolist() == [0.0, 0.0]
    longer = spec.model_copy(update={"max_input_tokens": None})
    assert load_workload(longer).arrival_ms.tolist() == [0.0, 0.0, 1000.0]


def test_overlong_requests_are_cut_if_the_spec_says_so(tmp_path: Path) -> None:
    spec = csv_spec(tmp_path / "t.csv", 0, 1, 2, max_total_tokens=102, overlong="clip")
    with pytest.warns(UserWarning, match=r"\(max_total_tokens 102\) and cut"):
        table = load_workload(spec)
    assert table.input_tokens.tolist() == [100, 101, 101]
    assert table.output_tokens.tolist() == [0, 1, 1]


def test_rate_scale_draws_with_its_seed(tmp_path: Path) -> None:
    times = np.arange(200) * 0.5
    first = load_workload(csv_spec(tmp_path / "a.csv", *times, rate_scale=0.5))
    again = load_workload(csv_spec(tmp_path / "b.csv", *times, rate_scale=0.5))
    other = load_workload(csv_spec(tmp_path / "c.csv", *times, rate_scale=0.5, rate_seed=1))
    assert np.array_equal(first.row, again.row)
    assert not np.array_equal(first.row, other.row)


def test_changes_apply_to_generated_requests_too() -> None:
    generator = GeneratorSpec(duration_s=100)
    plain = generate_requests(generator).between(20_000.0, 50_000.0)
    table = load_workload(WorkloadSpec(generator=generator, start_s=20, duration_s=30))
    assert np.array_equal(table.arrival_ms, plain.arrival_ms)


@pytest.mark.parametrize(
    "change", [{"spread_ms": 1.0}, {"start_s": 1.0}, {"duration_s": 1.0}, {"rate_scale": 2.0}]
)
def test_changes_of_times_are_refused_in_a_closed_loop(change: dict[str, float]) -> None:
    with pytest.raises(SpecError, match=f"{next(iter(change))} is for requests that arrive as"):
        WorkloadSpec.from_data({"replay_concurrency": 2} | change)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("spread_ms", -1.0),
        ("start_s", float("nan")),
        ("duration_s", 0.0),
        ("rate_scale", 0.0),
        ("rate_scale", float("inf")),
        ("max_input_tokens", 0),
        ("max_total_tokens", 1),
        ("overlong", "cut"),
    ],
)
def test_changes_out_of_range_are_refused_by_name(field: str, value: object) -> None:
    """F50: no rate of 0, no NaN, no infinity."""
    with pytest.raises(SpecError, match=field):
        WorkloadSpec.from_data({field: value})


def test_changed_workload_survives_json(tmp_path: Path) -> None:
    spec = csv_spec(tmp_path / "t.csv", 0, 1, spread_ms=2.0, rate_scale=1.5, overlong="clip")
    assert WorkloadSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize("name", ["mooncake", "azure", "burstgpt", "csv"])
def test_every_format_is_read_from_any_folder_with_any_line_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """F42: blanks and non-ASCII letters in the path, ``~``, CRLF, gzip, byte order mark."""
    text = {
        "mooncake": mooncake_text(0, 4000),
        "azure": AZURE + "2023-11-16 00:00:04,4,5\n",
        "burstgpt": "Timestamp,Model,Request tokens,Response tokens\n1,a b,8,2\n5,c,8,2\n",
        "csv": csv_text(1, 5),
    }[name]
    folder = tmp_path / "with blanks" / "ünïcode 東京"
    folder.mkdir(parents=True)
    content = f"\ufeff{text}".replace("\n", "\r\n").encode()
    monkeypatch.setenv("HOME", str(tmp_path))
    for file, data in (("plain trace", content), ("packed.gz", gzip.compress(content))):
        (folder / file).write_bytes(data)
        path = Path("~") / "with blanks" / "ünïcode 東京" / file
        assert detect_trace_format(path) == name
        spec = WorkloadSpec.from_data({"trace_files": [str(path)], "trace_format": name})
        assert load_workload(spec).arrival_ms.tolist() == [0.0, 4000.0]


@pytest.mark.parametrize("name", ["mooncake", "azure", "burstgpt", "csv"])
def test_error_shows_the_absolute_path_that_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """F38: the path of the user wins, and an error names it in full."""
    monkeypatch.chdir(tmp_path)
    spec = WorkloadSpec.from_data({"trace_files": ["absent.csv"], "trace_format": name})
    with pytest.raises(WorkloadError, match="failed to open trace file") as caught:
        load_workload(spec)
    assert str(tmp_path / "absent.csv") in str(caught.value)

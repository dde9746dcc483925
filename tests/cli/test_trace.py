"""``aisim-gym trace``: info, plot, convert, generate."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli import run_cli
from support.shared_folder import require_shared

from aisim_gym.cli.spec_options import SpecOptions, build_spec
from aisim_gym.spec import GeneratorSpec, ReplaySpec, TrafficSpec
from aisim_gym.workload import (
    build_prompt_blocks,
    generate_requests,
    read_mooncake,
    read_simple_csv,
    trace_statistics,
)

COMMANDS = ("info", "plot", "convert", "generate")


def write_csv(path: Path, rows: int = 40) -> Path:
    lines = (f"{index / 2},{100 + index},{index}" for index in range(rows))
    path.write_text("\n".join(("arrival_s,input_tokens,output_tokens", *lines)))
    return path


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str) -> None:
    result = run_cli("trace", command, "--help")
    assert result.status == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", result.out)
    assert f"Example: aisim-gym trace {command} " in text
    assert command in run_cli("trace", "--help").out


def test_info_has_a_column_per_file(trace: Path, tmp_path: Path) -> None:
    result = run_cli("trace", "info", trace, write_csv(tmp_path / "other.csv"))
    assert result.status == 0, result.err
    cells = [
        [cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in result.out.splitlines()
    ]
    table = {row[0]: row[1:] for row in cells if len(row) == 3}
    assert table["requests"] == ["20", "40"]
    assert table["mean rate, 1/s"] == ["2.105", "2.051"]
    assert table["input tokens, mean"] == ["300", "119.5"]
    assert table["hash ids"] == ["20", "–"]  # noqa: RUF001
    assert table["reusable input share"] == ["0.000", "–"]  # noqa: RUF001


def test_info_breaks_no_number_however_many_files_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"a_public_trace_of_{i}.csv" for i in range(6)]
    rows = [2 + 10**i for i in range(6)]
    for name, num_rows in zip(names, rows, strict=True):
        write_csv(tmp_path / name, num_rows)
    result = run_cli("trace", "info", *(tmp_path / name for name in names))
    assert result.status == 0, result.err
    assert max(map(len, result.out.splitlines())) <= 80
    cells = [
        [cell.strip() for cell in re.split("[│┃]", line)[1:-1]] for line in result.out.splitlines()
    ]
    shown: dict[str, list[str]] = {}
    for measure, *values in filter(None, cells):
        shown.setdefault(measure, []).extend(values)
    assert shown["requests"] == [f"{num_rows:,}" for num_rows in rows]
    # Lines without a measure are the beginnings of folded names, nothing else.
    heads = ["".join(parts) for parts in zip(shown[""], shown["measure"], strict=True)]
    assert heads == names


def test_info_on_a_wide_screen_folds_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    names = [f"a_public_trace_of_{i}.csv" for i in range(2)]
    result = run_cli("trace", "info", *(write_csv(tmp_path / name) for name in names))
    assert all(name in result.out for name in names)


def test_info_as_json_says_file_and_format(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "ä b.csv")
    (found,) = json.loads(run_cli("trace", "info", path, "--json").out)
    assert (found["file"], found["format"], found["requests"]) == (str(path), "csv", 40)
    assert found["input_tokens"]["max"] == 139
    assert found["idc_60s"] is None


def test_info_on_a_public_trace_has_the_published_numbers() -> None:
    path = require_shared("data", "traces", "azure_llm_2023_conv.csv.gz")
    (found,) = json.loads(run_cli("trace", "info", path, "--json").out)
    assert found["idc_300s"] == pytest.approx(56.09, abs=0.01)
    assert found["cv_in_minute"] == pytest.approx(1.026, abs=5e-4)


def test_plot_writes_a_picture(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = run_cli("trace", "plot", trace, "--out", tmp_path / "picture.png")
    assert result.status == 0, result.err
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_converted_trace_keeps_hash_ids_there_and_back(tmp_path: Path) -> None:
    """F46: export and import keep the prefix hits."""
    source = require_shared("data", "traces", "excerpts", "mooncake_synthetic_500.jsonl")
    packed, back = tmp_path / "t.csv.gz", tmp_path / "back.jsonl"
    assert run_cli("trace", "convert", source, packed).status == 0
    result = run_cli("trace", "convert", packed, back)
    assert re.search(r"back\.jsonl: 500 requests over .* s, .* req/s, .*times in ms", result.out)
    before, after = read_mooncake(source), read_mooncake(back)
    assert np.array_equal(before.arrival_ms, after.arrival_ms)
    assert np.array_equal(before.prompt_ids, after.prompt_ids)
    assert np.array_equal(before.prompt_starts, after.prompt_starts)
    assert trace_statistics(before).reusable_frac == trace_statistics(after).reusable_frac
    assert build_prompt_blocks(after, 64).num_shared > 0


def test_convert_makes_all_changes(tmp_path: Path) -> None:
    source, target = write_csv(tmp_path / "in.csv"), tmp_path / "out.jsonl"
    with pytest.warns(UserWarning, match=r"18 of 40 requests .*\(max_input_tokens 120\) and cut"):
        result = run_cli(
            *("trace", "convert", source, target, "--spread-ms", "10", "--start-s", "5"),
            *("--duration-s", "10", "--rate-scale", "2", "--seed", "4", "--time-scale", "0.5"),
            *("--max-input-tokens", "120", "--clip"),
        )
    assert result.status == 0, result.err
    table = read_mooncake(target)
    assert len(table) == 40
    assert table.input_tokens.max() == 120
    assert table.duration_s < 5.5
    assert table.arrival_ms[np.argmax(table.output_tokens == 11)] >= 250.0


def test_convert_tells_how_to_read_what_the_file_does_not_say(tmp_path: Path) -> None:
    row = {"input_length": 6, "output_length": 2, "hash_ids": [1, 2], "session_id": "a"}
    rows = [row | {"timestamp": 0}, row | {"delay": 3}]
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(map(json.dumps, rows)))
    flags = ("--trace-format", "mooncake-delta", "--trace-block-size", "4")
    result = run_cli("trace", "convert", source, tmp_path / "out.jsonl", *flags)
    assert f"read it with {' '.join(flags)}" in result.out
    again = run_cli("trace", "info", tmp_path / "out.jsonl", *flags, "--json")
    assert json.loads(again.out)[0]["sessions"] == 1
    result = run_cli("trace", "convert", source, tmp_path / "out.csv", *flags)
    assert (result.status, "our CSV holds lists" in result.err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--time-scale", "0"), "--time-scale: got 0, allowed: finite and > 0"),
        (("--rate-scale", "0"), "rate_scale must be finite and positive, got 0"),
        (("--spread-ms", "-1"), "spread_ms must be finite and non-negative, got -1"),
        (("--seed", "1"), "--seed changes nothing without --rate-scale"),
        (("--clip",), "--clip changes nothing without --max-input-tokens or --max-total-tokens"),
        (("--start-s", "90"), "nothing arrives from start_s 90 on"),
        (("--trace-format", "cvs"), "did you mean `csv`?"),
        (("--format", "azure"), "trace format to write: got 'azure', allowed: mooncake, csv"),
        (("--time-unit", "ms"), "time_unit is for mooncake"),
    ],
)
def test_bad_flag_is_told_in_a_paragraph_and_nothing_is_written(
    tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    source = write_csv(tmp_path / "in.csv")
    result = run_cli("trace", "convert", source, tmp_path / "out.csv", *flags)
    assert result.status == 2
    assert message in result.err
    assert result.err.startswith("aisim-gym: ")
    assert list(tmp_path.iterdir()) == [source]


def test_target_without_folder_or_known_ending_is_refused(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "in.csv")
    result = run_cli("trace", "convert", source, tmp_path / "no" / "out.csv")
    assert f"there is no folder {tmp_path / 'no'}" in result.err
    result = run_cli("trace", "convert", source, tmp_path / "out.txt")
    assert (result.status, "the name implies no format" in result.err) == (2, True)


def test_interrupted_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_csv(tmp_path / "in.csv")
    target = tmp_path / "out.csv"
    target.write_text("old")

    def write_half(requests: object, path: Path, *_: object, **__: object) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr("aisim_gym.cli.trace_options.write_trace", write_half)
    assert run_cli("trace", "convert", source, target).status == 130
    assert target.read_text() == "old"
    assert sorted(tmp_path.iterdir()) == [source, target]


def test_generate_from_fields_equals_the_generator(tmp_path: Path) -> None:
    target = tmp_path / "chat.csv.gz"
    fields = ("--set", "kind=chat-wave", "--set", "duration_s=100", "--set", "seed=5")
    result = run_cli("trace", "generate", target, *fields)
    assert result.status == 0, result.err
    assert re.search(r"req/s, .*csv, times in ms", result.out)
    expected = generate_requests(GeneratorSpec(duration_s=100, seed=5))
    table = read_simple_csv(target)
    assert np.array_equal(table.arrival_ms, expected.arrival_ms - expected.arrival_ms[0])
    assert np.array_equal(table.output_tokens, expected.output_tokens)
    assert gzip.decompress(target.read_bytes()).startswith(b"arrival_ms,")


def test_generate_from_a_spec_file_which_flags_win_over(tmp_path: Path) -> None:
    spec: dict[str, Any] = {
        "fleet": {"kind": "agg"},
        "workload": {"generator": {"duration_s": 100, "seed": 5}, "duration_s": 50},
    }
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec))
    assert run_cli("trace", "generate", file, tmp_path / "a.jsonl").status == 0
    expected = generate_requests(GeneratorSpec(duration_s=100, seed=5)).between(0.0, 50_000.0)
    assert len(read_mooncake(tmp_path / "a.jsonl")) == len(expected)
    assert run_cli("trace", "generate", file, tmp_path / "b.jsonl", "--set", "seed=6").status == 0
    other = generate_requests(GeneratorSpec(duration_s=100, seed=6)).between(0.0, 50_000.0)
    assert len(read_mooncake(tmp_path / "b.jsonl")) == len(other) != len(expected)


def test_generated_prefixes_are_blocks_of_the_engine(tmp_path: Path) -> None:
    fields = {
        **{"kind": "synthetic", "input_tokens": 256, "output_tokens": 2, "request_count": 3},
        **{"arrival_interval_ms": 5.0, "shared_prefix_ratio": 0.5, "num_prefix_groups": 1},
    }
    settings = [part for name, value in fields.items() for part in ("--set", f"{name}={value}")]
    result = run_cli("trace", "generate", tmp_path / "t.jsonl", *settings)
    assert result.status == 0, result.err
    size = int(result.out.rpartition("--trace-block-size ")[2])
    table = read_mooncake(tmp_path / "t.jsonl", size)
    assert trace_statistics(table).reusable_frac == pytest.approx(2 / 3 * 0.5)


def test_preset_is_one_of_the_traffic_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []

    def record(file: Path | None, options: SpecOptions) -> ReplaySpec:
        given.extend(options.settings)
        return build_spec(file, SpecOptions(settings=["workload.generator.duration_s=30"]))

    monkeypatch.setattr("aisim_gym.cli.trace_options.build_spec", record)
    run_cli("trace", "generate", tmp_path / "t.csv", "--preset", "azure-chat", "--set", "seed=2")
    assert given == [
        "workload.generator.kind=traffic",
        "workload.generator.preset=azure-chat",
        "workload.generator.seed=2",
    ]


def test_fields_of_traffic_need_no_kind(tmp_path: Path) -> None:
    target, fields = tmp_path / "t.csv", ("--set", "preset=steady", "--set", "duration_s=20")
    result = run_cli("trace", "generate", target, *fields)
    assert result.status == 0, result.err
    expected = generate_requests(TrafficSpec(preset="steady", duration_s=20.0))
    assert np.array_equal(read_simple_csv(target).output_tokens, expected.output_tokens)


def test_nothing_to_generate_is_refused(tmp_path: Path) -> None:
    result = run_cli("trace", "generate", tmp_path / "t.csv")
    assert (result.status, "nothing to generate: give a spec file" in result.err) == (2, True)
    result = run_cli("trace", "generate", "a.toml", "b.toml", "c.csv")
    assert "got 3 files, allowed: a spec (or none) and the file to write" in result.err

"""``aisim-gym replay``: spec file and flags, results, errors."""

import json
import re
import sys
from pathlib import Path

import pytest
from support.cli import run_cli

from aisim_gym.cli.results_table import NO_SAMPLES
from aisim_gym.cli.run_folder import prepare_folder
from aisim_gym.cli.spec_options import SpecOptions, build_spec
from aisim_gym.errors import SpecError
from aisim_gym.replay import Replay
from aisim_gym.spec import AggregatedFleet, DisaggregatedFleet, load_spec

FILES = {
    "summary.json",
    "ticks.csv",
    "lifecycle.json",
    "requests.jsonl",
    "requests.csv",
    "manifest.json",
}


@pytest.fixture
def spec_file(tmp_path: Path, trace: Path) -> Path:
    """An aggregated fleet of two workers; the trace is named relative to the file."""
    path = tmp_path / "spec.toml"
    path.write_text(
        '[fleet]\nkind = "agg"\nnum_workers = 2\n[fleet.engine.engine]\nnum_gpu_blocks = 512\n'
        f'[workload]\ntrace_files = ["{trace.name}"]\n'
    )
    return path


def test_trace_and_flags_give_table_report_and_picture(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = run_cli(
        *("replay", "--trace", trace, "--prefill", "1", "--decode", "2", "--startup-s", "3"),
        *("--policy", "hpa", "--tick-s", "15", "--max-workers", "4", "--ttft-slo-ms", "500"),
        *("--itl-slo-ms", "30", "--set", "fleet.prefill.engine.num_gpu_blocks=256", "--out", out),
    )
    assert result.status == 0, result.err
    assert "20 of 20 arrived" in result.out
    assert "100.00 % of requests" in result.out
    written = {path.name for path in out.iterdir()}
    assert written - {"run.png"} == FILES
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["planner"] == {"name": "hpa", "parameters": {}}
    assert manifest["is_partial"] is False
    fleet = load_spec(manifest["spec"]).fleet
    assert isinstance(fleet, DisaggregatedFleet)
    assert fleet.prefill.engine.num_gpu_blocks == 256
    assert (fleet.num_decode_workers, fleet.decode.startup_time) == (2, 3.0)


def test_spec_file_alone_is_enough(spec_file: Path) -> None:
    result = run_cli("replay", spec_file)
    assert result.status == 0, result.err
    assert "20 of 20 arrived" in result.out


@pytest.mark.parametrize("backend", ["vllm", "trtllm", "sglang"])
def test_every_backend_is_replayed(spec_file: Path, backend: str) -> None:
    result = run_cli("replay", spec_file, "--backend", backend)
    assert result.status == 0, result.err
    assert _rows(result.out)["requests completed"] == "20 of 20 arrived"


def test_closed_loop_runs_so_many_requests_at_a_time(spec_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = run_cli("replay", spec_file, "--concurrency", "3", "--out", out)
    assert result.status == 0, result.err
    records = [json.loads(line) for line in (out / "requests.jsonl").read_text().splitlines()]
    assert [record["arrival_time_ms"] for record in records][:4].count(0.0) == 3
    assert {record["turn_index"] for record in records} == {0}  # each line is a session


def test_telemetry_is_written_to_the_folder(spec_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = run_cli("replay", spec_file, "--telemetry-ms", "1000", "--out", out)
    assert result.status == 0, result.err
    assert "telemetry.jsonl" in result.out
    samples = [json.loads(line) for line in (out / "telemetry.jsonl").read_text().splitlines()]
    assert [sample["kind"] for sample in samples][:2] == ["baseline", "periodic"]
    assert samples[1]["sampled_at_ms"] == 1000.0


def test_without_matplotlib_there_is_no_picture_but_a_hint(
    spec_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aisim_gym.cli.run_folder.can_plot", lambda: False)
    result = run_cli("replay", spec_file, "--out", tmp_path / "run")
    assert result.status == 0
    assert "pip install 'aisim-gym[plot]'" in result.err
    assert not (tmp_path / "run" / "run.png").exists()


def test_flags_win_over_the_file(spec_file: Path, trace: Path) -> None:
    options = SpecOptions(
        workers=3,
        startup_s=7.0,
        speedup=2.0,
        ttft_slo_ms=100.0,
        max_sim_time_ms=5000.0,
        settings=("fleet.engine.engine.num_gpu_blocks=128", "fleet.engine.engine.block_size=16"),
    )
    spec = build_spec(spec_file, options)
    assert isinstance(spec.fleet, AggregatedFleet)
    assert (spec.fleet.num_workers, spec.fleet.engine.startup_time) == (3, 7.0)
    engine = spec.fleet.engine.engine
    assert (engine.num_gpu_blocks, engine.block_size) == (128, 16)
    assert spec.workload.trace_files == (trace,)
    assert spec.workload.arrival_speedup_ratio == 2.0
    assert (spec.sla.ttft_ms, spec.max_sim_time_ms) == (100.0, 5000.0)


def test_trace_flag_replaces_a_generator_and_finds_the_format(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text('{"fleet": {"kind": "agg"}, "workload": {"generator": {"seed": 3}}}')
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,10,2\n")
    spec = build_spec(file, SpecOptions(trace=trace))
    assert spec.workload.generator is None
    assert spec.workload.trace_format == "azure"


def test_set_reads_json_and_falls_back_to_text(trace: Path) -> None:
    settings = ("fleet.engine.engine.max_num_seqs=null", "fleet.engine.engine.preemption_mode=fifo")
    spec = build_spec(None, SpecOptions(trace=trace, settings=settings))
    assert isinstance(spec.fleet, AggregatedFleet)
    engine = spec.fleet.engine.engine
    assert (engine.max_num_seqs, engine.preemption_mode) == (None, "fifo")


def test_prefill_flag_does_not_fit_an_aggregated_file(spec_file: Path) -> None:
    with pytest.raises(SpecError, match=r"--prefill, --decode: fleet.kind in the spec file is"):
        build_spec(spec_file, SpecOptions(prefill=2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.toml"], "cannot read nowhere.toml: No such file or directory"),
        (["--trace", "nowhere.csv"], "nowhere.csv: No such file or directory"),
        (["--workers", "2"], "no workload: give --trace FILE"),
        (["TRACE", "--policy", "hap"], "unknown planner 'hap'; did you mean `hpa`?"),
        (["TRACE", "--policy", "hpa", "--param", "tolerence_up=1"], "did you mean `tolerance_up`"),
        (["TRACE", "--policy", "schedule", "--param", "entrys=1"], "--policy schedule: "),
        (["TRACE", "--policy", "static"], "its parameters are given with --param NAME=VALUE"),
        (["TRACE", "--policy", "schedule"], "its parameters are given with --param NAME=VALUE"),
        (["TRACE", "--set", "ticks.initial_tick_ms=0"], "ticks.initial_tick_ms: got 0"),
        (["TRACE", "--parquet"], "--parquet: there is nowhere to write to"),
        (
            ["TRACE", "--parquet", "--out", "x", "--set", "capture_per_request=false"],
            "--parquet: there are no records per request",
        ),
        (["TRACE", "--param", "a=1"], "--param: there is no planner"),
        (["TRACE", "--policy", "hpa", "--param", "a"], "--param: got 'a', expected name=value"),
        (["TRACE", "--set", "fleet.num_worker=2"], "did you mean `num_workers`?"),
        (["TRACE", "--set", "fleet.num_workers"], "--set: got 'fleet.num_workers', expected"),
        (["TRACE", "--set", "fleet.kind.x=1"], "fleet.kind is 'agg', expected a table"),
        (["TRACE", "--workers", "0"], "fleet.num_workers: "),
        (["TRACE", "--workers", "1", "--decode", "1"], "got both"),
        (["TRACE", "--tick-s", "0"], "tick_s: got 0.0, expected >= 0.001"),
        (["TRACE", "--backend", "sgl"], "unknown variant `sgl`, expected one of `vllm`, `sglang`"),
        (["TRACE", "--concurrency", "0"], "replay_concurrency must be at least 1, got 0"),
        (["TRACE", "--telemetry-ms", "0"], "telemetry_sample_interval_ms must be a positive"),
    ],
)
def test_bad_input_exits_with_2_and_says_what_is_allowed(
    trace: Path, arguments: list[str], message: str
) -> None:
    if arguments[0] == "TRACE":
        arguments = ["--trace", str(trace), *arguments[1:]]
    result = run_cli("replay", *arguments)
    assert result.status == 2
    assert message in result.err
    assert result.err.startswith("aisim-gym: ")
    assert "Traceback" not in result.err


def test_bad_field_of_a_file_names_the_file(spec_file: Path) -> None:
    spec_file.write_text(spec_file.read_text() + 'router_mod = "x"\n')
    result = run_cli("replay", spec_file)
    assert result.status == 2
    assert "router_mod" in result.err
    assert spec_file.name in result.err


def test_typo_is_told_rather_than_the_missing_workload(spec_file: Path) -> None:
    spec_file.write_text('[fleet]\nkind = "agg"\nnum_worker = 2\n')
    result = run_cli("replay", spec_file)
    assert result.status == 2
    assert "did you mean `num_workers`?" in result.err
    assert "no workload" not in result.err


def test_first_tick_of_the_spec_comes_before_that_of_the_planner(
    spec_file: Path, tmp_path: Path
) -> None:
    arguments = ("--policy", "static", "--param", "replicas=2", "--out", tmp_path / "run")
    result = run_cli("replay", spec_file, *arguments, "--set", "ticks.initial_tick_ms=2500")
    assert result.status == 0, result.err
    _, first = (tmp_path / "run" / "ticks.csv").read_text().splitlines()
    assert first.startswith("0,2500.0,")


@pytest.mark.parametrize("place", ["spec.toml", "spec.toml/inside"])
def test_unusable_folder_is_told_before_anything_runs(
    spec_file: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replay, "follow", lambda *_: pytest.fail("it ran"))
    out = spec_file.parent / place
    result = run_cli("replay", spec_file, "--out", out)
    assert result.status == 2
    assert result.err == (
        f"aisim-gym: --out {out}: not a folder; expected a folder that can be created or "
        "written to\n"
    )


def test_folder_without_permission_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("aisim_gym.cli.run_folder.tempfile.TemporaryFile", refuse)
    with pytest.raises(ValueError, match=r"^--out .*: Permission denied; expected a folder"):
        prepare_folder(tmp_path)


def test_table_is_printed_even_if_writing_fails(
    spec_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("aisim_gym.cli.run_folder.write_run", fail)
    result = run_cli("replay", spec_file, "--out", tmp_path / "run")
    assert result.status == 2
    assert "disk full" in result.err
    assert "20 of 20 arrived" in result.out


def test_run_that_reaches_its_time_limit_is_partial(spec_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = run_cli("replay", spec_file, "--max-sim-time-ms", "4100", "--out", out)
    assert result.status == 0, result.err
    assert json.loads((out / "manifest.json").read_text())["is_partial"] is True
    rows = _rows(result.out)
    assert rows["state"] == "partial: stopped at max_sim_time_ms"
    assert rows["requests unfinished"] == "1"
    assert rows["requests not arrived"] == "11"


def test_requests_that_do_not_fit_are_counted_and_nothing_is_measured(
    spec_file: Path, trace: Path
) -> None:
    line = trace.read_text().splitlines()[0]
    trace.write_text(line.replace("300", "100000").replace("[0]", str(list(range(196)))) + "\n")
    result = run_cli("replay", spec_file, "--ttft-slo-ms", "100")
    assert result.status == 0, result.err
    rows = _rows(result.out)
    assert rows["requests completed"] == "0 of 1 arrived"
    assert rows["requests rejected"] == "1"
    assert rows["SLO met by"] == "0.00 % of requests"
    assert "requests unfinished" not in rows
    assert {rows["TTFT p50 / p99"], rows["ITL p50 / p99"], rows["goodput"]} == {NO_SAMPLES}


def test_parquet_is_written_if_asked_for(spec_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    out = tmp_path / "run"
    result = run_cli("replay", spec_file, "--out", out, "--parquet")
    assert result.status == 0, result.err
    assert "requests.parquet" in result.out
    assert (out / "requests.parquet").read_bytes().startswith(b"PAR1")


def test_parquet_without_pyarrow_names_the_extra_and_nothing_runs(
    spec_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run_cli("replay", spec_file, "--out", tmp_path / "run", "--parquet")
    assert result.status == 2
    assert "pip install 'aisim-gym[parquet]'" in result.err
    assert not (tmp_path / "run").exists()


def _rows(out: str) -> dict[str, str]:
    """Return the rows of the results table."""
    cells = (re.split("[│┃]", line) for line in out.splitlines())
    return {row[1].strip(): row[2].strip() for row in cells if len(row) == 4}

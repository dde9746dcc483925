"""Specification files: TOML and JSON in, JSON out, equal after a round trip."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.errors import SpecError
from aisim_gym.replay import Replay
from aisim_gym.spec import (
    AggregatedFleet,
    DisaggregatedFleet,
    EngineSpec,
    GeneratorSpec,
    LaunchSpec,
    ReplaySpec,
    SlaSpec,
    SyntheticSpec,
    TickSpec,
    WorkloadSpec,
    dump_spec,
    load_spec,
)

DISAGG_TOML = """\
router_mode = "round_robin"
max_sim_time_ms = 60000

[fleet]
kind = "disagg"
num_decode_workers = 2

[fleet.prefill]
startup_time = 5
engine = { worker_type = "prefill", kv_transfer_bandwidth = 25 }

[fleet.decode.engine]
worker_type = "decode"

[workload]
trace_files = ["traces/chat.jsonl"]
"""


def write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


def test_toml_file_is_read_with_paths_relative_to_its_folder(tmp_path: Path) -> None:
    spec = load_spec(write(tmp_path / "spec.toml", DISAGG_TOML))
    assert isinstance(spec.fleet, DisaggregatedFleet)
    assert spec.fleet.num_decode_workers == 2
    assert spec.fleet.prefill.startup_time == 5.0
    assert spec.workload.trace_files == (tmp_path / "traces" / "chat.jsonl",)


def test_byte_order_mark_and_crlf_change_nothing(tmp_path: Path) -> None:
    plain = load_spec(write(tmp_path / "plain.toml", DISAGG_TOML))
    windows = "\ufeff" + DISAGG_TOML.replace("\n", "\r\n")
    assert load_spec(write(tmp_path / "windows.toml", windows)) == plain
    json_text = "\ufeff" + plain.to_json().replace("\n", "\r\n")
    assert load_spec(str(write(tmp_path / "windows.json", json_text))) == plain


def test_home_folder_is_expanded_and_absolute_paths_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    fleet = {"kind": "agg"}
    spec = load_spec({"fleet": fleet, "workload": {"trace_files": ["~/a.jsonl"]}})
    assert spec.workload.trace_files == (tmp_path / "home" / "a.jsonl",)
    elsewhere = tmp_path / "elsewhere.jsonl"
    path = tmp_path / "spec.json"
    dump_spec(
        ReplaySpec(fleet=AggregatedFleet(), workload=WorkloadSpec(trace_files=(elsewhere,))), path
    )
    assert load_spec(path).workload.trace_files == (elsewhere,)


def test_relative_paths_in_plain_data_stay_relative() -> None:
    spec = load_spec({"fleet": {"kind": "agg"}, "workload": {"trace_files": ["a.jsonl"]}})
    assert spec.workload.trace_files == (Path("a.jsonl"),)


def test_dumped_relative_path_means_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    workload = WorkloadSpec(trace_files=(Path("a.jsonl"),))
    dump_spec(ReplaySpec(fleet=AggregatedFleet(), workload=workload), "sub/spec.json")
    assert load_spec("sub/spec.json").workload.trace_files == (tmp_path / "a.jsonl",)


def test_spec_without_trace_files_is_written_without_them(tmp_path: Path) -> None:
    spec = ReplaySpec(fleet=AggregatedFleet())
    dump_spec(spec, tmp_path / "spec.json")
    assert "trace_files" not in (tmp_path / "spec.json").read_text()
    assert load_spec(tmp_path / "spec.json") == spec


def test_every_line_of_an_error_names_file_and_field(tmp_path: Path) -> None:
    text = DISAGG_TOML.replace('worker_type = "decode"', "blok_size = 0")
    text = text.replace("workers = 2", "workers = 0")
    path = write(tmp_path / "bad.toml", text)
    with pytest.raises(SpecError) as raised:
        load_spec(path)
    lines = str(raised.value).splitlines()
    assert len(lines) == 2
    assert all(line.endswith(f"({path})") for line in lines)
    assert lines[0].startswith(
        "fleet.decode.engine.blok_size: invalid engine launch config: engine.blok_size: "
        "unknown field `blok_size`"
    )
    assert "did you mean `block_size`?" in lines[0]
    assert lines[1].startswith("fleet.num_decode_workers: invalid replay spec: decode pool must")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "[fleet", "invalid TOML: Expected ']'"),
        ("a.json", '{"fleet": }', "expected value at line 1 column 11"),
        ("a.json", '{"fleet": {}, "fleet": {}}', "key `fleet` occurs twice"),
        ("a.json", "[]", "invalid type: sequence, expected a table"),
        ("a.json", "", "EOF while parsing at line 1"),
        ("a.yaml", "", "expected a file name that ends in .toml or .json"),
        ("a.toml", "", "missing field `fleet`"),
    ],
)
def test_broken_file_is_refused_with_its_name(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(SpecError) as raised:
        load_spec(path)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)


def test_unreadable_files_are_refused_with_their_name(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot read .*none.toml: No such file"):
        load_spec(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xff")
    with pytest.raises(SpecError, match=r"cannot read .*latin.toml: not UTF-8"):
        load_spec(tmp_path / "latin.toml")


def test_specs_are_written_as_json_only(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"expected a file name that ends in \.json"):
        dump_spec(ReplaySpec(fleet=AggregatedFleet()), tmp_path / "spec.toml")


@pytest.mark.parametrize(
    ("source", "given"), [(None, "None"), (5, "5"), ([], r"\[\]"), (b"a.toml", "b'a.toml'")]
)
def test_what_is_no_spec_is_refused(source: Any, given: str) -> None:
    message = f"^spec: got {given}, expected a ReplaySpec, a mapping or a path$"
    with pytest.raises(TypeError, match=message):
        load_spec(source)
    with pytest.raises(TypeError, match=message):
        Replay(source)


def test_spec_is_returned_as_it_is() -> None:
    spec = ReplaySpec(fleet=AggregatedFleet())
    assert load_spec(spec) is spec


positive_ms = st.floats(0.001, 1e9)


@st.composite
def replay_specs(draw: st.DrawFn) -> ReplaySpec:
    """Draw valid specs of both topologies."""

    def launch(worker_type: Any) -> LaunchSpec:
        engine = EngineSpec(
            worker_type=worker_type,
            num_gpu_blocks=draw(st.integers(1, 2**40)),
            max_num_seqs=draw(st.none() | st.integers(1, 1000)),
            kv_cache_bytes_per_token=draw(st.none() | st.integers(1, 1000)),
        )
        return LaunchSpec(engine=engine, startup_time=draw(st.none() | st.floats(0, 1e4)))

    fleet = draw(
        st.builds(AggregatedFleet, num_workers=st.integers(1, 99))
        | st.builds(
            DisaggregatedFleet,
            num_prefill_workers=st.integers(1, 99),
            prefill=st.builds(launch, st.just("prefill")),
            decode=st.builds(launch, st.just("decode")),
        )
    )
    workload = draw(
        st.builds(WorkloadSpec, generator=st.none() | st.builds(GeneratorSpec))
        | st.builds(
            WorkloadSpec,
            generator=st.builds(
                SyntheticSpec,
                input_tokens=st.integers(1, 99),
                output_tokens=st.integers(1, 99),
                request_count=st.integers(1, 99),
                turns_per_session=st.integers(1, 3),
            ),
            replay_concurrency=st.integers(1, 99),
        )
        | st.builds(
            WorkloadSpec,
            trace_files=st.just((Path("a.jsonl"),)),
            arrival_speedup_ratio=st.floats(0.01, 100),
            replay_concurrency=st.none() | st.integers(1, 99),
        )
    )
    return ReplaySpec(
        fleet=fleet,
        workload=workload,
        sla=draw(st.builds(SlaSpec, ttft_ms=st.none() | positive_ms)),
        ticks=draw(st.builds(TickSpec, initial_tick_ms=st.none() | st.floats())),
        max_sim_time_ms=draw(st.none() | st.floats(0, 1e9)),
        telemetry_sample_interval_ms=draw(st.none() | positive_ms),
    )


@given(replay_specs())
def test_json_text_reads_back_as_the_same_spec(spec: ReplaySpec) -> None:
    assert ReplaySpec.model_validate_json(spec.to_json()) == spec
    assert load_spec(spec.model_dump(mode="json")) == spec

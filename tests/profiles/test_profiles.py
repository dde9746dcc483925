"""Engine profiles by name: what they fill in, and that runs take the times they say."""

import csv
import json
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from support.fleets import arrivals, run_small
from support.shared_folder import require_shared
from support.source_tree import ROOT

from aisim_gym.errors import SpecError
from aisim_gym.profiles import EngineProfile, load_profile, profile_fleet, profile_names
from aisim_gym.profiles.engine_profile import FORMAT
from aisim_gym.profiles.make_profiles import SOURCES, make_profile
from aisim_gym.spec import DisaggregatedFleet, LaunchSpec, ReplaySpec, TableTiming, load_spec

NAME = "h100-llama31-8b"


def launch(engine: Any, **others: Any) -> LaunchSpec:
    return LaunchSpec.from_data({"engine": engine, **others})


def timing_of(name: str) -> TableTiming:
    return TableTiming.from_data(load_profile(name).timing_model)


def test_there_are_profiles_of_every_backend() -> None:
    profiles = [load_profile(name) for name in profile_names()]
    assert len(profiles) == 10
    assert {profile.backend for profile in profiles} == {"vllm", "trtllm", "sglang"}
    assert all(
        profile.name == name for profile, name in zip(profiles, profile_names(), strict=True)
    )


@pytest.mark.parametrize("name", profile_names())
def test_lone_request_takes_the_times_of_the_table(name: str) -> None:
    spec = ReplaySpec.from_data({"fleet": profile_fleet(name, workers=1)})
    run = run_small(spec, arrivals([0.0], 2048, 5))
    table = timing_of(name).table
    assert run.column("ttft_ms") == [pytest.approx(float(table.prefill.at(2048, 0)), abs=1e-6)]
    decodes_ms = float(table.decode.at(1, 2048 + np.arange(1, 5)).sum())
    assert run.column("last_token_ms")[0] - run.column("ttft_ms")[0] == pytest.approx(
        decodes_ms, abs=1e-5
    )


@pytest.mark.parametrize("name", profile_names())
def test_table_grows_with_work(name: str) -> None:
    table = timing_of(name).table
    assert table.prefill.ms.min() > 0.0
    assert (np.diff(table.prefill.ms[4:, 0]) > 0.0).all()  # below, weights are read once anyway
    assert (np.diff(table.decode.ms[[0, -1]], axis=0) > 0.0).all()


def test_name_fills_in_what_is_not_given() -> None:
    profile = load_profile("h100-llama31-70b-tp4")
    spec = launch("h100-llama31-70b-tp4")
    assert (spec.tensor_parallel_size, spec.startup_time) == (4, profile.startup_s)
    assert spec.engine.num_gpu_blocks == profile.kv_capacity_tokens // 64
    assert spec.engine.timing_model == timing_of("h100-llama31-70b-tp4")
    assert launch("h100-llama31-70b-tp4", startup_time=1.0).startup_time == 1.0


def test_profile_can_be_changed_field_by_field() -> None:
    engine = launch({"profile": NAME, "max_num_seqs": 8, "block_size": 16}).engine
    assert (engine.max_num_seqs, engine.block_size) == (8, 16)
    assert engine.num_gpu_blocks == load_profile(NAME).kv_capacity_tokens // 16
    assert launch({"profile": NAME, "num_gpu_blocks": 10}).engine.num_gpu_blocks == 10


def test_one_profile_serves_both_roles() -> None:
    data = profile_fleet("h100-llama31-70b-tp4", "disagg", kv_transfer_gb_s=25.0)
    fleet = ReplaySpec.from_data({"fleet": data}).fleet
    assert isinstance(fleet, DisaggregatedFleet)
    prefill, decode = fleet.prefill.engine, fleet.decode.engine
    assert (prefill.worker_type, decode.worker_type) == ("prefill", "decode")
    assert (prefill.kv_transfer_bytes_per_token, prefill.kv_transfer_bandwidth) == (327_680, 25.0)
    assert decode.kv_transfer_bytes_per_token is None
    named = {"kind": "disagg", "prefill": {"engine": NAME}, "decode": {"engine": NAME}}
    fleet = ReplaySpec.from_data({"fleet": named}).fleet
    assert isinstance(fleet, DisaggregatedFleet)
    assert fleet.decode.engine.worker_type == "decode"


@pytest.mark.parametrize("kind", ["agg", "disagg"])
def test_written_spec_does_without_the_name(kind: Any) -> None:
    spec = ReplaySpec.from_data({"fleet": profile_fleet(NAME, kind)})
    text = spec.to_json()
    assert NAME not in text
    assert ReplaySpec.from_data(json.loads(text)) == spec


def test_profile_may_be_a_file_beside_the_spec(tmp_path: Path) -> None:
    own = {"format": FORMAT, **asdict(load_profile(NAME)), "name": "own", "max_num_seqs": 3}
    (tmp_path / "own.json").write_text(json.dumps(own), "utf-8")
    (tmp_path / "spec.toml").write_text(
        '[fleet]\nkind = "agg"\n[fleet.engine]\nengine = "own.json"\n', "utf-8"
    )
    spec = load_spec(tmp_path / "spec.toml")
    assert spec.fleet.kind == "agg"
    assert spec.fleet.engine.engine.max_num_seqs == 3


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (
            "h100-llama31-8",
            "engine: unknown engine profile 'h100-llama31-8'; did you mean 'h100-llama31-8b'?",
        ),
        ("x", "engine: unknown engine profile 'x' (a100-llama31-8b, "),
        ("no.json", "engine: cannot read engine profile no.json: No such file or directory"),
        ({"profile": 3}, "engine.profile: got 3, expected a name or a path"),
        ({"profile": NAME, "max_num_seq": 3}, "engine.max_num_seq: unknown field"),
        ({"profile": NAME, "block_size": -1}, "engine.block_size: invalid value"),
    ],
)
def test_bad_profile_is_refused(engine: Any, message: str) -> None:
    with pytest.raises(SpecError) as error:
        launch(engine)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "x: got format 'list', expected 'aisim-profile/1'"),
        ({"format": FORMAT, "name": "x"}, "x: missing backend, backend_version, block_size"),
        (
            {"format": FORMAT, **asdict(load_profile(NAME)), "colour": 1},
            "x: unknown colour",
        ),
    ],
)
def test_file_that_is_no_profile_is_refused(data: Any, message: str) -> None:
    with pytest.raises(SpecError) as error:
        EngineProfile.from_data(data, "x")
    assert message in str(error.value)


def test_price_is_per_gpu() -> None:
    profile = load_profile("h100-llama31-70b-tp4")
    assert profile.usd_per_worker_hour == 4 * profile.usd_per_gpu_hour


# Against the sources of the numbers


@pytest.mark.parametrize("name", SOURCES)
def test_profile_is_what_its_source_says(name: str) -> None:
    folder = require_shared("data", "timing")
    source = json.loads((folder / f"{SOURCES[name]}.json").read_text("utf-8"))
    costs = json.loads((folder / "costs_startup.json").read_text("utf-8"))
    made = make_profile(name, source, costs)
    assert EngineProfile.from_data(made, name) == load_profile(name)
    assert made["table_error"]["prefill_pct"]["mean"] < 2.0
    assert made["table_error"]["decode_pct"]["mean"] < 2.0


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("h100-llama31-8b", 0.93, 1.03),
        ("h100-qwen3-32b-tp2", 0.97, 1.10),
        ("h200-llama31-70b-fp8-tp2", 0.88, 0.98),
        ("b200-llama31-70b-fp8", 0.90, 1.00),
        ("h200-deepseek-r1-fp8-tp8", 0.75, 0.87),
    ],
)
def test_decodes_between_prefills_take_what_was_measured(
    name: str, low: float, high: float
) -> None:
    """At B requests in flight every decode shares its time with B / output tokens prefills."""
    table = timing_of(name).table
    with require_shared("data", "timing", "silicon_check.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["profile"] == SOURCES[name]]
    ratios = []
    for row in rows:
        if float(row["measured_ttft_ms"]) > 10_000.0:
            continue  # saturated
        input_tokens, output_tokens, in_flight = (
            int(row[column]) for column in ("isl", "osl", "concurrency")
        )
        composed_ms = float(
            table.decode.at(in_flight, input_tokens + output_tokens / 2)
            + in_flight / output_tokens * table.prefill.at(input_tokens)
        )
        ratios.append(float(row["measured_tpot_ms"]) / composed_ms)
    assert len(ratios) >= 10
    assert low < median(ratios) < high


# Documentation


@pytest.mark.parametrize("name", profile_names())
def test_documentation_lists_the_profile(name: str) -> None:
    profile = load_profile(name)
    page = (ROOT / "docs" / "engine-profiles.md").read_text("utf-8")
    (line,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
    errors = [
        f"{error['mean']} / {error['max']}"
        for error in (profile.table_error[part] for part in ("prefill_pct", "decode_pct"))
    ]
    expected = [
        profile.model,
        f"{profile.gpu.removeprefix('NVIDIA ')} x {profile.gpus_per_worker}",
        profile.precision,
        f"{profile.backend} {profile.backend_version}",
        f"{profile.kv_capacity_tokens:,}",
        f"{profile.startup_s:g}",
        f"{profile.usd_per_worker_hour:g}",
        *errors,
    ]
    assert [cell.strip() for cell in line.strip("|").split("|")][1:] == expected

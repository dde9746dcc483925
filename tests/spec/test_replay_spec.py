"""Fleet, workload, SLA and ticks as a user writes them: paths, values and choices in messages."""

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from aisim_gym.errors import SpecError
from aisim_gym.spec import (
    AggregatedFleet,
    EngineSpec,
    GeneratorSpec,
    LaunchSpec,
    NegativeCountError,
    ReplaySpec,
    SlaSpec,
    TickSpec,
    WorkloadSpec,
    load_spec,
)


def replay_with(**fields: Any) -> ReplaySpec:
    return load_spec({"fleet": {"kind": "agg"}, **fields})


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"fleet": {}}, "fleet: missing field `kind`, expected `agg` or `disagg`"),
        ({"fleet": {"kind": "x"}}, "fleet.kind: unknown variant `x`, expected `agg` or `disagg`"),
        (
            {"fleet": 3},
            "fleet: invalid type: integer `3`, expected a table with `kind` (`agg` or `disagg`)",
        ),
        (
            {"fleet": {"kind": "disagg"}},
            "fleet: missing field `prefill`\nfleet: missing field `decode`",
        ),
        (
            {"fleet": {"kind": "agg", "num_worker": 1}},
            "fleet.num_worker: unknown field `num_worker`, expected one of `kind`, `num_workers`, "
            "`engine`; did you mean `num_workers`?",
        ),
        (
            {"fleet": {"kind": "agg", "engine": {"engine": {"block_size": 0}}}},
            "fleet.engine.engine.block_size must be positive, got 0",
        ),
        (
            {"fleet": {"kind": "agg", "engine": {"dp_size": True}}},
            "fleet.engine: invalid engine launch config: dp_size: invalid type: boolean `true`, "
            "expected u32 (an integer from 0 to 4294967295)",
        ),
        (
            {"fleet": {"kind": "agg", "engine": {"engine": {"backend": "vlm"}}}},
            "fleet.engine: invalid engine launch config: engine.backend: unknown variant `vlm`, "
            "expected one of `vllm`, `sglang`, `trtllm`; did you mean `vllm`?",
        ),
        (
            {"workload": {"trace_files": "x.jsonl"}},
            'workload.trace_files: invalid type: string "x.jsonl", expected a sequence of paths',
        ),
        (
            {"workload": {"trace_files": [3]}},
            "workload.trace_files.0: invalid type: integer `3`, expected path string",
        ),
        (
            {"workload": {"trace_files": ["a"], "generator": {}}},
            "workload: trace_files and generator are mutually exclusive, got both",
        ),
        (
            {"workload": {"generator": {"peak_rate_rps": 1}}},
            "workload.generator: peak_rate_rps must be at least base_rate_rps, got 1 and 2",
        ),
        (
            {"workload": {"generator": {"duration_s": 100, "spike_at_s": 50}}},
            "workload.generator: spike_at_s + spike_duration_s must not exceed duration_s, "
            "got 110 and 100",
        ),
        (
            {"workload": {"generator": {"period_s": math.inf}}},
            "workload.generator.period_s must be finite and positive, got inf",
        ),
        (
            {"workload": {"replay_concurrency": 0}},
            "workload.replay_concurrency must be at least 1, got 0",
        ),
        (
            {"router_mode": "kv-router"},
            "router_mode must be either 'round_robin' or 'kv_router', got 'kv-router'; "
            "did you mean `kv_router`?",
        ),
        (
            {"max_sim_time_ms": "60"},
            'max_sim_time_ms: invalid type: string "60", expected f64 (a finite number)',
        ),
        (
            {"ticks": {"initial_tick_ms": True}},
            "ticks.initial_tick_ms: invalid type: boolean `true`, expected f64 (a number)",
        ),
    ],
)
def test_refusal_names_path_value_and_choices(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError) as raised:
        replay_with(**fields)
    assert str(raised.value) == line


def test_unknown_trace_format_lists_the_reference_formats_and_ours() -> None:
    with pytest.raises(SpecError, match="or 'dynamo', got 'csv'; aisim-gym also reads 'azure'"):
        WorkloadSpec(trace_format="csv")  # type: ignore[arg-type]
    assert WorkloadSpec(trace_format="azure").trace_format == "azure"


def test_empty_trace_files_are_an_error_only_when_given() -> None:
    assert WorkloadSpec().trace_files == ()
    with pytest.raises(SpecError, match="trace replay requires at least one trace file"):
        WorkloadSpec(trace_files=())


def test_several_files_are_allowed_for_the_dynamo_format_only() -> None:
    files = (Path("a"), Path("b"))
    assert WorkloadSpec(trace_files=files, trace_format="dynamo").trace_files == files
    with pytest.raises(SpecError, match="trace_format='weka' requires exactly one trace file"):
        WorkloadSpec(trace_files=files, trace_format="weka")


def test_default_spike_is_left_out_of_a_short_run() -> None:
    assert GeneratorSpec().spike_at_s == 1050.0
    assert GeneratorSpec(duration_s=600).spike_at_s is None
    assert GeneratorSpec(duration_s=1110).spike_at_s == 1050.0


@pytest.mark.parametrize("never", [None, math.inf, -math.inf, math.nan])
def test_first_tick_that_is_not_finite_means_no_ticks(never: float | None) -> None:
    assert TickSpec(initial_tick_ms=never).initial_tick_ms is None


def test_negative_first_tick_comes_at_zero() -> None:
    assert TickSpec(initial_tick_ms=-5).initial_tick_ms == 0.0


def test_integers_become_floats_where_floats_are_expected() -> None:
    assert isinstance(SlaSpec(ttft_ms=5).ttft_ms, float)


def test_models_are_frozen_values() -> None:
    spec = ReplaySpec(fleet=AggregatedFleet(num_workers=2))
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert copy.deepcopy(spec) == spec
    assert hash(spec) == hash(copy.deepcopy(spec))
    with pytest.raises(ValueError, match="frozen"):
        spec.max_sim_time_ms = 1.0


def test_errors_of_nested_models_built_in_python_keep_their_place() -> None:
    with pytest.raises(SpecError, match=r"^engine.num_gpu_blocks must be positive, got 0$"):
        LaunchSpec.model_validate({"engine": {"num_gpu_blocks": 0}})
    with pytest.raises(SpecError, match=r"^engine.num_gpu_blocks must be positive, got 0$"):
        LaunchSpec.model_validate_json('{"engine": {"num_gpu_blocks": 0}}')
    with pytest.raises(NegativeCountError, match=r"^num_workers: can't convert negative int"):
        AggregatedFleet(num_workers=-1)


def test_every_field_has_a_description() -> None:
    pending, seen = [ReplaySpec.model_json_schema()], 0
    for definition in (pending[0], *pending[0]["$defs"].values()):
        for name, schema in definition.get("properties", {}).items():
            assert schema.get("description"), (definition["title"], name)
            seen += 1
    assert seen > len(EngineSpec.model_fields)

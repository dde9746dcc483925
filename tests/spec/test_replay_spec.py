"""Fleet, workload, SLA and ticks as a user writes them: paths, values and choices in messages."""

import copy
import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from aisim_gym.errors import SpecError
from aisim_gym.replay import ScalingDecision
from aisim_gym.spec import (
    AggregatedFleet,
    EngineSpec,
    GeneratorSpec,
    LaunchSpec,
    NegativeCountError,
    ReplaySpec,
    SlaSpec,
    SyntheticSpec,
    TickSpec,
    WorkloadSpec,
    load_spec,
)

SYNTHETIC = {"kind": "synthetic", "input_tokens": 8, "output_tokens": 2, "request_count": 3}
SGLANG_WITHOUT_BUDGET = {"backend": "sglang", "sglang": {"max_prefill_tokens": 0}}


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
            "fleet: missing field `prefill` (Launch config; engine.worker_type must be prefill)\n"
            "fleet: missing field `decode` (Launch config; engine.worker_type must be decode)",
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
            "fleet.engine.dp_size: invalid engine launch config: dp_size: invalid type: "
            "boolean `true`, expected u32 (an integer from 0 to 4294967295)",
        ),
        (
            {"fleet": {"kind": "agg", "engine": {"engine": {"backend": "vlm"}}}},
            "fleet.engine.engine.backend: invalid engine launch config: engine.backend: "
            "unknown variant `vlm`, expected one of `vllm`, `sglang`, `trtllm`; "
            "did you mean `vllm`?",
        ),
        (
            {"fleet": {"kind": "agg", "engine": {"engine": {"timing_model": {"type": "fixed"}}}}},
            "\n".join(
                "fleet.engine.engine.timing_model: invalid engine launch config: "
                f"engine.timing_model: missing field `{part}_ms` "
                f"(Added to a pass that {part}s anything, ms, >= 0)"
                for part in ("prefill", "decode")
            ),
        ),
        (
            {"fleet": {"kind": "agg", "engine": 3}},
            "fleet.engine: invalid engine launch config: invalid type: integer `3`, "
            "expected a table with `engine`",
        ),
        (
            {"fleet": {"kind": "agg", "engine": {"engine": {"block_size": 1}}}},
            "fleet.engine.engine.block_size: vLLM/TRT-LLM block_size must be at least two, got 1",
        ),
        (
            {"fleet": {"kind": "agg", "engine": {"engine": {"prefill_decode_interval": 1}}}},
            "fleet.engine.engine.prefill_decode_interval is supported only for backend=sglang, "
            "got 1 with backend=vllm",
        ),
        (
            {"fleet": {"kind": "agg", "engine": {"engine": SGLANG_WITHOUT_BUDGET}}},
            "fleet.engine.engine.sglang.max_prefill_tokens must be positive, got 0",
        ),
        (
            {"fleet": {"kind": "agg", "engine": {"engine": {"worker_type": "decode"}}}},
            "fleet.engine.engine.worker_type: offline replay only supports aggregated workers, "
            "got Decode; leave engine.worker_type out, or use a fleet of kind `disagg`",
        ),
        (
            {"fleet": {"kind": "agg", "num_workers": 0}},
            "fleet.num_workers: invalid replay spec: aggregated pool must start with at least one "
            "worker, got 0",
        ),
        (
            {"fleet": {"kind": "agg", "num_workers": 10**12}},
            "fleet.num_workers must be at most 1000000, got 1000000000000",
        ),
        (
            {
                "fleet": {
                    "kind": "disagg",
                    "num_prefill_workers": 1_000_001,
                    "num_decode_workers": 1_000_001,
                    "prefill": {"engine": {"worker_type": "prefill"}},
                    "decode": {"engine": {"worker_type": "decode"}},
                }
            },
            "fleet.num_prefill_workers must be at most 1000000, got 1000001\n"
            "fleet.num_decode_workers must be at most 1000000, got 1000001",
        ),
        (
            {"workload": {"trace_files": []}},
            "workload.trace_files: trace replay requires at least one trace file, got none; "
            "leave trace_files out when the requests come from elsewhere",
        ),
        (
            {"workload": {"arrival_speedup_ratio": 0}},
            "workload.arrival_speedup_ratio must be a finite positive number, got 0",
        ),
        (
            {"sla": {"itl_ms": 0}},
            "sla.itl_ms: invalid replay spec: sla.itl_ms must be finite and positive, got 0",
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
            "workload.generator.peak_rate_rps must be at least base_rate_rps, got 1 and 2",
        ),
        (
            {"workload": {"generator": {"duration_s": 100, "spike_at_s": 50}}},
            "workload.generator.spike_at_s + spike_duration_s must not exceed duration_s, "
            "got 110 and 100",
        ),
        (
            {"workload": {"generator": {"period_s": math.inf}}},
            "workload.generator.period_s must be finite and positive, got inf",
        ),
        (
            {"workload": {"generator": {"kind": "chat"}}},
            "workload.generator.kind: unknown variant `chat`, expected one of `chat-wave`, "
            "`synthetic`, `traffic`; did you mean `chat-wave`?",
        ),
        (
            {"workload": {"generator": 3}},
            "workload.generator: invalid type: integer `3`, expected a table with `kind` "
            "(`chat-wave`, `synthetic` or `traffic`)",
        ),
        (
            {"workload": {"generator": {"kind": "synthetic", "input_tokens": 0}}},
            "workload.generator: missing field `output_tokens` (Output of every request, tokens, "
            ">= 1)\n"
            "workload.generator: missing field `request_count` (Number of requests or sessions, "
            ">= 1)\n"
            "workload.generator.input_tokens must be at least 1, got 0",
        ),
        (
            {"workload": {"generator": {**SYNTHETIC, "output_tokens": 2**31}}},
            "workload.generator.output_tokens must be at most 2147483647, got 2147483648",
        ),
        (
            {"workload": {"generator": {**SYNTHETIC, "request_rat": 1.0}}},
            "workload.generator.request_rat: unknown field `request_rat`, expected one of `kind`, "
            "`input_tokens`, `output_tokens`, `request_count`, `request_rate`, "
            "`arrival_interval_ms`, `arrival_seed`, `turns_per_session`, `shared_prefix_ratio`, "
            "`num_prefix_groups`, `inter_turn_delay_ms`; did you mean `request_rate`?",
        ),
        (
            {"workload": {"generator": SYNTHETIC}},
            "workload: synthetic replay requires exactly one of replay_concurrency, request_rate, "
            "or arrival_interval_ms, got none",
        ),
        (
            {
                "workload": {
                    "replay_concurrency": 3,
                    "generator": {**SYNTHETIC, "arrival_interval_ms": 0},
                }
            },
            "workload: synthetic replay requires exactly one of replay_concurrency, request_rate, "
            "or arrival_interval_ms, got replay_concurrency 3 and arrival_interval_ms 0",
        ),
        (
            {"workload": {"generator": {**SYNTHETIC, "arrival_interval_ms": 1e-320}}},
            "workload.generator.arrival_interval_ms: qps must be a finite positive number, got inf "
            f"(1000 / arrival_interval_ms 0.{'0' * 319}1)",
        ),
        (
            {
                "workload": {
                    "generator": {**SYNTHETIC, "request_rate": 1, "shared_prefix_ratio": 1.5}
                }
            },
            "workload.generator.shared_prefix_ratio must be between 0.0 and 1.0, got 1.5",
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


@pytest.mark.parametrize("count", [2**63, 2**64, 10**30])
def test_number_of_workers_beyond_any_integer_type_is_refused(count: int) -> None:
    with pytest.raises(SpecError, match=r"^num_workers"):
        AggregatedFleet(num_workers=count)


def test_most_workers_of_a_pool_are_the_most_of_a_target() -> None:
    assert AggregatedFleet(num_workers=1_000_000).num_workers == 1_000_000
    assert ScalingDecision.of(ScalingDecision(None, 1_000_000)).target_decode == 1_000_000
    with pytest.raises(OverflowError, match="expected at most 1000000"):
        ScalingDecision.of(ScalingDecision(None, 1_000_001))


def test_gpus_of_a_worker_are_those_of_all_its_ranks() -> None:
    assert LaunchSpec().gpus_per_worker == 1
    assert LaunchSpec(tensor_parallel_size=4, dp_size=2).gpus_per_worker == 8


def test_unknown_trace_format_lists_the_reference_formats_and_ours() -> None:
    with pytest.raises(SpecError, match="or 'dynamo', got 'xml'; aisim-gym also reads 'azure'"):
        WorkloadSpec(trace_format="xml")  # type: ignore[arg-type]
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


def test_generator_without_a_kind_is_chat_wave() -> None:
    assert WorkloadSpec.from_data({"generator": {"seed": 7}}).generator == GeneratorSpec(seed=7)
    synthetic = WorkloadSpec.from_data({"generator": SYNTHETIC, "replay_concurrency": 1}).generator
    assert synthetic == SyntheticSpec(input_tokens=8, output_tokens=2, request_count=3)


@pytest.mark.parametrize(
    ("fields", "has_sessions"),
    [
        ({}, False),
        ({"turns_per_session": 0, "shared_prefix_ratio": -1.0}, False),
        ({"inter_turn_delay_ms": -1.0}, False),
        ({"inter_turn_delay_ms": math.nan, "shared_prefix_ratio": math.nan}, False),
        ({"turns_per_session": 2}, True),
        ({"shared_prefix_ratio": 0.1}, True),
        ({"num_prefix_groups": 1}, True),
        ({"inter_turn_delay_ms": 0.1}, True),
    ],
)
def test_session_parameters_are_checked_only_if_one_of_them_asks_for_sessions(
    fields: dict[str, Any], has_sessions: bool
) -> None:
    # Each accepted by ai-dynamo-runtime 1.6.1.
    assert SyntheticSpec(**{**SYNTHETIC, **fields}).has_sessions == has_sessions


def test_prompts_are_cut_into_blocks_of_the_engine_that_prefills() -> None:
    sglang = {"engine": {"backend": "sglang"}}
    assert replay_with(fleet={"kind": "agg", "engine": sglang}).engine_block_size == 1
    prefill = {"engine": {"worker_type": "prefill", "block_size": 16}}
    decode = {"engine": {"worker_type": "decode", "block_size": 16}}
    fleet = {"kind": "disagg", "prefill": prefill, "decode": decode}
    assert replay_with(fleet=fleet).engine_block_size == 16


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

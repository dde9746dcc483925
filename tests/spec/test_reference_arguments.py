"""The reference's call arguments and their refusals: replay-runtime.md §19, workloads.md §14."""

import math
from pathlib import Path
from typing import Any

import pytest
from spec.reference_data import probes_of

from aisim_gym.errors import SpecError, UnsupportedError
from aisim_gym.spec import (
    AggregatedFleet,
    DisaggregatedFleet,
    LaunchSpec,
    NegativeCountError,
    SyntheticSpec,
    replay_spec_from_reference_arguments,
    replay_spec_from_synthetic_arguments,
)
from aisim_gym.workload import load_workload

NEEDS_THE_TRACE = {"replay/missing-trace-file"}
PREFILL = {"engine": {"worker_type": "prefill"}}
DECODE = {"engine": {"worker_type": "decode"}}


def arguments_of(case: dict[str, Any]) -> dict[str, Any]:
    return {"trace_files": ["$trace"], **case["input"].get("kwargs", {})}


@pytest.mark.parametrize("case", probes_of("replay"))
def test_replay_probe_is_refused_with_the_text_of_the_reference(case: dict[str, Any]) -> None:
    result = case["result"]
    if result["status"] == "ok" or case["id"] in NEEDS_THE_TRACE:
        replay_spec_from_reference_arguments(**arguments_of(case))
        return
    with pytest.raises(SpecError) as raised:
        replay_spec_from_reference_arguments(**arguments_of(case))
    assert result["message"] in str(raised.value)
    if result["type"] == "OverflowError":
        assert isinstance(raised.value, OverflowError)


def test_every_replay_probe_is_run() -> None:
    assert len(probes_of("replay")) == 46


@pytest.mark.parametrize("case", [*probes_of("runtime"), *probes_of("workload")])
def test_arguments_of_probes_that_fail_later_make_a_spec(case: dict[str, Any]) -> None:
    replay_spec_from_reference_arguments(**arguments_of(case))


# Texts beyond the probes, confirmed with ai-dynamo-runtime 1.6.1.
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"prefill_engine_args": PREFILL, "decode_engine_args": DECODE, "num_workers": 2},
            "num_workers is only used for aggregated replay; use num_prefill_workers and "
            "num_decode_workers for disagg replay",
        ),
        (
            {"num_decode_workers": 2},
            "num_prefill_workers and num_decode_workers are only used for disagg replay; use "
            "num_workers for aggregated replay",
        ),
        (
            {"prefill_engine_args": PREFILL, "decode_engine_args": PREFILL},
            "offline disaggregated replay requires decode_engine_args.worker_type=decode, "
            "got Prefill",
        ),
        ({"kv_event_lag_ms": -1.0}, "kv_event_lag_ms must be finite and non-negative, got -1"),
        ({"kv_event_lag_ms": math.nan}, "kv_event_lag_ms must be finite and non-negative, got NaN"),
        ({"sla_itl_ms": 0}, "invalid replay spec: sla.itl_ms must be finite and positive, got 0"),
        (
            {"sla_itl_ms": 0.0, "sla_e2e_ms": 0.0},
            "invalid replay spec: sla.e2e_ms is mutually exclusive with sla.ttft_ms/itl_ms",
        ),
        (
            {"trace_files": ["a", "b"], "trace_format": "mooncake_delta"},
            "trace_format='mooncake-delta' requires exactly one trace file, got 2",
        ),
        ({"trace_block_size": -1}, "can't convert negative int to unsigned"),
        ({"agentic_lanes": 0}, "agentic_lanes must be at least 1"),
        (
            {"weka_nested_timestamp_basis": "x"},
            "weka_nested_timestamp_basis must be 'auto', 'absolute', or 'relative', got 'x'",
        ),
        (
            {"weka_nested_timestamp_basis": "auto"},
            "weka_nested_timestamp_basis requires trace_format='weka'",
        ),
        (
            {"replay_mode": "online", "scaling_policy": object()},
            "scaling_policy only supports replay_mode='offline'",
        ),
        (
            {"replay_mode": "online", "max_sim_time_ms": 1.0},
            "max_sim_time_ms only supports replay_mode='offline'",
        ),
        (
            {"replay_mode": "online", "capture_telemetry": True},
            "replay telemetry only supports replay_mode='offline'",
        ),
    ],
)
def test_refusal_uses_the_words_of_the_reference(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError) as raised:
        replay_spec_from_reference_arguments(**arguments)
    assert text in str(raised.value)


def test_defaults_are_those_of_the_reference() -> None:
    spec = replay_spec_from_reference_arguments(trace_files=["a.jsonl"])
    assert spec.fleet == AggregatedFleet(num_workers=1, engine=LaunchSpec())
    assert spec.workload.trace_files == (Path("a.jsonl"),)
    assert spec.workload.trace_block_size == 512
    assert not spec.capture_per_request
    assert spec.telemetry_sample_interval_ms is None


def test_arguments_reach_their_fields() -> None:
    spec = replay_spec_from_reference_arguments(
        prefill_engine_args=PREFILL,
        decode_engine_args='{"engine": {"worker_type": "decode"}}',
        num_prefill_workers=2,
        num_decode_workers=3,
        trace_block_size=None,
        sla_ttft_ms=5,
        router_mode="kv_router",
        kv_event_lag_ms=2.0,
        report_jsonl_path="report.jsonl",
        telemetry_callback=print,
    )
    assert isinstance(spec.fleet, DisaggregatedFleet)
    assert (spec.fleet.num_prefill_workers, spec.fleet.num_decode_workers) == (2, 3)
    assert spec.sla.ttft_ms == 5.0
    assert (spec.router_mode, spec.kv_event_lag_ms) == ("kv_router", 2.0)
    assert spec.capture_per_request
    assert spec.telemetry_sample_interval_ms == 1000.0


def test_zero_event_lag_goes_with_any_router() -> None:
    assert replay_spec_from_reference_arguments(kv_event_lag_ms=0.0).kv_event_lag_ms == 0.0


def test_telemetry_interval_is_ignored_without_telemetry() -> None:
    spec = replay_spec_from_reference_arguments(telemetry_sample_interval_ms=0.0)
    assert spec.telemetry_sample_interval_ms is None


def test_speedup_is_not_even_checked_in_closed_loop() -> None:
    replay_spec_from_reference_arguments(arrival_speedup_ratio=-1.0, replay_concurrency=1)


def test_unknown_keyword_is_a_type_error_that_names_the_closest() -> None:
    misspelt: dict[str, Any] = {"num_worker": 1}
    with pytest.raises(TypeError, match=r"'num_worker'; did you mean `num_workers`\?"):
        replay_spec_from_reference_arguments(**misspelt)


def test_negative_count_is_also_an_overflow_error() -> None:
    with pytest.raises(NegativeCountError, match=r"^fleet.num_workers: can't convert negative int"):
        replay_spec_from_reference_arguments(num_workers=-1)


def test_error_in_engine_arguments_names_the_argument() -> None:
    message = r"^decode_engine_args\.dp: invalid engine launch config: dp: unknown field"
    with pytest.raises(SpecError, match=message):
        replay_spec_from_reference_arguments(
            prefill_engine_args=PREFILL, decode_engine_args={"dp": 1}
        )


@pytest.mark.parametrize(
    "arguments",
    [
        {"replay_mode": "online"},
        {"router_config": object()},
        {"ais_perf_config": object()},
        {"agentic_lanes": 2, "trace_format": "weka"},
    ],
)
def test_what_is_not_replayed_is_unsupported(arguments: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="not supported by aisim-gym"):
        replay_spec_from_reference_arguments(**arguments)


def synthetic_arguments_of(case: dict[str, Any]) -> dict[str, Any]:
    names = ("input_tokens", "output_tokens", "request_count")
    return {**dict(zip(names, case["input"]["args"], strict=True)), **case["input"]["kwargs"]}


@pytest.mark.parametrize("case", probes_of("synthetic"))
def test_synthetic_probe_is_refused_or_generated_like_in_the_reference(
    case: dict[str, Any],
) -> None:
    arguments, result = synthetic_arguments_of(case), case["result"]
    if result["status"] == "ok":
        requests = load_workload(replay_spec_from_synthetic_arguments(**arguments).workload)
        lengths = zip(requests.input_tokens.tolist(), requests.output_tokens.tolist(), strict=True)
        assert [[*pair, "completed"] for pair in lengths] == result["terminal"]
        return
    with pytest.raises((SpecError, TypeError)) as raised:
        replay_spec_from_synthetic_arguments(**arguments)
    assert result["message"] in str(raised.value)
    if result["type"] != "Exception":
        assert result["type"] in [base.__name__ for base in type(raised.value).__mro__]


def test_every_synthetic_probe_is_run() -> None:
    assert len(probes_of("synthetic")) == 17


# Texts beyond the probes, confirmed with ai-dynamo-runtime 1.6.1.
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"request_rate": 1.0, "arrival_speedup_ratio": 0.0},
            "arrival_speedup_ratio must be a finite positive number, got 0",
        ),
        ({"request_rate": math.inf}, "request_rate must be a finite positive number, got inf"),
        (
            {"arrival_interval_ms": math.nan},
            "arrival_interval_ms must be a finite non-negative number, got NaN",
        ),
        ({"arrival_interval_ms": 1e-320}, "qps must be a finite positive number, got inf"),
        (
            {"request_rate": 1.0, "turns_per_session": 0, "num_prefix_groups": 1},
            "turns_per_session must be at least 1",
        ),
        (
            {"request_rate": 1.0, "inter_turn_delay_ms": math.inf, "shared_prefix_ratio": -2.0},
            "inter_turn_delay_ms must be a finite non-negative number",
        ),
        (
            {"request_rate": 1.0, "turns_per_session": 2, "shared_prefix_ratio": -2.0},
            "shared_prefix_ratio must be between 0.0 and 1.0, got -2",
        ),
        ({"request_rate": 1.0, "arrival_seed": -1}, "can't convert negative int to unsigned"),
        (
            {"request_rate": 1.0, "num_prefill_workers": 2},
            "num_prefill_workers and num_decode_workers are only used for disagg replay; use "
            "num_workers for aggregated replay",
        ),
        (
            {"request_rate": 1.0, "sla_ttft_ms": 0.0},
            "invalid replay spec: sla.ttft_ms must be finite and positive, got 0",
        ),
        (
            {"request_rate": 1.0, "router_mode": "x"},
            "router_mode must be either 'round_robin' or 'kv_router', got 'x'",
        ),
    ],
)
def test_synthetic_refusal_uses_the_words_of_the_reference(
    arguments: dict[str, Any], text: str
) -> None:
    with pytest.raises(SpecError) as raised:
        replay_spec_from_synthetic_arguments(4, 1, 3, **arguments)
    assert text in str(raised.value)


def test_synthetic_arguments_reach_their_fields() -> None:
    spec = replay_spec_from_synthetic_arguments(
        8,
        2,
        3,
        extra_engine_args={"engine": {"block_size": 16}},
        num_workers=2,
        replay_concurrency=5,
        arrival_speedup_ratio=-1.0,  # not looked at in a closed loop
        arrival_seed=2**64 - 1,
        turns_per_session=4,
        capture_telemetry=True,
    )
    assert spec.workload.replay_concurrency == 5
    assert spec.workload.generator == SyntheticSpec(
        input_tokens=8,
        output_tokens=2,
        request_count=3,
        arrival_seed=2**64 - 1,
        turns_per_session=4,
    )
    assert spec.engine_block_size == 16
    assert spec.telemetry_sample_interval_ms == 1000.0
    assert not spec.capture_per_request


def test_trace_argument_of_a_synthetic_replay_is_a_type_error() -> None:
    misplaced: dict[str, Any] = {"trace_format": "mooncake", "request_rate": 1.0}
    message = r"^run_mocker_synthetic_trace_replay\(\) got an unexpected keyword argument 'trace_f"
    with pytest.raises(TypeError, match=message):
        replay_spec_from_synthetic_arguments(4, 1, 3, **misplaced)

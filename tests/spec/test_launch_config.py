"""Launch configs: engine-vllm-trtllm.md §1 and engine-sglang.md §1, probe by probe."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec.reference_data import golden_scenarios, load_probes, patched, probes_of

from aisim_gym.errors import SpecError, UnsupportedError
from aisim_gym.spec import (
    EngineSpec,
    FixedTiming,
    LaunchSpec,
    UnsupportedSpecError,
    parse_launch_config,
)


def engine(**fields: Any) -> dict[str, Any]:
    return {"engine": fields}


@pytest.mark.parametrize("case", probes_of("config"))
def test_config_probe_behaves_as_in_the_reference(case: dict[str, Any]) -> None:
    config, result = case["input"]["config"], case["result"]
    if result["status"] == "ok":
        expected = patched(load_probes()["default_config"], result["normalized_changes"])
        assert parse_launch_config(config).normalized() == expected
        return
    with pytest.raises(TypeError if result["type"] == "TypeError" else SpecError) as raised:
        parse_launch_config(config)
    assert result["message"] in str(raised.value)


def test_every_config_probe_is_run() -> None:
    assert len(probes_of("config")) == 74


def test_defaults_normalize_to_the_reference_defaults_in_the_same_order() -> None:
    assert json.dumps(LaunchSpec().normalized()) == json.dumps(load_probes()["default_config"])


def test_golden_engines_are_what_their_overrides_normalize_to() -> None:
    """Those with host offload are not replayed yet, and refused."""
    count = 0
    for name, scenario in golden_scenarios():
        for role, overrides in scenario["engine_overrides"].items():
            if "native_host_offload" in overrides.get("engine", {}):
                with pytest.raises(UnsupportedSpecError, match="native_host_offload"):
                    parse_launch_config(overrides)
                continue
            normalized = parse_launch_config(overrides).normalized()
            assert json.dumps(normalized) == json.dumps(scenario["engines"][role]), (name, role)
        count += 1
    assert count >= 236


# Texts beyond the probes, confirmed with ai-dynamo-runtime 1.6.1.
@pytest.mark.parametrize(
    ("config", "text"),
    [
        (engine(backend=3), "engine.backend: invalid type: integer `3`, expected string or map"),
        (engine(enable_prefix_caching=1), "invalid type: integer `1`, expected a boolean"),
        (engine(aic_nextn_accept_rates=3), "invalid type: integer `3`, expected a string"),
        (engine(sglang=None), "engine.sglang: invalid type: null, expected struct SglangConfig"),
        (engine(trtllm=None), "engine.trtllm: invalid type: null, expected struct TrtllmConfig"),
        (engine(timing_model={}), "engine.timing_model: missing field `type`"),
        (
            engine(timing_model={"type": 3}),
            "engine.timing_model.type: invalid type: integer `3`, expected variant identifier",
        ),
        (
            engine(timing_model={"type": "external"}),
            "engine.timing_model: missing field `provider`",
        ),
        (
            engine(timing_model={"type": "external", "provider": ""}),
            "timing provider cannot be empty",
        ),
        (
            engine(timing_model={"type": "fixed", "prefill_ms": 1, "decode_ms": -1}),
            "fixed decode latency must be finite and non-negative",
        ),
        (
            engine(kv_bytes_per_token=1, kv_transfer_bytes_per_token=2),
            "invalid engine launch config: engine: duplicate field `kv_transfer_bytes_per_token`",
        ),
        (engine(kv_bytes_per_token=0), "kv_transfer_bytes_per_token must be positive"),
        (
            engine(backend="sglang", block_size=3),
            "sglang.chunked_prefill_size must be divisible by block_size",
        ),
        (
            engine(aic_nextn=2, aic_nextn_accept_rates="0.5,"),
            'invalid aic_nextn_accept_rates value "": cannot parse float from empty string',
        ),
        (
            engine(aic_nextn=1, aic_nextn_accept_rates="0.5,2"),
            "aic_nextn_accept_rates[1] must be finite and in [0, 1], got 2",
        ),
        (
            engine(aic_nextn=1, aic_nextn_accept_rates="nan"),
            "aic_nextn_accept_rates[0] must be finite and in [0, 1], got NaN",
        ),
        (
            engine(aic_nextn=1, aic_nextn_accept_rates="1_0"),
            'invalid aic_nextn_accept_rates value "1_0": invalid float literal',
        ),
        (engine(aic_nextn_accept_rates=""), "aic_nextn_accept_rates requires aic_nextn"),
        (engine(num_gpu_blocks=1.0), "invalid type: floating point `1.0`, expected usize"),
        (
            engine(num_gpu_blocks=2**64),
            "invalid type: floating point `1.8446744073709552e+19`, expected usize",
        ),
        (engine(num_gpu_blocks=1e-7), "invalid type: floating point `1e-7`, expected usize"),
        (engine(num_gpu_blocks=[]), "invalid type: sequence, expected usize"),
        (engine(num_gpu_blocks={}), "invalid type: map, expected usize"),
        (engine(num_gpu_blocks='a"b\n'), 'invalid type: string "a\\"b\\n", expected usize'),
        (engine(speedup_ratio=True), "invalid type: boolean `true`, expected f64"),
        ({"dp_size": 2**32}, "dp_size: invalid value: integer `4294967296`, expected u32"),
        ({"tensor_parallel_size": 2**33}, "tensor_parallel_size exceeds the engine contract"),
        ({"mem_fraction_static": -0.1}, "mem_fraction_static must be finite and in [0, 1]"),
        ({"dynamo": None}, "invalid type: null, expected struct MockerRuntimeOptions"),
        (
            {"dynamo": {"x": 1}},
            "x: unknown field `x`, expected one of `enable_local_indexer`, `bootstrap_port`",
        ),
        (
            {"dynamo": {"zmq_replay_port": 70000}},
            "zmq_replay_port: invalid value: integer `70000`, expected u16",
        ),
        (
            {"dynamo": {"handoff_session_timeout_ms": 0}},
            "handoff_session_timeout_ms must be positive",
        ),
        ({"dynamo": {"reasoning": {}}}, "reasoning: missing field `start_thinking_token_id`"),
        ({3: 4}, "3: unknown field `3`, expected one of `engine`"),
        ("null", "Mocker config must be an object"),
        ("{} x", "trailing characters at line 1 column 4"),
        ('{"a" 1}', "expected `:` at line 1 column 6"),
    ],
)
def test_refusal_uses_the_words_of_the_reference(config: Any, text: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse_launch_config(config)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (engine(sglang={"max_prefill_tokens": 0}), engine(sglang={"max_prefill_tokens": 0})),
        (engine(block_size=None, backend="trtllm"), engine(backend="trtllm", block_size=32)),
        (engine(block_size=48), engine(block_size=48)),
        (engine(kv_cache_bytes_per_token=7), engine(kv_cache_bytes_per_token=7)),
        (engine(preemption_mode="fifo", backend="vllm"), engine(preemption_mode="fifo")),
        (
            engine(aic_nextn=3, aic_nextn_accept_rates=" .5 ,1e-9,+1"),
            engine(aic_nextn=3, aic_nextn_accept_rates="0.5,0.000000001,1"),
        ),
        (
            {"engine": {"num_gpu_blocks": 5}, "num_gpu_blocks_is_explicit": False},
            {"engine": {"num_gpu_blocks": 5}, "num_gpu_blocks_is_explicit": False},
        ),
        ({"num_gpu_blocks_is_explicit": True}, {"num_gpu_blocks_is_explicit": True}),
        (engine(sglang=[], trtllm=[]), {}),
        ({"dynamo": []}, {}),
    ],
)
def test_odd_but_valid_config_normalizes_as_in_the_reference(
    config: dict[str, Any], changes: dict[str, Any]
) -> None:
    expected = patched({**load_probes()["default_config"]}, _without_new(changes))
    normalized = parse_launch_config(config).normalized()
    extra = changes.get("engine", {}).get("kv_cache_bytes_per_token")
    assert normalized["engine"].pop("kv_cache_bytes_per_token", None) == extra
    assert normalized == expected


def _without_new(changes: dict[str, Any]) -> dict[str, Any]:
    """Drop the one key that the default config does not have."""
    fields = {
        key: value
        for key, value in changes.get("engine", {}).items()
        if key != "kv_cache_bytes_per_token"
    }
    return {**changes, "engine": fields}


@pytest.mark.parametrize(
    "name",
    [
        "kv_cache_groups",
        "kv_cache_capacity_bytes",
        "native_host_offload",
        "state_cache",
        "prefix_match_unit",
        "g3_offload",
    ],
)
def test_hybrid_cache_key_is_refused_as_unsupported_unless_null(name: str) -> None:
    assert parse_launch_config(engine(**{name: None})) == LaunchSpec()
    with pytest.raises(UnsupportedSpecError, match=f"engine.{name}: .*not supported") as raised:
        parse_launch_config(engine(**{name: {"a": 1}}))
    assert isinstance(raised.value, UnsupportedError)
    assert isinstance(raised.value, ValueError)


def test_misplaced_engine_field_is_found_one_level_down() -> None:
    with pytest.raises(SpecError, match=r"did you mean `engine\.num_gpu_blocks`"):
        parse_launch_config({"num_gpu_blocks": 5})


def test_misspelt_field_is_guessed() -> None:
    with pytest.raises(SpecError, match="did you mean `max_num_seqs`"):
        parse_launch_config(engine(max_num_seq=5))


def test_all_problems_are_told_parse_errors_first() -> None:
    with pytest.raises(SpecError) as raised:
        parse_launch_config({"engine": {"num_gpu_blocks": 0, "block_size": "x"}, "dp_size": 0})
    lines = str(raised.value).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("invalid engine launch config: engine.block_size: invalid type")
    assert lines[1] == "engine.num_gpu_blocks must be positive, got 0"
    assert lines[2] == "dp_size must be positive, got 0"


def test_models_built_in_python_equal_parsed_ones_and_raise_the_same_errors() -> None:
    built = LaunchSpec(
        engine=EngineSpec(
            backend="sglang",
            num_gpu_blocks=100,
            timing_model=FixedTiming(prefill_ms=1.0, decode_ms=2.0),
        ),
        startup_time=3.0,
    )
    timing = {"type": "fixed", "prefill_ms": 1, "decode_ms": 2, "ignored": 3}
    parsed = parse_launch_config(
        {
            "engine": {"backend": "sglang", "num_gpu_blocks": 100, "timing_model": timing},
            "startup_time": 3,
        }
    )
    assert built == parsed
    assert built.engine.block_size == 1
    assert built.num_gpu_blocks_is_explicit
    with pytest.raises(SpecError, match=r"^block_size must be positive, got 0$"):
        EngineSpec(block_size=0)


def test_launch_spec_is_returned_as_it_is() -> None:
    spec = LaunchSpec(dp_size=2)
    assert parse_launch_config(spec) is spec


@st.composite
def engine_fields(draw: st.DrawFn) -> dict[str, Any]:
    """Draw valid engine fields of any backend."""
    backend = draw(st.sampled_from(["vllm", "trtllm", "sglang"]))
    limit = st.none() | st.integers(1, 10_000)
    fields: dict[str, Any] = {
        "backend": backend,
        "block_size": draw(st.none() | st.sampled_from([2, 4, 16, 64, 128])),
        "num_gpu_blocks": draw(st.integers(1, 2**40)),
        "max_model_len": draw(limit),
        "max_num_seqs": draw(limit),
        "max_num_batched_tokens": draw(limit),
        "speedup_ratio": draw(st.floats(0, 1e6)),
        "enable_prefix_caching": draw(st.booleans()),
        "aic_nextn": draw(st.none() | st.integers(1, 5)),
        "kv_transfer_bandwidth": draw(st.none() | st.floats(0, 1e6)),
    }
    if fields["aic_nextn"] is not None:
        rates = draw(st.lists(st.floats(0, 1), max_size=7))
        fields["aic_nextn_accept_rates"] = ",".join(map(repr, rates))
    return {key: fields[key] for key in draw(st.sets(st.sampled_from(sorted(fields))))} | {
        key: fields[key]
        for key in ("backend", "aic_nextn")
        if fields[key] is not None  # others refer to these two
    }


@given(engine_fields())
def test_normalizing_twice_changes_nothing(fields: dict[str, Any]) -> None:
    spec = parse_launch_config({"engine": fields})
    again = parse_launch_config(json.dumps(spec.normalized()))
    assert again == spec
    assert again.normalized() == spec.normalized()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("a.1", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("type"), inner),
    max_leaves=3,
)


@given(
    st.dictionaries(
        st.sampled_from([*EngineSpec.model_fields, "kv_bytes_per_token", "x"]), json_values
    ),
    st.dictionaries(st.sampled_from([*LaunchSpec.model_fields, "x"]), json_values),
)
def test_any_config_is_accepted_or_refused_with_a_spec_error(
    engine_part: dict[str, Any], rest: dict[str, Any]
) -> None:
    for config in (rest, {**rest, "engine": engine_part}):
        with contextlib.suppress(SpecError):
            parse_launch_config(config)

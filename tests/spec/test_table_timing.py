"""Timing tables: how they are written, read and refused, and sampled from functions."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fleets import arrivals, run_small, small_fleet

from aisim_gym.errors import SpecError
from aisim_gym.spec import (
    ExternalTiming,
    LaunchSpec,
    ReplaySpec,
    TableTiming,
    UnsupportedSpecError,
    interpolation_error,
    load_spec,
    sample_timing,
)

PREFILL = {"new_tokens": [1, 101], "prefix_tokens": [0, 100], "ms": [[1.0, 2.0], [11.0, 22.0]]}
DECODE = {"sequences": [1, 11], "context_tokens": [0, 100], "ms": [[4.0, 8.0], [14.0, 18.0]]}
TABLE = {"type": "table", "prefill": PREFILL, "decode": DECODE}


def table(**changed: Any) -> TableTiming:
    return TableTiming.from_data({**TABLE, **changed})


def run_alone(timing: Any, input_tokens: int, output_tokens: int) -> tuple[float, float]:
    """Return first and last token of a request that arrives alone."""
    spec = small_fleet(workers=1, engine={"timing_model": timing})
    run = run_small(spec, arrivals([0.0], input_tokens, output_tokens))
    return run.column("first_token_ms")[0], run.column("last_token_ms")[0]


def test_prefill_is_by_new_tokens_and_decode_by_sequences_and_context() -> None:
    # Prefill of 51 tokens: 6 ms; decodes of one sequence with 52 and 53 tokens: 6.08 and 6.12 ms.
    assert run_alone(TABLE, 51, 3) == pytest.approx((6.0, 18.2), rel=1e-14)


def test_prefix_hit_takes_the_time_of_its_prefix_and_of_the_rest() -> None:
    spec = small_fleet(workers=1, engine={"timing_model": TABLE})
    prompts = [[*range(10)], [*range(10), 100]]
    run = run_small(spec, arrivals([0.0, 1000.0], [40, 44], 1, prompts))
    # 4 new tokens after a prefix of 40: between 1.3 ms and 2.6 ms.
    first_ms, second_ms = run.column("ttft_ms")
    assert run.column("reused_input_tokens") == [0, 40]
    assert (first_ms, second_ms) == pytest.approx((4.9, 1.3 + 0.4 * 1.3), rel=1e-12)


def test_table_goes_on_outside_or_ends_at_its_edge() -> None:
    assert run_alone(TABLE, 201, 1)[0] == 21.0
    assert run_alone({**TABLE, "outside": "clamp"}, 201, 1)[0] == 11.0


def test_decode_may_be_by_active_tokens() -> None:
    by_tokens = {"active_tokens": [0, 100], "context_tokens": [0], "ms": [[0.0], [100.0]]}
    first_ms, last_ms = run_alone({**TABLE, "decode": by_tokens}, 51, 3)
    assert last_ms - first_ms == pytest.approx(52.0 + 53.0, rel=1e-14)


def test_no_part_of_a_pass_takes_less_than_a_microsecond() -> None:
    nothing = {"prefill": {**PREFILL, "ms": [[0, 0]] * 2}, "decode": {**DECODE, "ms": [[0, 0]] * 2}}
    assert run_alone({**TABLE, **nothing}, 51, 3) == (0.001, 0.003)


# Files


def test_saved_table_is_read_back_equal(tmp_path: Path) -> None:
    timing = table(outside="clamp")
    timing.save(tmp_path / "table.npz")
    assert TableTiming.load(tmp_path / "table.npz") == timing


def test_spec_holds_what_a_file_says(tmp_path: Path) -> None:
    table().save(tmp_path / "table.npz")
    timing = {"type": "table", "path": "table.npz", "outside": "clamp"}
    fleet = {"kind": "agg", "engine": {"engine": {"timing_model": timing}}}
    (tmp_path / "spec.json").write_text(json.dumps({"fleet": fleet}), "utf-8")
    spec = load_spec(tmp_path / "spec.json")
    assert spec.fleet.kind == "agg"
    assert spec.fleet.engine.engine.timing_model == table(outside="clamp")
    assert ReplaySpec.from_data(json.loads(spec.to_json())) == spec


def test_path_of_a_profile_file_starts_at_the_folder_of_the_spec(tmp_path: Path) -> None:
    timing = {"type": "external", "provider": "dynamo_profile", "config": {"path": "a/b.npz"}}
    fleet = {"kind": "agg", "engine": {"engine": {"timing_model": timing}}}
    (tmp_path / "spec.json").write_text(json.dumps({"fleet": fleet}), "utf-8")
    spec = load_spec(tmp_path / "spec.json")
    assert spec.fleet.kind == "agg"
    found = spec.fleet.engine.engine.timing_model
    assert isinstance(found, ExternalTiming)
    assert Path(found.config.path) == tmp_path / "a" / "b.npz"


@pytest.mark.parametrize("content", [b"", b"text"])
def test_file_that_is_no_table_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "table.npz").write_bytes(content)
    with pytest.raises(SpecError, match=r"^path: .*table.npz: not a timing table written by save"):
        TableTiming.load(tmp_path / "table.npz")


def test_missing_file_is_named() -> None:
    with pytest.raises(SpecError, match=r"^path: cannot read no.npz: No such file or directory"):
        TableTiming.load("no.npz")


# Errors


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"prefill": {**PREFILL, "new_tokens": [101, 1]}},
            "prefill.new_tokens: got 101 before 1, expected increasing numbers",
        ),
        (
            {"prefill": {**PREFILL, "new_tokens": [1], "ms": [[1, 2]]}},
            "prefill.new_tokens: got 1 points, expected at least 2",
        ),
        (
            {"prefill": {**PREFILL, "ms": [[1, 2], [3]]}},
            "prefill.ms: got 2 rows of 1 or 2 numbers, expected 2 of 2: one row per new_tokens, "
            "one number per prefix_tokens",
        ),
        ({"prefill": {**PREFILL, "ms": [[1, 2], [3, -1]]}}, "prefill.ms.1.1: "),
        ({"prefill": {**PREFILL, "ms": [[1, 2], [3, math.nan]]}}, "prefill.ms.1.1: "),
        ({"prefill": {**PREFILL, "ms": [[1, 2], [3, "4"]]}}, "prefill.ms.1.1: invalid type"),
        (
            {"decode": {**DECODE, "active_tokens": [1, 2]}},
            "decode: expected either sequences or active_tokens, got both",
        ),
        ({"outside": "wrap"}, "outside: unknown variant `wrap`, expected `extend` or `clamp`"),
        ({"path": "x.npz"}, "expected either path or prefill and decode, got path and decode"),
        ({"prefil": 1}, "prefil: unknown field `prefil`"),
    ],
)
def test_bad_table_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        table(**changed)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "invalid type: null, expected struct Profile"),
        ("x.npz", 'invalid type: string "x.npz", expected struct Profile'),
        ({}, "missing field `path`"),
        ({"path": 3}, "path: invalid type: integer `3`, expected path string"),
        ({"path": "x", "foo": 1}, "foo: unknown field `foo`, expected `path`"),
    ],
)
def test_bad_provider_config_is_refused_in_the_words_of_the_reference(
    config: Any, message: str
) -> None:
    timing = {"type": "external", "provider": "dynamo_profile", "config": config}
    with pytest.raises(SpecError) as error:
        LaunchSpec.from_data({"engine": {"timing_model": timing}})
    assert message in str(error.value)


def test_other_providers_are_not_supported_whatever_their_config() -> None:
    timing = {"type": "external", "provider": "ais", "config": {"system": "h100"}}
    with pytest.raises(UnsupportedSpecError) as error:
        LaunchSpec.from_data({"engine": {"timing_model": timing}})
    assert 'unsupported external timing provider "ais"' in str(error.value)
    assert "\n" not in str(error.value)


# Sampling


def prefill_ms(new_tokens: float, prefix_tokens: float) -> float:
    return 6.0 + 0.017 * new_tokens + 8e-7 * new_tokens * (prefix_tokens + new_tokens / 2)


def decode_ms(sequences: float, context_tokens: float) -> float:
    return 6.3 + 0.013 * sequences + 4e-5 * sequences * context_tokens


def test_sampled_table_has_the_values_of_the_functions_at_its_points() -> None:
    timing = sample_timing(prefill_ms, decode_ms, new_tokens=(1, 100), context_tokens=(10, 20))
    assert timing.prefill.ms[1][1] == prefill_ms(100, 2048)
    assert timing.decode.ms[3][1] == decode_ms(8, 20)


def test_interpolation_error_is_that_at_the_middles() -> None:
    timing = sample_timing(prefill_ms, decode_ms, new_tokens=(0, 1000), prefix_tokens=(0,))
    error = interpolation_error(timing, prefill_ms, decode_ms)
    true_ms = prefill_ms(500, 0)
    table_ms = (prefill_ms(0, 0) + prefill_ms(1000, 0)) / 2
    assert (
        error.prefill.max_frac == error.prefill.mean_frac == pytest.approx(table_ms / true_ms - 1)
    )
    assert error.decode.max_frac < 1e-14  # bilinear itself


def test_functions_of_arrays_can_be_sampled() -> None:
    timing = sample_timing(lambda new, prefix: np.sqrt(new + prefix), lambda n, c: np.array([1.0]))
    assert timing.prefill.ms[0][0] == 1.0
    assert timing.decode.ms[0][0] == 1.0


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (-1.0, ValueError, r"decode_ms\(1, 16\): got -1.0 ms, expected >= 0 and finite"),
        (math.inf, ValueError, r"decode_ms\(1, 16\): got inf ms, expected >= 0 and finite"),
        ("1 ms", TypeError, r"decode_ms\(1, 16\): got '1 ms', expected a number of ms"),
    ],
)
def test_value_that_is_no_duration_is_refused(
    value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        sample_timing(prefill_ms, lambda sequences, context: value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, r"got None, expected a function of \(new_tokens, prefix_tokens\)"),
        (lambda new: 1.0, r"got a function of \(new\), expected a function of \(new_tokens, pre"),
        (lambda new, prefix, *, scale: 1.0, r"got a function of \(new, prefix, \*, scale\), exp"),
    ],
)
def test_what_is_no_function_of_two_numbers_is_refused(given: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"^prefill_ms: {message}"):
        sample_timing(given, decode_ms)
    timing = sample_timing(prefill_ms, decode_ms)
    with pytest.raises(TypeError, match=f"^prefill_ms: {message}"):
        interpolation_error(timing, given, decode_ms)


def test_function_without_a_signature_can_be_sampled() -> None:
    timing = sample_timing(max, np.maximum)
    assert (timing.prefill.ms[1][1], timing.decode.ms[1][0]) == (2048.0, 16.0)

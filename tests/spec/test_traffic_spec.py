"""Traffic specs: presets, what they merge with, and what is refused (field-cases.md F50)."""

import json
import math
from typing import Any

import pytest
from support.shared_folder import require_shared

from aisim_gym.errors import SpecError
from aisim_gym.spec import TrafficSpec, WorkloadSpec
from aisim_gym.spec.lengths import ScaledLengths
from aisim_gym.spec.named_lengths import NamedLengths
from aisim_gym.spec.traffic_presets import PRESETS

POISSON: dict[str, Any] = {"kind": "poisson", "rate_rps": 2.0}
RAMP: dict[str, Any] = {"kind": "ramp", "from_rps": 1, "to_rps": 2, "at_s": 10, "ramp_s": 5}
CLIENTS: dict[str, Any] = {"kind": "clients", "rate": POISSON, "clients": 3, "zipf": 1.0}
ONE: dict[str, Any] = {"weights": [1], "medians": [10], "sigmas": [0.1], "max_tokens": 20}
SESSIONS: dict[str, Any] = {"kind": "sessions", "gap_median_s": 9, "gap_sigma": 1, "growth": ONE}


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_reads_back_from_its_json(preset: str) -> None:
    spec = TrafficSpec(preset=preset, seed=3)
    assert TrafficSpec.model_validate_json(spec.model_dump_json()) == spec
    assert TrafficSpec.from_data(spec.model_dump(mode="json")) == spec
    assert hash(spec) == hash(TrafficSpec(preset=preset, seed=3))


def test_part_without_kind_changes_the_presets_and_one_with_kind_replaces_it() -> None:
    spec = TrafficSpec(preset="azure-chat", arrivals={"mean_rps": 9.0})
    assert spec.arrivals.model_dump() == {
        **TrafficSpec(preset="azure-chat").arrivals.model_dump(),
        "mean_rps": 9.0,
    }
    assert spec.lengths == TrafficSpec(preset="azure-chat").lengths
    assert TrafficSpec(preset="azure-chat", arrivals=POISSON).arrivals.kind == "poisson"
    capped = TrafficSpec(preset="azure-chat", lengths={"max_input_tokens": 99})
    assert capped.lengths == NamedLengths(name="azure-conv", max_input_tokens=99)


def test_name_stands_for_fitted_lengths() -> None:
    long = TrafficSpec(arrivals=POISSON, lengths={"kind": "named", "name": "azure-conv"})
    assert TrafficSpec(arrivals=POISSON, lengths="azure-conv") == long


def numbers_of(data: Any) -> list[float]:
    """Return every number in nested data, ascending."""
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list | tuple):
        return sorted(number for item in data for number in numbers_of(item))
    is_number = isinstance(data, int | float) and not isinstance(data, bool)
    return [float(data)] if is_number else []


FITTED = [preset for preset in PRESETS if preset.startswith(("azure", "moon", "arxiv"))]


@pytest.mark.parametrize("preset", [*FITTED, "servegen-small-day", "reasoning-r1-day"])
def test_preset_has_the_fitted_numbers(preset: str) -> None:
    path = require_shared("data", "workload_presets.json")
    fitted = json.loads(path.read_text("utf-8"))[preset]
    spec = TrafficSpec(preset=preset)
    mixtures = [fitted["lengths"]["osl"]] if "lengths" in fitted else []
    mixtures += [part["osl"] for part in fitted.get("classes", ())]
    ours = [
        part.lengths.unscaled()
        for part in spec.request_classes
        if isinstance(part.lengths, ScaledLengths)
    ]
    for mixture, (_, output) in zip(mixtures, ours, strict=True):
        assert numbers_of(output.model_dump()) == numbers_of(mixture)
    if "isl" in fitted.get("lengths", {}):
        assert numbers_of(ours[0][0].model_dump()) == numbers_of(fitted["lengths"]["isl"])
    # Means are not carried over: they follow from the rest. A time constant is in hours here.
    rates = {key: value for key, value in fitted["arrival"].items() if key != "tau_s"}
    for name, value in rates.items():
        kept = (
            {key: number for key, number in value.items() if key != "mean"}
            if isinstance(value, dict)
            else value
        )
        assert set(numbers_of(kept)) <= set(numbers_of(spec.arrivals.model_dump())), name


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -1.0])
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("rate_scale", {"rate_scale": ...}),
        ("arrivals.rate_rps", {"arrivals": {"kind": "poisson", "rate_rps": ...}}),
        ("arrivals.rate_rps", {"arrivals": {"kind": "renewal", "rate_rps": ...}}),
        ("arrivals.ramp_s", {"arrivals": {**RAMP, "ramp_s": ...}}),
        ("arrivals.rate.rate_rps", {"arrivals": {**CLIENTS, "rate": {**POISSON, "rate_rps": ...}}}),
        ("lengths.input_scale", {"lengths": {"input_scale": ...}}),
        ("prompts.gap_median_s", {"prompts": {**SESSIONS, "gap_median_s": ...}}),
    ],
)
def test_positive_numbers_are_finite_and_above_zero(
    path: str, fields: dict[str, Any], value: float
) -> None:
    def filled(data: Any) -> Any:
        if isinstance(data, dict):
            return {key: filled(inner) for key, inner in data.items()}
        return value if data is ... else data

    with pytest.raises(SpecError) as caught:
        TrafficSpec(preset="steady", **filled(fields))
    given = {"nan": "NaN", "-inf": "-inf"}.get(str(value), f"{value:g}")
    assert str(caught.value) == f"{path} must be finite and positive, got {given}"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "missing field `arrivals` (When requests arrive)"),
        (
            {"arrivals": POISSON},
            "exactly one of lengths and classes must be given, got neither",
        ),
        (
            {"preset": "mooncake-toolagent", "lengths": "azure-conv"},
            "exactly one of lengths and classes must be given, got both",
        ),
        ({"preset": "azure-chats"}, "; did you mean `azure-chat`?"),
        (
            {"preset": "steady", "duration_s": math.nan},
            "duration_s must be finite and in [0.001, 31622400], got NaN",
        ),
        (
            {"preset": "steady", "duration_s": 0},
            "duration_s must be finite and in [0.001, 31622400], got 0",
        ),
        (
            {"preset": "steady", "arrivals": {"kind": "poison", "rate_rps": 1}},
            "arrivals.kind: unknown variant `poison`, expected one of `poisson`, ",
        ),
        (
            {"preset": "steady", "arrivals": {"rate_rsp": 1}},
            "arrivals.rate_rsp: unknown field `rate_rsp`, expected `kind` or `rate_rps`; did you "
            "mean `rate_rps`?",
        ),
        (
            {"preset": "bursty", "arrivals": {"rates_rps": []}},
            "arrivals.rates_rps: got 0 items, expected at least 2",
        ),
        (
            {"preset": "bursty", "arrivals": {"rates_rps": [1, 2, 3]}},
            "arrivals.switch_per_s: got rows of [2, 2] numbers, allowed: 3 rows of 3",
        ),
        (
            {"preset": "bursty", "arrivals": {"rates_rps": [1, -2]}},
            "arrivals.rates_rps.1: rates_rps must be finite and non-negative, got -2",
        ),
        (
            {"preset": "bursty", "arrivals": {"rates_rps": [0, 0]}},
            "arrivals.rates_rps: got 0 in every state, allowed: one rate above 0",
        ),
        (
            {"preset": "bursty", "arrivals": {"switch_per_s": [[1, 1], [1, 0]]}},
            "arrivals.switch_per_s.0.0: got 1, allowed: 0",
        ),
        (
            {"preset": "bursty", "arrivals": {"switch_per_s": [[0, 1], [0, 0]]}},
            "arrivals.switch_per_s: state 0 cannot be reached from state 1",
        ),
        (
            {"preset": "bursty", "arrivals": {"switch_per_s": [[0, 101], [1, 0]]}},
            "arrivals.switch_per_s.0: got 101 switches per second in all, allowed: at most 100",
        ),
        (
            {"preset": "azure-code", "arrivals": {"on_s": {"median": 1, "sigma": 1, "high": 0.0}}},
            "arrivals.on_s.high must be finite and positive, got 0",
        ),
        (
            {
                "preset": "azure-code",
                "arrivals": {"on_s": {"median": 1, "sigma": 1, "low": 3, "high": 2}},
            },
            "arrivals.on_s.high must be at least low, got 2 and 3",
        ),
        (
            {"preset": "diurnal", "arrivals": {"cv": 0}},
            "arrivals.cv must be finite and in [0.01, 100], got 0",
        ),
        (
            {"preset": "diurnal", "arrivals": {"noise_tau_h": 0.001, "day_s": 60}},
            "arrivals.noise_tau_h: got 0.001 h of a day of 60 s, which is 0.0025 s, allowed: at "
            "least 0.1 s",
        ),
        (
            {"preset": "ramp", "duration_s": 600},
            "arrivals.at_s must be below duration_s, got 600 and 600",
        ),
        (
            {"preset": "steady", "arrivals": {**CLIENTS, "rate": RAMP}, "duration_s": 10},
            "arrivals.rate.at_s must be below duration_s, got 10 and 10",
        ),
        (
            {"preset": "steady", "arrivals": {**CLIENTS, "rate": {**RAMP, "cv": 2}}},
            "arrivals.rate.cv: got 2, allowed: 1",
        ),
        (
            {"preset": "ramp", "arrivals": {"from_rps": 0, "to_rps": 0}},
            "arrivals.to_rps: got 0 for from_rps and to_rps, allowed: one above 0",
        ),
        (
            {
                "preset": "steady",
                "arrivals": {"kind": "piecewise", "times_s": [0, 5, 5], "rates_rps": [1, 2, 3]},
            },
            "arrivals.times_s.2: got 5 after 5, allowed: ascending times",
        ),
        (
            {
                "preset": "steady",
                "arrivals": {"kind": "piecewise", "times_s": [1], "rates_rps": [1]},
            },
            "arrivals.times_s.0: got 1, allowed: 0",
        ),
        (
            {
                "preset": "steady",
                "arrivals": {"kind": "piecewise", "times_s": [0, 1], "rates_rps": [1]},
            },
            "arrivals.rates_rps: got 1 rates for 2 times_s, allowed: as many",
        ),
        (
            {"arrivals": POISSON, "lengths": {"kind": "mixture", "input": ONE}},
            "lengths: missing field `output` (Output lengths)",
        ),
        (
            {
                "arrivals": POISSON,
                "lengths": {"kind": "mixture", "input": {**ONE, "medians": [1, 2]}, "output": ONE},
            },
            "lengths.input.medians: got 2 medians for 1 weights, allowed: as many",
        ),
        (
            {
                "arrivals": POISSON,
                "lengths": {"kind": "mixture", "input": {**ONE, "min_tokens": 21}, "output": ONE},
            },
            "lengths.input.max_tokens must be at least min_tokens, got 20 and 21",
        ),
        (
            {
                "arrivals": POISSON,
                "lengths": {"kind": "mixture", "input": {**ONE, "medians": [40]}, "output": ONE},
            },
            "lengths.input.medians.0: got a component with median 40 and sigma 0.1, of which "
            "1e-11 lies in 1 .. 20, allowed: at least 1e-06",
        ),
        (
            {"preset": "mooncake-conversation", "lengths": {"max_input_tokens": 100}},
            "lengths.max_input_tokens: got 100, of which 0 of the lengths are at most, allowed: ",
        ),
        (
            {"preset": "mooncake-synthetic", "lengths": {"input_scale": 10}},
            "lengths.max_input_tokens: got lengths up to 1913785, allowed: at most 1048576",
        ),
        (
            {"preset": "steady", "lengths": {"max_output_tokens": 0}},
            "lengths.max_output_tokens must be in 1..=1048576, got 0",
        ),
        (
            {"preset": "steady", "lengths": {"kind": "fixed", "input_tokens": 0}},
            "lengths.input_tokens must be in 1..=1048576, got 0",
        ),
        (
            {"preset": "steady", "prompts": {"kind": "groups", "groups": 0}},
            "prompts.groups must be in 1..=100000, got 0",
        ),
        (
            {"preset": "steady", "prompts": {"kind": "groups", "groups": 2, "prefix_blocks": 65}},
            "prompts.prefix_blocks must be at most max_prefix_blocks, got 65 and 64",
        ),
        (
            {"preset": "steady", "prompts": {"kind": "clients"}},
            "prompts.kind: got clients with arrivals of kind poisson, allowed: only with arrivals "
            "of kind clients",
        ),
        (
            {"preset": "steady", "prompts": {**SESSIONS, "continue_probs": [0.5, 1.5]}},
            "prompts.continue_probs.1: continue_probs must be finite and in [0, 1], got 1.5",
        ),
        (
            {"preset": "steady", "prompts": {**SESSIONS, "continue_prob_later": 1.0}},
            "prompts.continue_prob_later must be finite and in [0, 0.99], got 1",
        ),
        (
            {
                "arrivals": POISSON,
                "classes": [
                    {"share": 1, "lengths": "azure-conv", "prompts": SESSIONS},
                    {
                        "share": 1,
                        "lengths": "azure-conv",
                        "prompts": {"kind": "groups", "groups": 2, "block_tokens": 16},
                    },
                ],
            },
            "classes: got prompts with block_tokens 16, 512, allowed: one size in all classes",
        ),
        (
            {"arrivals": POISSON, "classes": [{"share": 0, "lengths": "azure-conv"}]},
            "classes.0.share must be finite and positive, got 0",
        ),
        (
            {
                "arrivals": POISSON,
                "classes": [{"share": 1, "lengths": "azure-conv"}],
                "prompts": SESSIONS,
            },
            "prompts and classes exclude one another, got both",
        ),
    ],
)
def test_mistakes_are_named_with_what_was_given_and_what_is_allowed(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError) as caught:
        TrafficSpec(**fields)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"preset": "azure-chat"}, "traffic"),
        ({"arrivals": POISSON, "lengths": "azure-code", "seed": 2}, "traffic"),
        ({"duration_s": 60.0, "seed": 2}, "chat-wave"),
        ({}, "chat-wave"),
    ],
)
def test_fields_that_only_traffic_has_say_the_kind(fields: dict[str, Any], kind: str) -> None:
    generator = WorkloadSpec.from_data({"generator": fields}).generator
    assert generator is not None
    assert generator.kind == kind


def test_fields_of_chat_and_traffic_do_not_mix() -> None:
    mixed = {"preset": "azure-chat", "base_rate_rps": 2.0}
    with pytest.raises(SpecError, match=r"^generator.base_rate_rps: unknown field .* `preset`, "):
        WorkloadSpec.from_data({"generator": mixed})

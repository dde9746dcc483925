"""Optional stages as users write them: defaults, numbers, messages (replay-runtime.md §17.1)."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from aisim_gym.errors import SpecError
from aisim_gym.spec import (
    AggregatedFleet,
    DetokenizationSpec,
    DisaggregatedFleet,
    EncoderSpec,
    ReplaySpec,
    TokenizationSpec,
)

MANUAL = Path(__file__).parents[2] / "docs" / "stages.md"

FLEET: dict[str, Any] = {
    "prefill": {"engine": {"worker_type": "prefill"}},
    "decode": {"engine": {"worker_type": "decode"}},
}

ENCODER: dict[str, Any] = {"forward_ms": [10.0], "transfer_bytes": 0, "bandwidth_gb_s": 1.0}


def test_stage_has_one_server_and_no_latency_by_default() -> None:
    assert TokenizationSpec() == TokenizationSpec(workers=1, request_ms=0.0, token_ms=0.0)
    assert DetokenizationSpec() == DetokenizationSpec(workers=1, request_ms=0.0, token_ms=0.0)


def test_embeddings_take_bytes_over_decimal_gigabytes() -> None:
    encoder = EncoderSpec(**{**ENCODER, "transfer_bytes": 5_000_000, "bandwidth_gb_s": 2.5})
    assert encoder.transfer_ms == 2.0
    assert EncoderSpec(**ENCODER).transfer_ms == 0.0


def test_gpus_of_all_instances_count() -> None:
    assert EncoderSpec(**ENCODER, num_instances=3, gpus_per_instance=2).num_gpus == 6


def test_written_spec_is_read_back() -> None:
    encoder = EncoderSpec(**{**ENCODER, "max_batch": 2, "forward_ms": [10, 15.5]})
    assert encoder.model_dump(mode="json")["forward_ms"] == [10.0, 15.5]
    assert EncoderSpec.from_data(encoder.model_dump(mode="json")) == encoder


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"num_instances": 0}, "num_instances must be in 1..=1000000, got 0"),
        ({"gpus_per_instance": 0}, "gpus_per_instance must be at least 1, got 0"),
        ({"max_batch": 0}, "max_batch must be at least 1, got 0"),
        ({"max_batch": 2}, "forward_ms must have max_batch = 2 entries, got 1"),
        ({"forward_ms": []}, "forward_ms must have max_batch = 1 entries, got 0"),
        (
            {"forward_ms": [-1.0]},
            "forward_ms.0: forward_ms must be finite and non-negative, got -1",
        ),
        (
            {"forward_ms": 3.0},
            "forward_ms: invalid type: floating point `3.0`, expected a sequence of numbers",
        ),
        ({"preprocess_ms": -0.5}, "preprocess_ms must be finite and non-negative, got -0.5"),
        ({"bandwidth_gb_s": 0}, "bandwidth_gb_s must be finite and positive, got 0"),
        (
            {"bandwidth_gb_s": float("inf")},
            "bandwidth_gb_s must be finite and positive, got inf",
        ),
        (
            {"bandwidth_gb_s": 1e-310, "transfer_bytes": 10**12},
            "bandwidth_gb_s is too small to transfer 1000000000000 bytes, got 1e-310",
        ),
        (
            {"transfer_bytes": -1},
            "transfer_bytes: invalid value: integer `-1`, "
            "expected usize (an integer from 0 to 18446744073709551615)",
        ),
        (
            {"images": 1},
            "images: unknown field `images`, expected one of `num_instances`, "
            "`gpus_per_instance`, `max_batch`, `preprocess_ms`, `forward_ms`, `transfer_bytes`, "
            "`bandwidth_gb_s`",
        ),
    ],
)
def test_message_names_the_encoder_field_the_value_and_what_is_allowed(
    fields: dict[str, Any], line: str
) -> None:
    with pytest.raises(SpecError) as caught:
        EncoderSpec.from_data({**ENCODER, **fields})
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"workers": 0}, "workers must be in 1..=1024, got 0"),
        ({"workers": 1025}, "workers must be in 1..=1024, got 1025"),
        ({"request_ms": -1}, "request_ms must be finite and non-negative, got -1"),
        (
            {"token_ms": float("nan")},
            "token_ms must be finite and non-negative, got NaN",
        ),
    ],
)
@pytest.mark.parametrize("stage", [TokenizationSpec, DetokenizationSpec])
def test_message_names_the_stage_field_the_value_and_what_is_allowed(
    stage: type[TokenizationSpec | DetokenizationSpec], fields: dict[str, Any], line: str
) -> None:
    with pytest.raises(SpecError) as caught:
        stage.from_data(fields)
    assert str(caught.value) == line


# In a fleet


def test_stages_and_shared_links_are_off_by_default() -> None:
    fleet = DisaggregatedFleet.from_data(FLEET)
    assert (fleet.encoder, fleet.tokenization, fleet.detokenization) == (None, None, None)
    assert fleet.transfer_links == "fixed"


def test_empty_table_turns_a_stage_on() -> None:
    fleet = DisaggregatedFleet.from_data({**FLEET, "tokenization": {}, "detokenization": {}})
    assert fleet.tokenization == TokenizationSpec()
    assert fleet.detokenization == DetokenizationSpec()


def test_example_of_the_manual_is_a_spec_with_everything_on() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", MANUAL.read_text("utf-8"), re.DOTALL)
    spec = ReplaySpec.from_data(tomllib.loads(example))
    assert isinstance(spec.fleet, DisaggregatedFleet)
    assert None not in (spec.fleet.encoder, spec.fleet.tokenization, spec.fleet.detokenization)
    assert spec.fleet.transfer_links == "shared"
    assert ReplaySpec.from_data(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"transfer_links": "fair"},
            "transfer_links: unknown variant `fair`, expected `fixed` or `shared`",
        ),
        (
            {"tokenization": 3},
            "tokenization: invalid type: integer `3`, expected a table",
        ),
        (
            {"detokenization": {"workers": 0}},
            "detokenization.workers must be in 1..=1024, got 0",
        ),
        (
            {"encoder": {**ENCODER, "forward_ms": []}},
            "encoder.forward_ms must have max_batch = 1 entries, got 0",
        ),
        (
            {"token_ms": 1.0},
            "token_ms: unknown field `token_ms`, expected one of `kind`, `num_prefill_workers`, "
            "`num_decode_workers`, `prefill`, `decode`, `encoder`, `tokenization`, "
            "`detokenization`, `transfer_links`; did you mean `detokenization.token_ms`?",
        ),
    ],
)
def test_message_names_the_place_in_the_fleet(fields: dict[str, Any], line: str) -> None:
    with pytest.raises(SpecError) as caught:
        DisaggregatedFleet.from_data({**FLEET, **fields})
    assert str(caught.value) == line


@pytest.mark.parametrize("name", ["encoder", "tokenization", "detokenization", "transfer_links"])
def test_aggregated_fleet_has_no_stages(name: str) -> None:
    with pytest.raises(SpecError, match=f"unknown field `{name}`"):
        AggregatedFleet.from_data({name: {}})

"""Optional stages as a user writes them: defaults, derived numbers, messages (§17.1)."""

from typing import Any

import pytest

from aisim_gym.errors import SpecError
from aisim_gym.spec.stages import DetokenizationSpec, EncoderSpec, TokenizationSpec

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

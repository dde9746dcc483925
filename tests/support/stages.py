"""Small fleets with optional stages (replay-runtime.md §17) or shared links (§11.3)."""

from typing import Any

from aisim_gym.spec import ReplaySpec

TOKENIZERS = {"request_ms": 1.0, "token_ms": 0.25}
"""3 ms for a prompt of 8 tokens."""

DETOKENIZERS = {"request_ms": 0.5, "token_ms": 0.25}
"""0.75 ms for an output of one token."""

ENCODERS = {
    "max_batch": 2,
    "preprocess_ms": 1.0,
    "forward_ms": [10.0, 15.0],
    "transfer_bytes": 1_000_000,
    "bandwidth_gb_s": 1.0,
}
"""11 ms for one request and 17 ms for two, and 1 ms to the fleet."""

NO_STAGES = {
    "encoder": None,
    "tokenization": None,
    "detokenization": None,
    "transfer_links": "fixed",
}

NO_LATENCY = {"request_ms": 0.0, "token_ms": 0.0}
NO_ENCODING_LATENCY = {"forward_ms": [0.0], "transfer_bytes": 0, "bandwidth_gb_s": 1.0}


def with_stages(spec: ReplaySpec, **parts: Any) -> ReplaySpec:
    """Return the spec with these fields of its disaggregated fleet."""
    data = spec.model_dump(mode="json")
    return ReplaySpec.from_data({**data, "fleet": {**data["fleet"], **parts}})

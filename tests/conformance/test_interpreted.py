"""The kernel as plain Python: a slice of the recorded runs without compilation.

``NUMBA_DISABLE_JIT=1`` must be set before Python starts: ``make test`` runs this file on its own.
The same runs pass compiled in ``test_goldens.py``: both reproduce the reference, so they agree.
"""

import os
from pathlib import Path

import pytest
from support.goldens import FOUND, golden_path

from aisim_gym.conformance import Status, check_golden, find_goldens
from aisim_gym.conformance.run import golden_name
from aisim_gym.replay.advance import advance

IS_INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")

SLICE = (
    "agg-sglang-delta-01",
    "agg-sglang-dp-01",
    "agg-sglang-kvpressure-01",
    "agg-sglang-maxlen-01",
    "agg-sglang-options-01",
    "agg-trtllm-kvpressure-01",
    "agg-trtllm-maxlen-01",
    "agg-trtllm-spec-01",
    "agg-vllm-chunked-01",
    "agg-vllm-coincide-01",
    "agg-vllm-dp-02",
    "agg-vllm-kvpressure-03",
    "agg-vllm-maxlen-01",
    "agg-vllm-micro-01",
    "agg-vllm-prefix-07",
    "agg-vllm-scale-zero-01",
    "agg-vllm-sessions-01",
    "agg-vllm-specrng-01",
    "disagg-sglang-kvpressure-01",
    "disagg-sglang-prefix-01",
    "disagg-trtllm-reject-01",
    "disagg-vllm-concurrency-01",
    "disagg-vllm-dp-02",
    "disagg-vllm-error-02",
    "disagg-vllm-kvpressure-01",
    "disagg-vllm-reject-01",
    "disagg-vllm-scale-zero-02",
    "disagg-vllm-startup-06",
    "disagg-vllm-transfer-04",
)
"""Small runs that together enter nearly every kernel function."""

pytestmark = pytest.mark.skipif(
    not IS_INTERPRETED, reason="runs only with NUMBA_DISABLE_JIT=1, see `make test`"
)


def test_nothing_is_compiled() -> None:
    assert not hasattr(advance, "signatures")


@pytest.mark.parametrize(
    "path", [*map(golden_path, SLICE), *find_goldens([FOUND])], ids=golden_name
)
def test_run_of_the_reference_is_reproduced_without_compilation(path: Path) -> None:
    outcome = check_golden(path)
    if outcome.status is not Status.PASSED:
        raise AssertionError(str(outcome)) from outcome.exception

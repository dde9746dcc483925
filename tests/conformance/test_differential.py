"""Random runs: the reference and this package come to the same results, field by field.

What differs is written to a golden file, smaller and smaller while Hypothesis shrinks it; ``make
differential`` tries many more scenarios and counts what they were.
"""

from pathlib import Path

import pytest
from conformance.drawn_scenarios import BACKENDS, scenarios
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.oracle_comparison import Differential


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where differences are written."""
    return tmp_path_factory.mktemp("differences")


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_random_run_is_reproduced(
    backend: str, differential: Differential, folder: Path, data: st.DataObject
) -> None:
    comparison = differential.compare(data.draw(scenarios(backend)))
    if comparison.difference is not None:
        path = comparison.write(folder)
        raise AssertionError(
            f"{comparison.difference}\nreplay: aisim-gym conformance {path}"
        ) from comparison.run.exception

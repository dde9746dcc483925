"""The reference, for the tests that ask it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.oracle import Oracle, why_no_oracle
from support.oracle_comparison import Differential


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """The reference, if it is there."""
    if reason := why_no_oracle():
        pytest.skip(reason)
    with Oracle() as oracle:
        yield oracle


@pytest.fixture(scope="module")
def differential(oracle: Oracle, folder: Path) -> Differential:
    """The reference beside us; differences are written to the ``folder`` of the module."""
    return Differential(oracle, folder)

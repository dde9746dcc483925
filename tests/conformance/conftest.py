"""The reference, for the tests that ask it."""

from collections.abc import Iterator

import pytest
from support.oracle import Oracle, why_no_oracle


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """The reference, if it is there."""
    if reason := why_no_oracle():
        pytest.skip(reason)
    with Oracle() as oracle:
        yield oracle

"""Settings that hold for every test.

The environment variable HYPOTHESIS_PROFILE chooses how hard the laws are tried: ``dev`` (the
default) draws 25 examples, new ones each time; ``ci`` draws 200, the same ones each time.
"""

import os

import pytest
from hypothesis import settings

# No deadline: the first example of a process may compile the kernel.
settings.register_profile("dev", max_examples=25, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names files of the fuzzer, see tests/fuzz."""
    parser.addoption(
        "--found", action="append", default=[], metavar="FILE", help="a run that fuzzing has kept"
    )

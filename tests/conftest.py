"""Settings that hold for every test.

The environment variable HYPOTHESIS_PROFILE chooses the number of examples per law: 25 with ``dev``
(the default), 50 with ``ci``. Both draw the same ones each time and on every machine, and neither
reads or writes a database of examples. Fresh ones belong to ``make fuzz``.
"""

import os
from contextlib import suppress

import pytest
from hypothesis import settings

# No deadline: the first example of a process may compile the kernel.
settings.register_profile("dev", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# Hypothesis also draws numbers and texts that it finds in the sources of the modules imported so
# far: examples would depend on the folder of the sources and on which tests ran before.
if settings().derandomize:
    with suppress(ImportError):  # versions that do not
        from hypothesis.internal.conjecture.providers import HypothesisProvider
        from hypothesis.internal.constants_ast import Constants

        setattr(HypothesisProvider, "_local_constants", Constants())  # noqa: B010


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names files of the fuzzer, see tests/fuzz."""
    parser.addoption(
        "--found", action="append", default=[], metavar="FILE", help="a run that fuzzing has kept"
    )

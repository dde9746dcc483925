"""Compiled code takes indexes as they are; other code that Numba compiles does not notice."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from aisim_gym.kernel import entry_point, kernel
from aisim_gym.numba_adapter import IS_COMPLETE

pytestmark = pytest.mark.skipif(not IS_COMPLETE, reason="kernels are compiled by plain Numba")


@kernel
def element(values: NDArray[np.float64], index: int) -> float:
    return float(values[index])


def pick(values: NDArray[np.float64], index: int) -> float:
    return element(values, index)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))


PROGRAM = """
import sys
import numpy as np
from aisim_gym.kernel import entry_point

@entry_point
def pick(values, index):
    return values[index]

print(pick(np.arange(4.0), 3), pick(np.arange(4.0), int(sys.argv[1])))
"""


@pytest.mark.parametrize("index", [-1, 4])
def test_index_that_is_not_there_is_found_with_checked_bounds(index: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(index)],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.stdout == ""
    assert "IndexError: index is out of bounds" in done.stderr


def test_index_is_not_counted_from_the_end() -> None:
    values = np.arange(4.0)
    assert entry_point(pick)(values[2:], -1) == 1.0  # what lies before


def test_index_in_a_table_of_columns_is_checked_in_every_dimension(tmp_path: Path) -> None:
    program = PROGRAM.replace("values[index]", "values[1, index]").replace(
        "np.arange(4.0)", "np.zeros((2, 4))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "-1"],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.stdout == ""
    assert "IndexError: index is out of bounds" in done.stderr


def test_other_compiled_code_counts_from_the_end() -> None:
    numba_module: Any = numba
    entry_point(pick)(np.arange(4.0), 0)
    assert numba_module.njit(lambda values: values[-1])(np.arange(4.0)) == 3.0

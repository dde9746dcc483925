"""Compiled code takes indexes as they are; other code that Numba compiles does not notice."""

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core import config
from numpy.typing import NDArray

from aisim_gym.kernel import entry_point, kernel


@kernel
def element(values: NDArray[np.float64], index: int) -> float:
    return float(values[index])


def pick(values: NDArray[np.float64], index: int) -> float:
    return element(values, index)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("index", [-1, 4])
def test_index_that_is_not_there_is_found_with_checked_bounds(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    compiled = entry_point(pick)
    assert compiled(np.arange(4.0), 3) == 3.0
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(np.arange(4.0), index)


def test_index_is_not_counted_from_the_end() -> None:
    values = np.arange(4.0)
    assert entry_point(pick)(values[2:], -1) == 1.0  # what lies before


def test_other_compiled_code_counts_from_the_end() -> None:
    numba_module: Any = numba
    entry_point(pick)(np.arange(4.0), 0)
    assert numba_module.njit(lambda values: values[-1])(np.arange(4.0)) == 3.0

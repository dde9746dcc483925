"""The laws draw the same examples on every machine and in every order of the tests."""

import importlib
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def drawn_numbers() -> list[int]:
    """Return what a law draws that is always the same."""
    seen = []

    @settings(max_examples=200, database=None)
    @given(st.lists(st.integers(0, 10**9), min_size=10))
    def collect(numbers: list[int]) -> None:
        seen.extend(numbers)

    collect()
    return seen


@pytest.mark.parametrize("name", ["dev", "ci"])
def test_profile_draws_without_chance_and_memory(name: str) -> None:
    profile = settings.get_profile(name)
    assert profile.derandomize
    assert profile.database is None


@pytest.mark.skipif(not settings().derandomize, reason="this profile draws at random")
def test_examples_do_not_depend_on_what_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn_numbers()
    constants = ", ".join(str(100_000 + i) for i in range(500))
    (tmp_path / "module_with_numbers.py").write_text(f"NUMBERS = [{constants}]\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("module_with_numbers")
    after = drawn_numbers()
    del sys.modules["module_with_numbers"]
    assert len(before) > 1000
    assert after == before

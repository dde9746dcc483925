"""Finds files of the project's shared folder, for tests that use real traces."""

from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parents[1]


def find_file(*parts: str) -> Path | None:
    """Return ``shared/<parts>`` next to any folder above the tests, or None."""
    candidates = (folder / "shared" / Path(*parts) for folder in _TESTS.parents)
    return next((path for path in candidates if path.exists()), None)


def find_error_probes() -> Path | None:
    """Return the reference's error probes: the project's copy, else the shared one."""
    copy = _TESTS / "conformance" / "data" / "errors.json"
    return copy if copy.exists() else find_file("goldens", "errors.json")


def require_trace(name: str) -> Path:
    """Return a public trace of the shared folder, or skip the test."""
    path = find_file("data", "traces", name)
    if path is None:
        pytest.skip(f"needs shared/data/traces/{name}, which is not next to this checkout")
    return path

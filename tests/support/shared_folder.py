"""The folder ``shared`` beside a checkout: traces and recorded runs that are not part of it."""

from pathlib import Path

import pytest


def find_shared(*parts: str) -> Path | None:
    """Return ``shared/<parts>`` in a folder above the tests, None where it is absent."""
    candidates = (
        folder.joinpath("shared", *parts) for folder in Path(__file__).resolve().parents[2:]
    )
    return next((path for path in candidates if path.exists()), None)


def require_shared(*parts: str) -> Path:
    """Return ``shared/<parts>``, or skip the test."""
    path = find_shared(*parts)
    if path is None:
        pytest.skip(f"needs shared/{'/'.join(parts)}, which is not beside this checkout")
    return path

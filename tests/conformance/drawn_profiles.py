"""Random profile files of the reference's provider ``dynamo_profile``, all of them valid."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

Profile = dict[str, list[Any]]
"""The arrays of a profile file by name, as plain lists."""


@st.composite
def profiles(draw: st.DrawFn, *, is_long: bool = False) -> Profile:
    """Draw a small profile, rough enough that every cell and every extrapolation shows.

    Args:
        draw: Hypothesis.
        is_long: Whether passes take weeks, where a nanosecond shows the order of operations.
    """
    isl = draw(_axes(300))
    active, context = draw(_axes(600)), draw(_axes(120))
    prefills_ms, decodes_ms = (_LONG_MS, _LONG_MS) if is_long else (_PREFILLS_MS, _DECODES_MS)
    return {
        "prefill_isl": isl,
        "prefill_ttft_ms": [draw(prefills_ms) for _ in isl],
        "decode_active_kv_tokens": active,
        "decode_context_length": context,
        "decode_itl": [[draw(decodes_ms) for _ in context] for _ in active],
    }


def write_profile(profile: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Write the arrays to a file."""
    arrays: dict[str, Any] = {name: np.array(values, float) for name, values in profile.items()}
    np.savez(path, **arrays)


def use_profiles(scenario: Mapping[str, Any], paths: Mapping[str, Path]) -> dict[str, Any]:
    """Return a scenario whose roles take their times from profile files."""
    return {
        **scenario,
        "engine_overrides": {
            role: {**launch, "engine": {**launch["engine"], "timing_model": _timing(paths[role])}}
            for role, launch in scenario["engine_overrides"].items()
        },
    }


def _timing(path: Path) -> dict[str, Any]:
    return {"type": "external", "provider": "dynamo_profile", "config": {"path": str(path)}}


def _axes(longest: int) -> st.SearchStrategy[list[float]]:
    points = st.lists(st.integers(0, longest), min_size=2, max_size=5, unique=True)
    shifts = st.sampled_from([0.0, 0.0, 0.5, 1 / 3])
    return st.builds(lambda axis, shift: [x + shift for x in sorted(axis)], points, shifts)


_PREFILLS_MS = st.sampled_from([10.0, 0.0, 3.0, 7.3, 50.0 / 3.0, 25.0, 123.456])
_DECODES_MS = st.sampled_from([4.0, 1.0, 0.25, 7.3, 10.0 / 3.0, 12.5, 33.3, -5.0, math.nan])
_LONG_MS = st.floats(1e8, 3e9)

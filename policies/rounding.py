"""Rounding that is robust to float noise (policies.md §0.4, §1)."""

import math

CEIL_SLACK = 1e-9


def ceil_tol(value: float) -> int:
    """Return the ceiling of ``value`` with a tolerance: 3.0000000001 gives 3 (§0.4)."""
    return math.ceil(value - CEIL_SLACK)


def round_half_up(value: float) -> int:
    """Return the nearest integer of a number >= 0; one half goes up (§1)."""
    whole = math.floor(value)
    return whole + (value - whole >= 0.5)

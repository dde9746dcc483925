"""Numbers as the reference prints them in messages."""

import math


def number_text(value: float) -> str:
    """Return ``value`` without a trailing ``.0``; ``NaN``, ``inf`` and ``-inf`` as such."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == int(value) and abs(value) < 1e16:
        return str(int(value))
    return repr(float(value))

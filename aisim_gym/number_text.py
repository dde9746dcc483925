"""Number formatting as in the reference's messages."""

import math
from decimal import Decimal


def number_text(value: float) -> str:
    """Return ``value`` without exponent and trailing ``.0``; ``NaN``, ``inf``, ``-inf`` as such."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return format(Decimal(repr(float(value))), "f").removesuffix(".0")

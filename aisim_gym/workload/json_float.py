"""Parse decimal numbers exactly as the reference does.

The reference's JSON parser trades the last bit for speed: it reads the digits as one 64-bit integer
and multiplies or divides once by a power of ten. A number of more than about 16 digits can thus be
one unit in the last place away from the nearest double (confirmed: the difference of
26.626621409293598 and 6.626621409293598 is 20.000000000000004 there). Arrival times must be the
same doubles, so this module does the same.
"""

_U64_MAX = 2**64 - 1
_MAX_EXPONENT = 308


def parse_json_float(text: str) -> float:
    """Return the value of a JSON number with a fraction or an exponent; +-inf if out of range.

    Args:
        text: A valid JSON number.
    """
    negative = text.startswith("-")
    mantissa, _, exponent_text = text.lstrip("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    exponent = int(exponent_text or "0")
    significand = 0
    is_full = False
    for digit in whole:
        if is_full or significand * 10 + int(digit) > _U64_MAX:
            is_full = True
            exponent += 1
        else:
            significand = significand * 10 + int(digit)
    for digit in fraction:
        # Digits from the first that does not fit are dropped.
        if significand * 10 + int(digit) > _U64_MAX:
            break
        significand = significand * 10 + int(digit)
        exponent -= 1
    value = _scaled(float(significand), exponent)
    return -value if negative else value


def _scaled(value: float, exponent: int) -> float:
    while abs(exponent) > _MAX_EXPONENT and value != 0.0:
        if exponent > 0:
            return float("inf")
        value /= 1e308
        exponent += _MAX_EXPONENT
    if value == 0.0:
        return 0.0
    power = float(f"1e{abs(exponent)}")
    return value * power if exponent >= 0 else value / power

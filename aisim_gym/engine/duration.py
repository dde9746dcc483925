"""Durations rounded as in the reference: to whole nanoseconds, several times.

Rule: engine-vllm-trtllm.md §2.1. Every model time passes through an integer-nanosecond duration
before it reaches the clock, so bit-exact times need the same roundings in the same order.
"""

from aisim_gym.kernel import kernel

NS_PER_S = 1_000_000_000
_SPLIT = 134217729.0  # 2**27 + 1, splits a double into two halves (Veltkamp)

KEPT_NS = 1 << 50
"""Durations below this limit (13 days) survive conversion to seconds, also via milliseconds.

Each of the (at most four) operations has an error of at most 2**-53 of its result, one of them of a
result below one second. The total error is less than ``2**-53 * (3 * ns + 1e9)`` < 0.5 ns.
"""


@kernel
def nanoseconds(seconds: float) -> int:
    """Return the nearest integer to the exact value of ``seconds * 1e9``, ties to even.

    Args:
        seconds: >= 0 and below 9e6 (104 days), beyond which nanoseconds are not exact.
    """
    product = seconds * 1e9
    whole = int(product)
    above_half = (product - whole) - 0.5
    if above_half != 0.0:
        return whole + int(above_half > 0.0)
    split = _SPLIT * seconds
    high = split - (split - seconds)
    low = seconds - high
    # 1e9 needs 21 significant bits, so high * 1e9 and low * 1e9 are exact.
    error = (high * 1e9 - product) + low * 1e9
    if error == 0.0:
        return whole + whole % 2
    return whole + int(error > 0.0)


@kernel
def seconds_of(ns: int) -> float:
    """Return ``ns`` nanoseconds in seconds: whole seconds plus fraction, with two roundings."""
    if ns < NS_PER_S:
        return ns / 1e9
    return float(ns // NS_PER_S) + (ns % NS_PER_S) / 1e9


@kernel
def phase_ms(raw_ms: float, speedup: float) -> float:
    """Return the simulated duration of a phase whose model time is ``raw_ms``.

    Args:
        raw_ms: Model time in ms, finite, >= 0.
        speedup: Divisor; 0 disables scaling.
    """
    ns = nanoseconds(raw_ms / 1000.0)
    if speedup > 0.0 and ns > 0 and (speedup != 1.0 or ns >= KEPT_NS):
        ns = nanoseconds(seconds_of(ns) / speedup)
    if ns >= KEPT_NS:
        ns = nanoseconds((seconds_of(ns) * 1000.0) / 1000.0)
    return seconds_of(ns) * 1000.0

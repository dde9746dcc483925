"""The standard normal distribution function."""

import math


def normal_cdf(z: float) -> float:
    """Return the probability that a standard normal number is at most ``z``, precise in both tails.

    >>> normal_cdf(0.0), round(normal_cdf(1.96), 3)
    (0.5, 0.975)
    """
    return 0.5 * math.erfc(-z / math.sqrt(2.0))

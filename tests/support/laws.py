"""How many examples a law draws: those of the profile, or fewer where an example is expensive."""

from hypothesis import HealthCheck, settings

SLOW = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
"""For laws whose examples are whole runs."""


def fewer(divisor: int) -> settings:
    """Return settings for a law whose examples cost about ``divisor`` times as much as usual.

    ``make test`` must end in minutes.
    """
    return settings(SLOW, max_examples=max(10, SLOW.max_examples // divisor))

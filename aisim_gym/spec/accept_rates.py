"""Acceptance rates of drafted tokens: the comma-separated ``aic_nextn_accept_rates``.

Rules: engine-vllm-trtllm.md §7; number formats confirmed with the reference.
"""

import math

import numpy as np

from aisim_gym.number_text import number_text

DEFAULT_ACCEPT_RATES = (0.85, 0.3, 0.0, 0.0, 0.0)


def parse_accept_rates(text: str) -> tuple[float, ...]:
    """Return the rates in a comma-separated list; an empty or blank text means the defaults.

    Raises:
        ValueError: If an entry is not a number in [0, 1].
    """
    if not text.strip():
        return DEFAULT_ACCEPT_RATES
    rates = tuple(_parse_rate(entry.strip()) for entry in text.split(","))
    for index, rate in enumerate(rates):
        if not (math.isfinite(rate) and 0.0 <= rate <= 1.0):
            raise ValueError(
                f"aic_nextn_accept_rates[{index}] must be finite and in [0, 1], "
                f"got {number_text(rate)}"
            )
    return rates


def normalize_accept_rates(text: str, count: int) -> str:
    """Return the list cut or zero-padded to ``count`` rates, as Rust prints it."""
    rates = (*parse_accept_rates(text), *DEFAULT_ACCEPT_RATES[-1:] * count)[:count]
    return ",".join(np.format_float_positional(rate, trim="-") for rate in rates)


def _parse_rate(entry: str) -> float:
    if not entry:
        raise ValueError(
            'invalid aic_nextn_accept_rates value "": cannot parse float from empty string'
        )
    try:
        if "_" in entry:  # Python accepts digit separators, the reference does not
            raise ValueError
        return float(entry)
    except ValueError:
        raise ValueError(
            f'invalid aic_nextn_accept_rates value "{entry}": invalid float literal; '
            "expected a comma list of numbers in [0, 1]"
        ) from None

"""The arrival speed-up: a ratio that divides authored times (workloads.md §4.3, §6.2)."""

import numpy as np
from numpy.typing import NDArray

from aisim_gym.errors import WorkloadError
from aisim_gym.number_text import number_text


def check_speedup_ratio(ratio: float) -> None:
    """Raise WorkloadError with the reference's wording unless the ratio is finite and > 0."""
    if not (np.isfinite(ratio) and ratio > 0.0):
        raise WorkloadError(
            f"arrival_speedup_ratio must be a finite positive number, got {number_text(ratio)}"
        )


def speed_up_arrivals(
    arrival_ms: NDArray[np.float64], arrival_speedup_ratio: float
) -> NDArray[np.float64]:
    """Return arrivals divided by the ratio; raise WorkloadError if a result is not finite."""
    with np.errstate(over="ignore"):
        sped_up_ms = arrival_ms / arrival_speedup_ratio
    finite = np.isfinite(sped_up_ms)
    if not finite.all():
        raise WorkloadError(
            f"request {int(np.argmin(finite))}: arrival_ms: got infinity after division by "
            f"arrival_speedup_ratio {number_text(arrival_speedup_ratio)}"
        )
    return sped_up_ms

"""Registry of the planners."""

from collections.abc import Callable, Mapping
from typing import Any

from aisim_gym.policies.hpa import HpaPolicy
from aisim_gym.policies.static import Schedule, StaticFromRatio, StaticPolicy
from aisim_gym.replay import ScalingPolicy
from aisim_gym.spec.wording import closest

POLICIES: Mapping[str, Callable[..., ScalingPolicy]] = {
    "static": StaticPolicy,
    "static-from-ratio": StaticFromRatio,
    "schedule": Schedule,
    "hpa": HpaPolicy,
}
"""Class of each planner."""


def make_policy(name: str, **parameters: Any) -> ScalingPolicy:
    """Return a planner by name.

    Args:
        name: A key of :data:`POLICIES`.
        **parameters: Its parameters; the defaults are the project's presets.

    Raises:
        ValueError: If the planner does not exist.
        SpecError: If a parameter is unknown or not valid.
    """
    if name not in POLICIES:
        raise ValueError(
            f"unknown planner {name!r}{closest(name, POLICIES)} (known: {', '.join(POLICIES)})"
        )
    return POLICIES[name](**parameters)

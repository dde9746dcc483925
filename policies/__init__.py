"""Planners, one per file, with public sources and Pydantic models of their parameters.

======================  ====================================  =============
name                    class                                 policies.md
======================  ====================================  =============
``static``              :class:`StaticPolicy`                 §1
``static-from-ratio``   :class:`StaticFromRatio`              §1
``schedule``            :class:`Schedule`                     §1
``hpa``                 :class:`HpaPolicy`                    §3
======================  ====================================  =============

A planner runs inside a replay (``Replay.run(spec, make_policy("hpa"))``) and against an
environment (``run_policy_in_env(env, make_policy("hpa"))``).
"""

if __name__ == "policies":
    raise ImportError("import aisim_gym.policies instead")

from typing import TYPE_CHECKING

from aisim_gym.policies.hpa import HpaPolicy
from aisim_gym.policies.registry import POLICIES, make_policy
from aisim_gym.policies.static import Schedule, StaticFromRatio, StaticPolicy

__all__ = [
    "POLICIES",
    "EnvPolicy",
    "EpisodeResult",
    "HpaPolicy",
    "Schedule",
    "StaticFromRatio",
    "StaticPolicy",
    "make_policy",
    "run_policy_in_env",
]

if TYPE_CHECKING:
    from aisim_gym.policies.env_runner import EnvPolicy, EpisodeResult, run_policy_in_env

_NEEDS_GYMNASIUM = ("EnvPolicy", "EpisodeResult", "run_policy_in_env")


def __getattr__(name: str) -> object:
    """Import names that need Gymnasium on first use; planners run in a replay without it."""
    if name not in _NEEDS_GYMNASIUM:
        raise AttributeError(f"module 'aisim_gym.policies' has no attribute {name!r}")
    from aisim_gym.policies import env_runner

    return getattr(env_runner, name)

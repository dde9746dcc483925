"""Engine profiles: named engines such as ``h100-llama31-8b``.

A launch config names a profile in place of its ``engine`` table, or as ``profile`` in it.
"""

from aisim_gym.profiles.engine_profile import EngineProfile, load_profile, profile_names
from aisim_gym.profiles.profile_fleet import profile_fleet

__all__ = ["EngineProfile", "load_profile", "profile_fleet", "profile_names"]

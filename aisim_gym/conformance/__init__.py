"""Comparing this replay with recorded runs of the reference, field by field.

:func:`check_golden` runs one golden file, :func:`find_goldens` finds those a command line means.
"""

from aisim_gym.conformance.compare import Outcome, Status, check_golden
from aisim_gym.conformance.difference import Difference
from aisim_gym.conformance.golden import Golden, GoldenError
from aisim_gym.conformance.run import find_goldens
from aisim_gym.conformance.scripted_policy import ScriptedPolicy

__all__ = [
    "Difference",
    "Golden",
    "GoldenError",
    "Outcome",
    "ScriptedPolicy",
    "Status",
    "check_golden",
    "find_goldens",
]

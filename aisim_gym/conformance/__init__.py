"""Compare this replay with recorded runs of the reference, field by field.

:func:`check_golden` runs and compares one golden file, in terms of :func:`run_scenario` and
:func:`find_difference`. :func:`find_goldens` finds the files of a command line.
"""

from aisim_gym.conformance.compare import Outcome, Status, check_golden, find_difference
from aisim_gym.conformance.difference import Difference
from aisim_gym.conformance.golden import Golden, GoldenError
from aisim_gym.conformance.run import find_goldens
from aisim_gym.conformance.scenario_run import ScenarioRun, run_scenario
from aisim_gym.conformance.scripted_policy import ScriptedPolicy

__all__ = [
    "Difference",
    "Golden",
    "GoldenError",
    "Outcome",
    "ScenarioRun",
    "ScriptedPolicy",
    "Status",
    "check_golden",
    "find_difference",
    "find_goldens",
    "run_scenario",
]

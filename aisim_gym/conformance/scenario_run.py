"""Run the scenario of a golden file."""

from dataclasses import dataclass
from typing import Any

from aisim_gym.conformance.golden import Golden, GoldenError
from aisim_gym.conformance.scripted_policy import ScriptedPolicy
from aisim_gym.errors import UnsupportedError
from aisim_gym.replay import Replay
from aisim_gym.report import Report, summarize


@dataclass(frozen=True)
class ScenarioRun:
    """Results of a scenario in this package.

    Attributes:
        seen: Snapshots passed to the policy, in the reference's format.
        exception: Exception that ended the run, or None.
        report: The results, None after an exception.
    """

    seen: list[dict[str, Any]]
    exception: Exception | None
    report: Report | None


def run_scenario(golden: Golden) -> ScenarioRun:
    """Run the scenario of ``golden``.

    Raises:
        GoldenError: If the scenario is not valid.
        UnsupportedError: If this version does not replay it.
    """
    policy = ScriptedPolicy(golden) if golden.has_policy else None
    report: Report | None = None
    exception: Exception | None = None
    try:
        spec = golden.spec()
        report = summarize(Replay.run(spec, policy, golden.requests(spec)))
    except (GoldenError, UnsupportedError):
        raise
    except Exception as error:  # any exception is a result to compare
        exception = error
    return ScenarioRun([] if policy is None else policy.seen, exception, report)

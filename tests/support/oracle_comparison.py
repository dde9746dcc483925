"""Scenarios, each run by the reference and by us."""

import faulthandler
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.effort import HANG_S
from support.oracle import CrashedError, HungError, Oracle
from support.oracle_recording import golden_data, unrecorded, unrecorded_data

from aisim_gym.conformance import Difference, Golden, ScenarioRun, find_difference, run_scenario
from aisim_gym.conformance.golden import SUFFIX
from aisim_gym.errors import ReplayError


@dataclass(frozen=True)
class OracleComparison:
    """What became of a scenario.

    Attributes:
        run: Our results.
        recording: Content of its golden file; where the reference gave no answer, without results.
        failure: Why the reference gave no answer: it hung or crashed. We must have raised then.
        difference: Where the two differ first, None if they agree.
    """

    run: ScenarioRun
    recording: dict[str, Any]
    failure: HungError | CrashedError | None
    difference: Difference | None

    def write(self, folder: Path) -> Path:
        """Write the golden file into ``folder``; return its path."""
        return _write(self.recording, folder / f"{self.recording['scenario']['name']}{SUFFIX}")


class Differential:
    """Compares scenarios, one after the other."""

    def __init__(self, oracle: Oracle, folder: Path, patience_s: float = HANG_S) -> None:
        """Keep in ``folder`` what is being run: after ``patience_s`` the process ends."""
        self._oracle = oracle
        self._running = folder / f"running{SUFFIX}"
        self._patience_s = patience_s

    def compare(self, scenario: dict[str, Any]) -> OracleComparison:
        """Run a scenario here and there.

        Raises:
            GoldenError: If it is not valid.
            UnsupportedError: If this version does not replay it.
        """
        golden = unrecorded(scenario)
        run = self._run_ours(golden)
        try:
            answer = self._oracle.run(golden)
        except (HungError, CrashedError) as error:
            difference = None
            if not isinstance(run.exception, ReplayError):
                difference = Difference("run", "error", run.exception, f"an error: {error}")
            return OracleComparison(run, unrecorded_data(scenario), error, difference)
        recording = golden_data(golden, answer, run)
        difference = find_difference(Golden.from_data(recording, golden.path), run)
        return OracleComparison(run, recording, None, difference)

    def _run_ours(self, golden: Golden) -> ScenarioRun:
        _write(unrecorded_data(golden.scenario), self._running)
        faulthandler.dump_traceback_later(self._patience_s, exit=True)
        try:
            return run_scenario(golden)
        finally:
            faulthandler.cancel_dump_traceback_later()
            self._running.unlink()


def _write(data: dict[str, Any], path: Path) -> Path:
    with gzip.open(path, "wt", encoding="utf-8", compresslevel=1) as file:
        json.dump(data, file)
    return path

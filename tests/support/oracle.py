"""The reference itself, ai-dynamo-runtime 1.6.1, as a process that answers calls.

It runs in the interpreter that ``AISIM_ORACLE_PYTHON`` names, by default in the one of the tests
(extra ``oracle``).
"""

import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aisim_gym.conformance import Golden

VERSION = "1.6.1"
WORKER = Path(__file__).with_name("oracle_worker.py")

CPU_LIMIT_S = 1.0
"""Processor time after which a call counts as hung; small runs take milliseconds."""

_PROBE = """
from importlib.metadata import version
from dynamo import _core
print(version("ai-dynamo-runtime"))
"""


class HungError(Exception):
    """The reference did not come to an end."""


class CrashedError(Exception):
    """The process of the reference ended without an answer."""


def oracle_python() -> str:
    """Return the interpreter that runs the reference."""
    return os.environ.get("AISIM_ORACLE_PYTHON", sys.executable)


@cache
def why_no_oracle() -> str:
    """Return why the reference cannot be asked, "" if it can."""
    command = [oracle_python(), "-c", _PROBE]
    try:
        probe = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"AISIM_ORACLE_PYTHON: {error}"
    if probe.returncode != 0:
        lines = probe.stderr.strip().splitlines() or ["no message"]
        return f"needs ai-dynamo-runtime {VERSION} (extra `oracle`): {lines[-1]}"
    found = probe.stdout.strip()
    return "" if found == VERSION else f"needs ai-dynamo-runtime {VERSION}, found {found}"


class Oracle:
    """Answers calls one at a time; started by the first and again after a hang or a crash."""

    def __init__(self, cpu_limit_s: float = CPU_LIMIT_S) -> None:
        """Start nothing yet."""
        self._cpu_limit_s = cpu_limit_s
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """End the process; the next call starts one again."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def run(self, golden: Golden) -> dict[str, Any]:
        """Return what the reference makes of the scenario of ``golden``.

        Returns:
            ``error`` (``{type, message}`` or None), ``snapshots`` and, without an error,
            ``summary``, ``per_request``, ``lifecycle_operations``, ``telemetry`` as they are.

        Raises:
            HungError: If it takes more processor time than the limit.
            CrashedError: If its process dies.
        """
        call = {
            "rows": golden.scenario["workload"]["rows"],
            "arguments": golden.reference_arguments(),
            "ticks": golden.scenario.get("ticks"),
            "cpu_limit_s": self._cpu_limit_s,
        }
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps(call), file=process.stdin, flush=True)
        line = process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        status = process.wait()
        self.close()
        if status in (-signal.SIGPROF, -signal.SIGALRM):
            raise HungError(f"no answer after {self._cpu_limit_s} s of processor time")
        raise CrashedError(f"exit status {status}")

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            [oracle_python(), str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self._process

"""The reference in a long-lived process, so that its runs alternate with ours."""

import json
import subprocess
import sys
from collections import deque
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import TracebackType
from typing import Any, Self

from aisim_gym.bench.bench_case import BenchCase, TimedRun
from aisim_gym.errors import AisimError

WORKER = Path(__file__).with_name("reference_worker.py")
PACKAGE = "ai-dynamo-runtime"


class ReferenceError(AisimError, RuntimeError):
    """An interpreter cannot run the reference, or a run failed."""


def default_interpreter() -> str | None:
    """Return this interpreter if it has the reference, else None."""
    try:
        distribution(PACKAGE)
    except PackageNotFoundError:
        return None
    return sys.executable


class ReferenceProcess:
    """Runs cases in an interpreter with the reference; a context manager that ends the process.

    Attributes:
        version: Version of the reference.
    """

    version: str

    def __init__(self, interpreter: str) -> None:
        """Start the process.

        Args:
            interpreter: Python with the package ``ai-dynamo-runtime``.

        Raises:
            ReferenceError: If the interpreter does not exist or does not have the package.
        """
        self._interpreter = interpreter
        with ExitStack() as owned:
            folder = TemporaryDirectory(prefix="aisim-bench-")
            self._folder = Path(owned.enter_context(folder))
            self._errors = owned.enter_context(TemporaryFile("w+", encoding="utf-8"))
            self._process = self._start()
            owned.callback(self._end)
            self.version = self._read(f"it needs the package {PACKAGE}")["version"]
            self._owned = owned.pop_all()

    def __enter__(self) -> Self:
        """Return ``self``."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the process."""
        self.close()

    def close(self) -> None:
        """End the process and remove its files."""
        self._owned.close()

    def run(self, case: BenchCase) -> TimedRun:
        """Run a case; its time is the wall time of its summary.

        Raises:
            ReferenceError: If the run fails; contains the last line of its output.
        """
        trace = self._folder / f"{case.name}.jsonl"
        if not trace.exists():
            case.write_trace(trace)
        call = {"trace": str(trace), "arguments": case.arguments, "ticks": case.ticks}
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the process has ended, reported below
            print(json.dumps(call), file=self._process.stdin, flush=True)
        answer = self._read(case.name)
        summary = answer["summary"]
        details = {"reference, whole call": answer["call_s"] * 1000.0}
        return TimedRun(summary["wall_time_ms"] / 1000.0, details, summary)

    def _start(self) -> "subprocess.Popen[str]":
        try:
            return subprocess.Popen(
                [self._interpreter, str(WORKER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        except OSError as error:
            raise ReferenceError(
                f"--reference: got {self._interpreter}, expected a Python interpreter: "
                f"{error.strerror}"
            ) from error

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self, about: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            if line:  # unexpected output; the process may never end
                self._process.kill()
            self._process.wait()
            self._errors.seek(0)
            last = deque(self._errors, maxlen=1) or [line or "no message"]
            raise ReferenceError(
                f"--reference: {self._interpreter} did not run the reference ({about}): "
                f"{last[0].strip()}"
            ) from None
        return answer

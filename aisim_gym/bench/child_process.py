"""Measurements that need a process which has done nothing yet."""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from aisim_gym.errors import AisimError


class ChildError(AisimError, RuntimeError):
    """A measuring process that failed."""


def run_program(program: str, cache: Path | None = None) -> tuple[float, str]:
    """Run Python code in a new process.

    Args:
        program: The code.
        cache: Folder for compiled code, None for the usual one.

    Returns:
        Seconds from start to end of the process, and what it printed.

    Raises:
        ChildError: If it fails; with the end of its message.
    """
    places = {} if cache is None else {"XDG_CACHE_HOME": str(cache)}
    with TemporaryDirectory(prefix="aisim-bench-") as folder:
        started_s = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,  # no folder of the same name hides a package
            env=os.environ | _search_path() | places,
            capture_output=True,
            text=True,
            check=False,
        )
        ended_s = time.perf_counter()
    if done.returncode != 0:
        raise ChildError(f"a measuring process failed: {done.stderr.strip()[-500:]}")
    return ended_s - started_s, done.stdout


def _search_path() -> dict[str, str]:
    """Return where this process finds packages, so that the other one runs the same code."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

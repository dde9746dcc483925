"""Measurements that need a fresh process."""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from aisim_gym.errors import AisimError


class ChildError(AisimError, RuntimeError):
    """A measuring process failed."""


def run_program(program: str, cache: Path | None = None) -> tuple[float, str]:
    """Run Python code in a new process.

    Args:
        program: The code.
        cache: Folder for compiled code, None for the default.

    Returns:
        Seconds from start to end of the process, and its output.

    Raises:
        ChildError: If the process fails; contains the end of its error output.
    """
    places = {} if cache is None else {"XDG_CACHE_HOME": str(cache)}
    with TemporaryDirectory(prefix="aisim-bench-") as folder:
        started_s = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,  # avoids a local folder that hides a package
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
    """Return environment variables that make the child import the same code."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

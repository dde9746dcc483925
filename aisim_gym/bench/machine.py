"""Description of the machine of a benchmark."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from aisim_gym import __version__


def describe_machine() -> dict[str, Any]:
    """Return processor, system and versions, as JSON values."""
    return {
        "processor": _processor(),
        "cpu_count": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numba": version("numba"),
        "numpy": version("numpy"),
        "aisim_gym": __version__,
    }


def _processor() -> str:
    """Return the processor model from Linux, or else from the platform module."""
    table = Path("/proc/cpuinfo")
    if table.exists():
        for line in table.read_text("utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

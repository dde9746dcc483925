"""``manifest.json`` of a run folder: configuration, versions and times of a run.

A null ``ended`` marks a partial run.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from aisim_gym import __version__
from aisim_gym.report.atomic_file import replace_file

MANIFEST = "manifest.json"
LIBRARIES = ("gymnasium", "numba", "numpy", "sb3-contrib", "scipy", "stable-baselines3", "torch")


def begin_manifest(folder: Path, content: Mapping[str, Any], source: Path) -> None:
    """Write the manifest of a new run.

    Args:
        folder: Folder of the run.
        content: Values specific to the run, as JSON values.
        source: Folder whose commit is recorded, usually that of the script.
    """
    manifest = {
        **content,
        "command": sys.argv,
        "versions": library_versions(),
        "machine": {"system": platform.platform(), "cpu_count": os.cpu_count()},
        **source_version(source),
        "started": _now(),
        "resumed": [],
        "ended": None,
    }
    write_json(folder / MANIFEST, manifest)


def resume_manifest(folder: Path, from_steps: int) -> None:
    """Record that a run is resumed."""
    manifest = read_manifest(folder)
    manifest["resumed"].append({"at": _now(), "from_steps": from_steps, "command": sys.argv})
    write_json(folder / MANIFEST, {**manifest, "ended": None})


def end_manifest(folder: Path) -> None:
    """Record that a run is complete."""
    write_json(folder / MANIFEST, {**read_manifest(folder), "ended": _now()})


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a run.

    Raises:
        FileNotFoundError: If the folder has none.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: not a run folder, it has no {MANIFEST}")
    manifest: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return manifest


def library_versions() -> dict[str, str]:
    """Return the versions that results depend on; missing packages are omitted."""
    versions = {"python": platform.python_version(), "aisim-gym": __version__}
    for name in LIBRARIES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def source_version(folder: Path) -> dict[str, Any]:
    """Return the commit of ``folder`` and whether files differ from it; None outside git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return {"commit": None, "is_dirty": None}
    return {"commit": commit, "is_dirty": _git(folder, "status", "--porcelain") != ""}


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    with replace_file(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", "utf-8")


def _git(folder: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

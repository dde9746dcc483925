"""Write the folder of a run: report, plot and manifest."""

import json
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from aisim_gym import __version__
from aisim_gym.replay import Replay, ScalingLimits
from aisim_gym.report import Report, write_report
from aisim_gym.report.atomic_file import replace_file
from aisim_gym.report.plots import plot_run

MANIFEST, PICTURE = "manifest.json", "run.png"

PICTURES_NEED = "Pictures need matplotlib: pip install 'aisim-gym[plot]'"


def can_plot() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def prepare_folder(folder: Path) -> Path:
    """Create the folder of ``--out`` before the run, so that writing cannot fail afterwards.

    Returns:
        The folder, with ``~`` expanded.

    Raises:
        ValueError: If it cannot be created or written to.
    """
    expanded = folder.expanduser()
    try:
        expanded.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=expanded):
            pass
    except OSError as error:
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        reason = "not a folder" if is_file else error.strerror
        raise ValueError(
            f"--out {folder}: {reason}; expected a folder that can be created or written to"
        ) from error
    return expanded


def check_parquet() -> None:
    """Raise ``ImportError`` if Parquet cannot be written."""
    if find_spec("pyarrow") is None:
        raise ImportError(
            "--parquet needs pyarrow, which is not installed: pip install 'aisim-gym[parquet]'"
        )


def write_run(
    replay: Replay,
    report: Report,
    folder: Path,
    planner: str,
    parameters: Mapping[str, Any],
    limits: ScalingLimits,
    *,
    picture: Path | None = None,
    parquet: bool = False,
) -> list[Path]:
    """Write report, manifest and, if matplotlib is installed, the plot of a run.

    A run that was interrupted or reached its time limit is marked as partial: ``is_partial`` in the
    manifest, and in the title of the plot.

    Args:
        replay: The run.
        report: Its report.
        folder: Destination, created if missing.
        planner: Name of the planner, "none" without one.
        parameters: Parameters of the planner.
        limits: Fleet limits of the planner.
        picture: Path of the plot instead of ``run.png`` in the folder.
        parquet: Whether to also write the records per request as Parquet.

    Returns:
        The files written.
    """
    folder = folder.expanduser()
    written = write_report(report, folder, parquet=parquet)
    written.append(_write_manifest(replay, folder, planner, parameters, limits))
    if can_plot():
        written.append(plot_run(replay, picture or folder / PICTURE, planner=planner))
    return written


def _write_manifest(
    replay: Replay,
    folder: Path,
    planner: str,
    parameters: Mapping[str, Any],
    limits: ScalingLimits,
) -> Path:
    manifest = {
        "aisim_gym": __version__,
        "command": sys.argv,
        "is_partial": not replay.is_done or replay.hit_time_limit,
        "simulated_ms": replay.now_ms,
        "planner": {"name": planner, "parameters": dict(parameters)},
        "limits": vars(limits),
        "spec": json.loads(replay.spec.to_json()),
    }
    path = folder / MANIFEST
    with replace_file(path) as temporary:
        temporary.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return path

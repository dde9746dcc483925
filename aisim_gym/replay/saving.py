"""Saved replays: one ``.npz`` file with all tables and a JSON header."""

import json
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from aisim_gym.errors import ReplayError
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.replay.run import Run
from aisim_gym.replay.tick_history import TickRecord
from aisim_gym.spec import ReplaySpec, load_spec

SAVE_FORMAT = "aisim-replay/2"


class SavedReplay(NamedTuple):
    """Content of a saved replay."""

    spec: ReplaySpec
    session_ids: tuple[str, ...]
    run: Run


def write_replay(path: str | Path, saved: SavedReplay) -> None:
    """Write a replay to a file with exactly this name."""
    spec, session_ids, run = saved
    header = {
        "format": SAVE_FORMAT,
        "spec": json.loads(spec.to_json()),
        "ticks": run.ticks,
        "session_ids": session_ids,
        "samples": run.samples,
        "status": int(run.status),
        "wall_s": run.wall_s,
    }
    tables: dict[str, Any] = run.state.plain_tables()
    with Path(path).expanduser().open("wb") as file:
        np.savez_compressed(file, header=np.array(json.dumps(header)), **tables)


def read_replay(path: str | Path) -> SavedReplay:
    """Read a file written by :func:`write_replay`; the run has no ``on_sample``.

    Raises:
        ReplayError: If the file is not a saved replay of this version.
    """
    path = Path(path).expanduser()
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            tables = {name: file[name] for name in set(file.files) - {"header"}}
        if header["format"] != SAVE_FORMAT:
            raise ValueError(f"got format {header['format']!r}, expected {SAVE_FORMAT!r}")
        state = WorldState.from_tables(tables)
    except (AttributeError, EOFError, LookupError, TypeError, ValueError, BadZipFile) as error:
        raise ReplayError(f"{path.absolute()}: not a replay written by save()") from error
    spec = load_spec(header["spec"])
    run = Run(
        state,
        records_ticks=spec.capture_planner_details,
        ticks=[TickRecord(*tick) for tick in header["ticks"]],
        samples=header["samples"],
        status=header["status"],
        wall_s=header["wall_s"],
    )
    return SavedReplay(spec, tuple(header["session_ids"]), run)

"""Load replay specifications from TOML or JSON and write them as JSON.

TOML has no null, and null is a value here (``max_num_seqs = null`` means no limit). So specs are
written as JSON only, and only JSON can switch a limit off.
"""

import os
import reprlib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aisim_gym.errors import SpecError
from aisim_gym.spec.json_text import parse_json
from aisim_gym.spec.replay import ReplaySpec


def load_spec(source: str | os.PathLike[str] | Mapping[str, Any] | ReplaySpec) -> ReplaySpec:
    """Read a replay specification.

    Args:
        source: A ``.toml`` or ``.json`` file (UTF-8, a byte order mark is allowed), or plain data.
            Relative trace paths in a file start at its folder and become absolute; in plain data
            they stay unchanged. ``~`` is expanded in both. A ReplaySpec is returned unchanged.

    Raises:
        SpecError: If the file cannot be read or the specification is not valid; names the file, the
            path of the field, what was given and what is allowed.
        TypeError: If ``source`` is none of these.
    """
    if isinstance(source, ReplaySpec):
        return source
    if isinstance(source, Mapping):
        return ReplaySpec.from_data(source)
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            f"spec: got {reprlib.repr(source)}, expected a ReplaySpec, a mapping or a path"
        )
    path = Path(source).expanduser()
    return ReplaySpec.from_data(read_spec_data(path), source=str(source), folder=path.parent)


def dump_spec(spec: ReplaySpec, path: str | Path) -> None:
    """Write ``spec``, every default filled in, to a ``.json`` file.

    Relative trace paths are written as absolute paths, so that the file can be moved. A spec
    without relative paths loads back equal.

    Raises:
        SpecError: If the file name does not end in ``.json``.
    """
    target = Path(path).expanduser()
    if target.suffix != ".json":
        raise SpecError(f"cannot write {path}: expected a file name that ends in .json")
    files = spec.workload.trace_files
    if files:
        absolute = tuple(file.absolute() for file in files)
        workload = spec.workload.model_copy(update={"trace_files": absolute})
        spec = spec.model_copy(update={"workload": workload})
    target.write_text(spec.to_json(), encoding="utf-8")


def read_spec_data(path: Path) -> Any:
    """Return the plain, unchecked data of a ``.toml`` or ``.json`` file.

    Raises:
        SpecError: If the file cannot be read.
    """
    if path.suffix not in {".toml", ".json"}:
        raise SpecError(f"cannot read {path}: expected a file name that ends in .toml or .json")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"cannot read {path}: not UTF-8 ({error.reason})") from error
    if path.suffix == ".json":
        return parse_json(text, source=str(path))
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"invalid TOML: {error} ({path})") from None

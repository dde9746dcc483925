"""Find the golden files of a command line (rulings.md 10)."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from aisim_gym.conformance.golden import SUFFIX, GoldenError


def find_goldens(paths: Iterable[str | Path], match: str = "*") -> list[Path]:
    """Return the golden files in ``paths``, without duplicates.

    Args:
        paths: Files, or folders whose ``*.json.gz`` are taken in order of names (subfolders such as
            ``bench/`` are not searched). ``~`` is expanded.
        match: Shell pattern that the file name without ``.json.gz`` must match.

    Raises:
        GoldenError: If a path does not exist or nothing matches.
    """
    candidates: list[Path] = []
    for given in paths:
        path = Path(given).expanduser()
        if path.is_dir():
            candidates += sorted(file for file in path.glob(f"*{SUFFIX}") if file.is_file())
        elif path.exists():
            candidates.append(path)
        else:
            raise GoldenError(f"{path}: no such file or folder")
    files = [path for path in dict.fromkeys(candidates) if fnmatchcase(golden_name(path), match)]
    if not files:
        raise GoldenError(
            f"no golden file: {len(candidates)} {SUFFIX} files in the paths given, "
            f"none matches {match!r} (the pattern is for the name without {SUFFIX})"
        )
    return files


def golden_name(path: Path) -> str:
    """Return the file name without ``.json.gz``."""
    return path.name.removesuffix(SUFFIX)

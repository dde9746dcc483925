"""The project's modules as files, found without importing anything."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PACKAGE_FOLDERS = {
    "aisim_gym": ROOT / "aisim_gym",
    "aisim_gym.envs": ROOT / "envs",
    "aisim_gym.policies": ROOT / "policies",
}
"""Import name of a package -> its folder; sub-packages follow."""


def module_files() -> dict[str, Path]:
    """Return the file of every module, by the name under which it is imported."""
    files = {}
    for package, folder in PACKAGE_FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            if parts[-1] == "__init__":
                parts.pop()
            files[".".join(parts)] = path
    return files


def package_names() -> list[str]:
    """Return the import name of every folder that holds an ``__init__.py``."""
    return sorted(name for name, path in module_files().items() if path.name == "__init__.py")

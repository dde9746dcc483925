"""What is installed is what the folders hold."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support.source_tree import PACKAGE_FOLDERS, ROOT, package_names

from aisim_gym import __version__


def read_project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def packaged_files() -> set[str]:
    """Return every file of the package folders, named as in the wheel."""
    return {
        f"{package.replace('.', '/')}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGE_FOLDERS.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an sdist, then a wheel from it, out of a copy: a build leaves files behind."""
    copy = tmp_path_factory.mktemp("source") / "aisim-gym"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for folder in PACKAGE_FOLDERS.values():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(folder, copy / folder.relative_to(ROOT), ignore=ignored)
    output = tmp_path_factory.mktemp("dist")
    # Without isolation: the setuptools of the `dev` extra, nothing from the network.
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(copy)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = output.glob("*.whl")
    return path


def test_package_list_equals_the_folders() -> None:
    assert sorted(read_project()["tool"]["setuptools"]["packages"]) == package_names()


def test_dependencies_have_lower_bounds_only() -> None:
    """F36: nothing that is installed already is downgraded; the reference is one exact version."""
    project = read_project()["project"]
    extras = project["optional-dependencies"]
    assert extras.pop("oracle") == ["ai-dynamo-runtime==1.6.1; sys_platform == 'linux'"]
    for requirement in itertools.chain(project["dependencies"], *extras.values()):
        assert re.fullmatch(r"[A-Za-z0-9-]+(\[[a-z]+\])?(>=[0-9.]+)?", requirement), requirement


def test_data_files_are_what_their_names_say() -> None:
    """F37: no pointer to a file that is kept elsewhere."""
    paths = [ROOT / "envs" / "data", ROOT / "aisim_gym" / "profiles" / "data"]
    files = [file for path in paths for file in path.iterdir()]
    assert len(files) > 5
    for file in files:
        assert file.suffix == ".json"
        assert isinstance(json.loads(file.read_text("utf-8")), dict), file


def test_version_is_the_projects() -> None:
    assert read_project()["project"]["version"] == __version__


@pytest.mark.slow
def test_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    """F37: the data files too; F36, F34 rest on the names and requirements in it."""
    names = set(zipfile.ZipFile(wheel).namelist())
    metadata = {name for name in names if ".dist-info/" in name}
    assert names - metadata == packaged_files()
    assert "aisim_gym/py.typed" in names
    assert {"aisim_gym/envs/__init__.py", "aisim_gym/policies/__init__.py"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in metadata)


@pytest.mark.slow
def test_users_own_envs_folder_does_not_shadow_ours(wheel: Path, tmp_path: Path) -> None:
    """F34."""
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    for name in ("envs", "policies"):
        (tmp_path / "user" / name).mkdir(parents=True)
        (tmp_path / "user" / name / "__init__.py").write_text("OWNER = 'user'\n")
    code = (
        "import envs, policies, aisim_gym.envs, aisim_gym.policies\n"
        "assert envs.OWNER == policies.OWNER == 'user'\n"
        "print(aisim_gym.__file__, aisim_gym.envs.__file__, aisim_gym.policies.__file__, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "user",
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    folder = site / "aisim_gym"
    assert [Path(line).parent for line in done.stdout.split()] == [
        folder,
        folder / "envs",
        folder / "policies",
    ]

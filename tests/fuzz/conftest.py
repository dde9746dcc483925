"""The option that names files of the fuzzer."""

from pathlib import Path

import pytest

DATA = Path(__file__).with_name("data")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give ``found`` the files that are kept here and those named by ``--found``."""
    if "found" in metafunc.fixturenames:
        named: list[str] = metafunc.config.getoption("--found") or []
        files = [*sorted(DATA.glob("*.json")), *map(Path, named)]
        metafunc.parametrize("found", files, ids=[path.stem for path in files])

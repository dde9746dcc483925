"""Examples in docstrings run, in every module imported by its real name.

``--doctest-modules`` would import ``envs/`` and ``policies/`` under a second name.
"""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest
from support.source_tree import module_files


@pytest.mark.parametrize(("name", "path"), module_files().items(), ids=module_files())
def test_docstring_examples_run(
    name: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module(name)
    monkeypatch.chdir(tmp_path)  # examples may write files
    written = len(re.findall(r"^\s*>>>", path.read_text("utf-8"), re.MULTILINE))
    failed, attempted = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert failed == 0
    # doctest does not look into compiled functions or below attributes.
    assert attempted == written, f"{written - attempted} examples of {name} are out of its reach"

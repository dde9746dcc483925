"""The examples in docstrings run (under the names users import)."""

import doctest
from importlib import import_module

import pytest
from support.source_tree import module_files

MODULES = [name for name in module_files() if name.startswith("aisim_gym.envs")]


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples(module: str) -> None:
    assert doctest.testmod(import_module(module)).failed == 0

"""Run a Python program as if Numba lacked a private symbol.

``python tests/support/without_symbol.py numba.core.caching:_Cache program.py argument …``; with
``-m pytest …`` in place of a program, the tests.
"""

import importlib
import runpy
import sys
import types
from typing import Any


class Without:
    """Something that lacks a name below it; all else is there."""

    def __init__(self, whole: Any, names: list[str]) -> None:
        self._whole = whole
        self._names = names

    def __getattribute__(self, name: str) -> Any:
        whole, (first, *rest) = (
            object.__getattribute__(self, part) for part in ("_whole", "_names")
        )
        if name != first:
            return getattr(whole, name)
        found = getattr(whole, name)
        if not rest:
            raise AttributeError(name)
        if isinstance(found, types.FunctionType):
            names = tuple("" if used == rest[0] else used for used in found.__code__.co_names)
            code = found.__code__.replace(co_names=names)
            return types.FunctionType(code, {}, closure=found.__closure__)
        return Without(found, rest)


def hide(symbol: str) -> None:
    """Let ``importlib.import_module`` return modules without ``module:name``."""
    hidden, names = symbol.split(":")
    usual = importlib.import_module

    def import_module(name: str, package: str | None = None) -> Any:
        module = usual(name, package)
        return Without(module, names.split(".")) if name == hidden else module

    importlib.import_module = import_module


if __name__ == "__main__":
    hide(sys.argv[1])
    if sys.argv[2] == "-m":
        sys.argv = sys.argv[3:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = sys.argv[2:]
        runpy.run_path(sys.argv[0], run_name="__main__")

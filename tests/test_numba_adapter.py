"""Numba's private parts are named in one file; without any one of them everything works, slower."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.goldens import golden_path
from support.source_tree import module_files

from aisim_gym import numba_adapter
from aisim_gym.conformance import Status, check_golden

SUPPORT = Path(__file__).parent / "support"

PUBLIC = {
    "numba",
    "numba.extending",
    "numba.types",
}
"""What other files may import of Numba; documented, as is all of ``llvmlite.ir``."""

TRY_ALL = """
import importlib, json, sys, warnings
sys.path.insert(0, sys.argv[1])
usual = importlib.import_module
from without_symbol import hide
import numpy as np

told = {}
for symbol in json.loads(sys.argv[2]):
    importlib.import_module = usual
    hide(symbol)
    sys.modules.pop("aisim_gym.numba_adapter", None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        numba_adapter = usual("aisim_gym.numba_adapter")
    told[symbol] = [str(warning.message) for warning in caught]
    assert not numba_adapter.IS_COMPLETE
    assert numba_adapter.MISSING == symbol
    entry = numba_adapter.make_entry_point(lambda values: values[1], numba_adapter.StoredDispatcher)
    assert type(entry).__name__ == "CPUDispatcher"
# Compiling takes a while, and all entries are made alike: the last one is enough.
assert entry(np.arange(3.0)) == 1.0
print(json.dumps(told))
"""

REPLAY = """
import sys, warnings
from pathlib import Path
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from aisim_gym.conformance import check_golden
    from aisim_gym import numba_adapter
    outcomes = [check_golden(Path(path)) for path in sys.argv[1:]]
assert not numba_adapter.IS_COMPLETE
texts = [str(warning.message) for warning in caught if warning.category is RuntimeWarning]
print(*texts, sep="\\n")
print(*[outcome.status.name for outcome in outcomes])
"""


def run(*arguments: str) -> list[str]:
    """Return what Python prints; LLVM only translates: optimizing takes most of the time."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "NUMBA_OPT": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_this_version_of_numba_has_every_symbol() -> None:
    assert numba_adapter.IS_COMPLETE, numba_adapter.MISSING
    assert len({*numba_adapter.PRIVATE}) == len(numba_adapter.PRIVATE)


def test_whichever_symbol_is_missing_one_warning_names_it_and_plain_numba_serves() -> None:
    (line,) = run("-c", TRY_ALL, str(SUPPORT), json.dumps(numba_adapter.PRIVATE))
    told = json.loads(line)
    assert [*told] == [*numba_adapter.PRIVATE]
    for symbol, texts in told.items():
        assert len(texts) == 1
        assert re.match(rf"Numba \d+\.\d+\.\d+\S* lacks {re.escape(symbol)}: ", texts[0])


def replay_without(symbol: str, names: tuple[str, ...], folder: Path) -> None:
    program = folder / "replay.py"
    program.write_text(REPLAY)
    paths = [str(golden_path(name)) for name in names]
    for path in paths:
        assert check_golden(Path(path)).status is Status.PASSED
    warned, statuses = run(str(SUPPORT / "without_symbol.py"), symbol, str(program), *paths)
    assert f" lacks {symbol}: " in warned
    assert statuses.split() == ["PASSED"] * len(names)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("symbol", "names"),
    [
        ("numba.np.arrayobj:populate_array", ("agg-vllm-micro-01", "disagg-vllm-dp-02")),
        ("numba.core.caching:_Cache", ("agg-sglang-kvpressure-01",)),
    ],
)
def test_replays_are_the_same_without_a_symbol(
    symbol: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    replay_without(symbol, names, tmp_path)


def test_no_other_file_imports_private_parts() -> None:
    found = {
        f"{module}: {target}"
        for module, path in module_files().items()
        if module != "aisim_gym.numba_adapter"
        for target in imported(path)
        if target.split(".")[0] in ("numba", "llvmlite")
        and target not in PUBLIC
        and target not in ("llvmlite", "llvmlite.ir")
    }
    assert not found


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, and what it takes from ``numba`` itself."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module in ("numba", "llvmlite"):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names

"""Dependencies point down, heavy packages load late, the kernel compiles once.

Sources are parsed, not imported, so that an import inside a function counts as well.
"""

import ast
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.source_tree import ROOT, module_files

LAYERS = (
    (
        "errors",
        "number_text",
        "tables",
        "file_lock",
        "kernel",
        "kernel_cache",
        "kernel_folder",
        "numba_adapter",
        "table_set",
        "table_shapes",
    ),
    ("profiles",),
    ("spec",),
    ("workload",),
    ("engine",),
    ("metrics",),
    ("fleet",),
    ("replay",),
    ("report",),
    ("sizing",),
    ("conformance",),
    ("envs",),
    ("policies",),
    ("bench",),
    ("cli", "__main__"),
)
"""From the bottom up: a module imports from its own layer and from those before it."""

LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}

LEARNING = {"gymnasium", "stable_baselines3", "sb3_contrib", "torch"}
"""Not for the replay runtime: ``aisim_gym`` runs without them, only programs may use them."""

PROGRAMS = ("bench", "cli")
"""Layers that may use learning packages and environments, inside functions."""

HEAVY = {"matplotlib", "pandas", "pyarrow", "sb3_contrib", "stable_baselines3", "tensorboard"}
HEAVY |= {"torch"}
"""Optional or slow to load: imported where they are used, inside functions."""


class Import(NamedTuple):
    """One imported module, or one name imported from a module."""

    line: int
    target: str
    in_function: bool
    for_checkers: bool


def find_imports(tree: ast.AST) -> Iterator[Import]:
    """Yield every import; a relative one keeps its leading dots."""

    def visit(node: ast.AST, in_function: bool, for_checkers: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, in_function, for_checkers)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                yield Import(node.lineno, f"{module}.{alias.name}", in_function, for_checkers)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for statement in node.body:
                yield from visit(statement, in_function, True)
            for statement in node.orelse:
                yield from visit(statement, in_function, for_checkers)
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for child in ast.iter_child_nodes(node):
                yield from visit(child, in_function or is_function, for_checkers)

    yield from visit(tree, False, False)


def layer_of(name: str) -> str | None:
    """Return the layer of a dotted name: None outside the package, "" for the package itself."""
    parts = name.split(".")
    if parts[0] != "aisim_gym":
        return None
    return parts[1] if len(parts) > 1 else ""


def complaints_about(module: str, source: str) -> list[str]:
    """Return what the imports of a module do wrong, one line each."""
    layer = layer_of(module)
    if not layer:
        return []  # aisim_gym/__init__.py names the public objects and loads them on first use
    found = []
    for line, target, in_function, for_checkers in find_imports(ast.parse(source)):
        top = target.split(".")[0]
        imported = layer_of(target)
        late = in_function or for_checkers

        def complain(what: str, line: int = line, target: str = target) -> None:
            found.append(f"{module}:{line}: imports {target}: {what}")

        if target.startswith("."):
            complain("relative; write the whole name")
        elif top in ("envs", "policies"):
            complain(f"a second copy; the package is aisim_gym.{top}")
        elif imported and imported not in LEVELS:
            if imported != "__version__":
                complain("not a layer; import a public name from its home")
        elif imported and LEVELS[imported] > LEVELS[layer]:
            complain(f"{layer} is below {imported}")
        elif imported in ("envs", "policies") and layer in PROGRAMS and not late:
            complain("load it inside the function that needs it")
        if top in HEAVY and not late:
            complain("heavy; import it inside the function that needs it")
        if top in LEARNING and layer not in ("envs", "policies") and not for_checkers:
            if layer not in PROGRAMS:
                complain("the replay runtime does without it")
            elif not in_function:
                complain("load it inside the function that needs it")
    return found


@pytest.mark.parametrize(("module", "path"), module_files().items(), ids=module_files())
def test_imports_point_down_and_heavy_ones_come_late(module: str, path: Path) -> None:
    assert complaints_about(module, path.read_text("utf-8")) == []


def test_every_module_belongs_to_a_layer() -> None:
    layers = {layer for name in module_files() if (layer := layer_of(name))}
    assert layers <= LEVELS.keys(), "add new modules to LAYERS"


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("spec.a", "from aisim_gym.replay import Replay", "spec is below replay"),
        ("spec.a", "def f():\n    import aisim_gym.cli.main", "spec is below cli"),
        ("spec.a", "from aisim_gym import replay", "spec is below replay"),
        ("spec.a", "from aisim_gym import Replay", "not a layer"),
        ("spec.a", "from . import model", "relative"),
        ("cli.a", "import envs", "a second copy"),
        ("cli.a", "import aisim_gym.envs", "inside the function"),
        ("report.a", "import matplotlib.pyplot as plt", "heavy"),
        ("policies.a", "if True:\n    from torch import nn", "heavy"),
        ("replay.a", "def f():\n    import gymnasium", "does without it"),
        ("cli.a", "import gymnasium", "inside the function"),
        ("bench.a", "import gymnasium", "inside the function"),
        ("conformance.a", "def f():\n    import aisim_gym.bench", "conformance is below bench"),
    ],
)
def test_forbidden_import_is_found(module: str, source: str, complaint: str) -> None:
    (found,) = complaints_about(f"aisim_gym.{module}", source)
    assert complaint in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("replay.a", "from aisim_gym.spec import ReplaySpec"),
        ("spec.a", "from aisim_gym import __version__"),
        ("report.a", "def f():\n    import matplotlib"),
        ("cli.a", "def f():\n    import torch, gymnasium\n    import aisim_gym.envs"),
        ("envs.a", "import gymnasium"),
        ("policies.a", "if TYPE_CHECKING:\n    import torch"),
    ],
)
def test_allowed_import_is_not_found(module: str, source: str) -> None:
    assert complaints_about(f"aisim_gym.{module}", source) == []


def test_importing_the_package_is_light(tmp_path: Path) -> None:
    code = "import json, sys, aisim_gym; print(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True).stdout
    heavy = {"gymnasium", "matplotlib", "numba", "numpy", "pydantic", "rich", "typer"}
    assert not heavy & set(json.loads(output))


def test_no_two_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for module, path in module_files().items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


NOT_INSTALLED = """
import sys
sys.path[:0] = sys.argv[1].split("\\n")
from aisim_gym.kernel_folder import kernel_sources
assert len(kernel_sources()) > 50
try:
    exec(sys.argv[2])
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "code",
    [
        "import aisim_gym.envs",
        "from aisim_gym.policies import make_policy",
        "import gymnasium; gymnasium.make('aisim_gym.envs:aisim_gym/Aggregated-v0')",
        "from aisim_gym.cli.envs import envs; envs(None, None)",
    ],
)
def test_source_tree_that_is_not_installed_says_what_to_do(code: str) -> None:
    # Without `site` there is nothing that maps the packages to their folders.
    folders = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    command = [sys.executable, "-I", "-S", "-c", NOT_INSTALLED, "\n".join(folders), code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "only once the package is installed: run `pip install -e .`" in done.stdout


def _row_types() -> list[tuple[str, str]]:
    """Return module and name of every table row written as a Protocol."""
    rows = []
    for module, path in module_files().items():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Row"):
                rows += [(module, node.name) for base in node.bases if _name(base) == "Protocol"]
    return rows


def _name(node: ast.expr) -> str:
    return ast.unparse(node).split("[")[0].split(".")[-1]


@pytest.mark.parametrize(("module", "name"), _row_types())
def test_every_field_of_a_row_has_a_stored_type(module: str, name: str) -> None:
    row_dtype = import_module("aisim_gym.tables").row_dtype
    row_type = getattr(import_module(module), name)
    dtype = row_dtype(row_type)
    assert dtype.names == tuple(row_type.__annotations__)
    assert dtype.isalignedstruct


@pytest.mark.parametrize(("module", "name"), _row_types())
def test_no_field_of_a_row_is_hidden_in_plain_python(module: str, name: str) -> None:
    # Compiled, `row.mean` is the field; under NUMBA_DISABLE_JIT it is NumPy's method.
    fields = getattr(import_module(module), name).__annotations__.keys()
    hidden = fields & {*dir(np.record), *dir(np.recarray)}
    assert not hidden, "rename: NumPy has attributes of these names"


def test_every_table_is_made_from_a_row_type() -> None:
    known = {name for _, name in _row_types()}
    for module, path in module_files().items():
        if module == "aisim_gym.tables":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and _name(node.func) in ("make_table", "row_dtype"):
                argument = _name(node.args[0])
                is_variable = argument.islower()
                assert is_variable or argument in known, f"{module}:{node.lineno}: {argument}"


needs_compiler = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"), reason="nothing is compiled"
)

ENGINES: dict[str, dict[str, Any]] = {
    "VllmWorld": {"backend": "vllm"},
    "VllmDraftingWorld": {"backend": "vllm", "aic_nextn": 2},
    "TrtllmWorld": {"backend": "trtllm"},
    "TrtllmDraftingWorld": {"backend": "trtllm", "aic_nextn": 2},
    "SglangWorld": {"backend": "sglang"},
}
"""Engine settings that each world type is for."""


def run_in_every_way(engine: dict[str, Any], folder: Path) -> None:
    """Run both topologies with decisions of several types, go on from a fork and from a file."""
    from aisim_gym.replay import Replay
    from aisim_gym.workload import requests_from_arrays

    pools: list[dict[str, Any]] = [
        {"kind": "agg", "num_workers": 2, "engine": {"engine": engine}},
        {
            "kind": "disagg",
            "prefill": {"engine": {**engine, "worker_type": "prefill"}, "startup_time": 0.05},
            "decode": {"engine": {**engine, "worker_type": "decode"}},
        },
    ]
    requests = requests_from_arrays(np.arange(12) * 40.0, [300] * 12, [20] * 12)
    for fleet in pools:
        replay = Replay({"fleet": fleet}, requests, initial_tick_ms=100.0)
        scaled: list[dict[str, Any]] = [
            {"target_prefill": 2, "target_decode": np.int32(3), "next_tick_ms": 200},
            {"target_prefill": None, "target_decode": 1, "next_tick_ms": np.float64(300.0)},
        ]
        for decision in scaled:
            assert replay.advance_to_tick() is not None
            if fleet["kind"] == "agg":
                decision["target_prefill"] = None
            replay.apply(decision)
        replay.step()
        replay.save(folder / "half.npz")
        last: dict[str, Any] = dict.fromkeys(("target_prefill", "target_decode", "next_tick_ms"))
        for half in (replay.fork(), Replay.load(folder / "half.npz"), replay):
            while half.advance_to_tick() is not None:
                half.apply(last)
            assert half.is_done


def compiled_worlds(entry_point: Any) -> list[str]:
    """Return the world types for which an entry point is compiled in this process."""
    return [str(signature[0]).split("(")[0].split(".")[-1] for signature in entry_point.signatures]


@needs_compiler
@pytest.mark.parametrize(
    "world",
    ["VllmWorld", *(pytest.param(name, marks=pytest.mark.slow) for name in [*ENGINES][1:])],
)
def test_kernel_compiles_once_for_all_runs_of_a_backend(world: str, tmp_path: Path) -> None:
    # One compilation is about half a minute, so a second one for another table layout (a fork, a
    # loaded file) or another integer type would be noticed by users, not by results.
    from aisim_gym.fleet.tick import apply_decision
    from aisim_gym.replay.advance import advance

    run_in_every_way(ENGINES[world], tmp_path)
    for entry_point in (advance, apply_decision):
        worlds = compiled_worlds(entry_point)
        assert worlds.count(world) == 1
        assert len(worlds) == len(set(worlds))


def test_every_world_type_has_its_engine_settings() -> None:
    from aisim_gym.fleet.worlds import WORLD_TYPES

    assert [world.__name__ for world in WORLD_TYPES] == list(ENGINES)


def test_compiled_code_is_kept_by_the_content_of_all_it_is_made_from() -> None:
    """Every module with a kernel, and what it imports, is in ``kernel_folder.SOURCES``.

    A constant of a module outside would be compiled in, and its change not noticed.
    """
    files = module_files()
    imports = {
        module: [
            found.target
            for found in find_imports(ast.parse(path.read_text("utf-8")))
            if not found.for_checkers
        ]
        for module, path in files.items()
    }
    decorators = {f"aisim_gym.kernel.{name}" for name in ("kernel", "entry_point", "dispatched")}
    open_modules = [module for module, targets in imports.items() if decorators & {*targets}]
    assert "aisim_gym.replay.advance" in open_modules
    needed = set()
    while open_modules:
        module = open_modules.pop()
        if module not in needed:
            needed.add(module)
            homes = [target.rpartition(".")[0] for target in imports[module]]
            open_modules += [home for home in homes if home in files and home != "aisim_gym"]
    sources = {path.resolve() for path in import_module("aisim_gym.kernel_folder").kernel_sources()}
    assert not {module for module in needed if files[module].resolve() not in sources}


VLLM = {"run_block_pass", "emit_tokens"}
CODE_OF_WORLDS = {
    "VllmWorld": VLLM,
    "VllmDraftingWorld": {*VLLM, "emit_bursts"},
    "TrtllmWorld": {*VLLM, "trtllm"},
    "TrtllmDraftingWorld": {*VLLM, "emit_bursts", "trtllm"},
    "SglangWorld": {"sglang", "radix_tree"},
}
"""Functions and modules that the compiled code for a world names, of all those here."""


@needs_compiler
@pytest.mark.parametrize(
    "world",
    ["VllmWorld", *(pytest.param(name, marks=pytest.mark.slow) for name in [*ENGINES][1:])],
)
def test_run_compiles_nothing_of_other_backends(world: str, tmp_path: Path) -> None:
    """Read in the file that keeps the code, which names every function that is in it."""
    from aisim_gym.kernel_cache import prepared_code
    from aisim_gym.replay.advance import advance

    run_in_every_way(ENGINES[world], tmp_path)
    prepared = [code for code in prepared_code() if code.function == advance.__name__]
    worlds = compiled_worlds(advance)
    assert len(worlds) == len(prepared)
    path = prepared[worlds.index(world)].path
    assert path is not None
    code = zlib.decompress(path.read_bytes())
    names = set().union(*CODE_OF_WORLDS.values())
    assert {name for name in names if name.encode() in code} == CODE_OF_WORLDS[world]

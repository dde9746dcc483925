"""Code on the pages works as it stands (F48): Python runs, commands exist, settings are valid.

Pages are README.md and everything in ``docs/``; blocks of a page share their names, in a folder of
their own. A block with a ``text`` block behind it prints exactly that.
"""

import ast
import json
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pages import PAGES, CodeBlock, blocks_of, pages_with
from support.shell_commands import complaint
from support.source_tree import ROOT

from aisim_gym import load_spec
from aisim_gym.workload import requests_from_arrays, write_simple_csv

SLOW = {
    "README.md",
    "docs/getting-started.md",
    "docs/how-to/stable-baselines3.md",
    "docs/how-to/tables.md",
    "docs/rendering.md",
    "docs/training.md",
}

NEEDS_RL = {"docs/getting-started.md", "docs/how-to/stable-baselines3.md", "docs/training.md"}


def write_trace() -> None:
    """Write the trace that the page about traces reads: 900 requests, one per second."""
    arrival_ms = np.arange(0.0, 900_000.0, 1000.0)
    prompts = [[0, 1 + index] for index in range(900)]
    table = requests_from_arrays(arrival_ms, [600] * 900, [3000, 4000] * 450, prompts)
    write_simple_csv(table, "trace.csv")


def train_policy() -> None:
    """Leave a policy where the page about training loads one."""
    from support.rl_runs import train_smoke

    train_smoke(Path("runs"), seed=1, name="chat-diurnal-ppo")


PREPARED: dict[str, Callable[[], None]] = {
    "docs/traces.md": write_trace,
    "docs/training.md": train_policy,
}
"""What has to be there before the code of a page."""


def page_parameters(language: str) -> list[Any]:
    return [
        pytest.param(page, marks=pytest.mark.slow) if page in SLOW else page
        for page in pages_with(language)
    ]


@pytest.mark.parametrize("page", page_parameters("python"))
def test_python_on_the_page_runs_and_prints_what_the_page_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """F34, F48 and F61: the snippets of README and docs, word for word."""
    if page in NEEDS_RL:
        pytest.importorskip("sb3_contrib", reason="the extra `rl` is not installed")
    monkeypatch.chdir(tmp_path)
    PREPARED.get(page, lambda: None)()
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks_of(page, "python"):
        # Line numbers of a traceback are those of the page.
        tree = ast.parse("\n" * (block.line - 1) + block.code, page)
        if not block.is_run:
            continue
        if block.mark is not None:
            module = block.mark[1]
            pytest.importorskip(module, reason=f"{block.place}: {module} is not installed")
        capsys.readouterr()
        exec(compile(tree, str(PAGES[page]), "exec"), names)
        printed = capsys.readouterr().out
        assert block.output in (None, printed), block.place


@pytest.mark.parametrize("page", pages_with("bash"))
def test_commands_on_the_page_exist_with_their_options(page: str) -> None:
    for block in blocks_of(page, "bash"):
        for command in shell_commands(block):
            assert complaint(command) is None, f"{block.place}: {shlex.join(command)}"


def test_unknown_commands_options_targets_extras_and_files_are_found() -> None:
    """The check of commands can fail."""
    for line, problem in {
        "aisim-gym replya x.toml": "no command",
        "aisim-gym trace info a.csv --jsn": "no option",
        "make dmo": "no target",
        "pip install '.[gpu]'": "no extra",
        "python experiments/trian.py": "no file",
        "python experiments/train.py --confg x": "no option",
        "aisim_gym demo": "unknown program",
    }.items():
        assert problem in (complaint(shlex.split(line)) or "nothing"), line


@pytest.mark.parametrize("page", pages_with("toml"))
def test_toml_on_the_page_can_be_read(page: str) -> None:
    for block in blocks_of(page, "toml"):
        assert tomllib.loads(block.code), block.place


@pytest.mark.parametrize("page", pages_with("json"))
def test_json_on_the_page_can_be_read(page: str) -> None:
    for block in blocks_of(page, "json"):
        assert json.loads(block.code), block.place


def test_spec_file_of_the_readme_is_valid(tmp_path: Path) -> None:
    (block,) = blocks_of("README.md", "toml")
    (tmp_path / "fleet.toml").write_text(block.code, "utf-8")
    spec = load_spec(tmp_path / "fleet.toml")
    assert spec.workload.trace_files == (tmp_path / "trace.jsonl.gz",)
    assert spec.sla.ttft_ms == 500.0


def test_reasons_stand_beside_code_that_is_not_run() -> None:
    unrun = [
        block
        for page in PAGES
        for language in ("python", "bash")
        for block in blocks_of(page, language)
        if not block.is_run
    ]
    assert unrun
    for block in unrun:
        assert block.mark is not None
        assert len(block.mark[1].split()) >= 3, block.place


def test_every_fence_is_of_a_known_language() -> None:
    """A misspelt language would hide code from these tests."""
    known = {"python", "bash", "text", "toml", "json", "dockerfile", "md"}
    for page, path in PAGES.items():
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            fence = line.strip()
            if fence.startswith("```") and not fence.startswith("```{"):
                assert fence[3:] in known | {""}, f"{page}:{number}: {fence}"


def shell_commands(block: CodeBlock) -> list[list[str]]:
    """Return the words of every command of a block, comments left out."""
    lines = block.code.replace("\\\n", " ").splitlines()
    commands = (shlex.split(line, comments=True) for line in lines)
    return [words for words in commands if words]


def test_slow_pages_exist() -> None:
    assert SLOW | NEEDS_RL | PREPARED.keys() <= PAGES.keys()
    assert (ROOT / "docs" / "examples" / "ppo_single_file.py").exists()

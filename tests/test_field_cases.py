"""``docs/field-cases.md`` names a test that exists, or a reason, for every case; its code runs."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from support.shared_folder import require_shared
from support.source_tree import ROOT

PAGE = ROOT / "docs" / "field-cases.md"

CASES = (
    *("F01", "F02", "F03", "F04", "F07"),
    *("F09", "F10", "F11", "F12", "F13", "F14", "F15", "F16", "F17"),
    *("F18", "F19", "F20", "F21", "F23", "F24"),
    *("F25", "F27", "F28", "F29", "F30", "F32", "F33"),
    *("F34", "F35", "F36", "F37", "F38", "F39", "F40", "F42"),
    *("F44", "F46", "F48", "F49", "F50"),
    *("F51", "F52", "F53", "F55", "F56"),
    *("F57", "F58", "F59", "F61"),
    *("F63", "F64", "F65", "F66"),
)


def rows() -> list[tuple[str, str, str]]:
    """Return case, what went wrong elsewhere, and what keeps it from happening, row by row."""
    found = re.findall(
        r"^\| (F\d+) \| (.+?) \| (.+) \|$", PAGE.read_text("utf-8"), flags=re.MULTILINE
    )
    return [(case, pain, answer) for case, pain, answer in found]


def named_tests() -> list[tuple[str, str, str]]:
    """Return (case, file, test) for every test on the page."""
    return [
        (case, file, test)
        for case, _, answer in rows()
        for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", answer)
    ]


@cache
def docstrings(file: str) -> dict[str, str]:
    """Return the docstring of the module and of the test, by the name of each test in a file."""
    module = ast.parse(Path(ROOT, file).read_text("utf-8"))
    about = ast.get_docstring(module) or ""
    return {
        node.name: f"{about}\n{ast.get_docstring(node) or ''}"
        for node in module.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_case_is_on_the_page_once_and_in_order() -> None:
    assert tuple(case for case, _, _ in rows()) == CASES
    assert re.findall(r"\bF\d\d\b", PAGE.read_text("utf-8")) == list(CASES)


def test_cases_are_those_of_the_list() -> None:
    text = require_shared("reference", "field-cases.md").read_text("utf-8")
    assert tuple(re.findall(r"^\| (F\d+) \|", text, flags=re.MULTILINE)) == CASES


@pytest.mark.parametrize(("case", "file", "test"), named_tests())
def test_named_test_exists_and_names_its_case(case: str, file: str, test: str) -> None:
    assert test in docstrings(file), f"{file} has no {test}"
    assert re.search(rf"\b{case}\b", docstrings(file)[test]), f"{file}::{test} does not name {case}"


def test_every_case_has_a_test() -> None:
    assert {case for case, _, _ in named_tests()} == set(CASES)


def test_code_of_the_page_draws_the_step_response(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """F61: in at most 20 lines; the workers start at 120 s and are active at 180 s."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.DOTALL)
    assert code.count("\n") <= 20
    exec(compile(code, str(PAGE), "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert " 120 s: 2 active, 0 starting" in lines[0]
    assert " 150 s: 2 active, 4 starting" in lines[1]
    assert " 180 s: 6 active, 0 starting" in lines[2]
    ttft_s = [float(line.split()[-2]) for line in lines]
    assert ttft_s[0] < ttft_s[2] > 10.0 * ttft_s[-1]
    assert (tmp_path / "step-response.png").stat().st_size > 10_000

"""``aisim-gym conformance``: what it prints and its exit status (rulings.md 10)."""

import shlex
import shutil
from pathlib import Path

import pytest
import typer
from support.goldens import golden_path, write_changed
from typer.testing import CliRunner

from aisim_gym.cli.conformance import conformance

PASSING, OTHER = "agg-vllm-basic-01", "agg-vllm-fixed-01"

app = typer.Typer()
app.command()(conformance)


def run_cli(*arguments: str | Path) -> tuple[int, list[str], str]:
    """Return exit status, lines on stdout and text on stderr."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout.splitlines(), result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file that passes, one that differs and one that is not replayed."""
    shutil.copy(golden_path(PASSING), tmp_path / "1-equal.json.gz")
    write_changed(OTHER, tmp_path, lambda content: content["summary"].update(num_requests=7))
    (tmp_path / f"{OTHER}.json.gz").rename(tmp_path / "2 differs.json.gz")
    write_changed(
        OTHER,
        tmp_path,
        lambda content: content["scenario"]["replay"].update(router_mode="kv_router"),
    )
    (tmp_path / f"{OTHER}.json.gz").rename(tmp_path / "3-skipped.json.gz")
    return tmp_path


def test_equal_runs_exit_with_0(folder: Path) -> None:
    status, lines, _ = run_cli(folder, "--match", "1-*")
    assert status == 0
    assert lines[0].startswith(f"PASS {PASSING} (")
    assert lines[-1] == "1 files: 1 passed, 0 failed, 0 skipped"


def test_difference_exits_with_1_and_names_field_and_command(folder: Path) -> None:
    status, lines, _ = run_cli(folder)
    assert status == 1
    assert lines[1].startswith(f"FAIL {OTHER}: summary num_requests: got ")
    assert lines[1].endswith("expected 7")
    command = lines[2].partition("replay: ")[2]
    assert shlex.split(command) == ["aisim-gym", "conformance", str(folder / "2 differs.json.gz")]
    assert lines[-1] == "3 files: 1 passed, 1 failed, 1 skipped"


def test_skipped_files_do_not_fail_the_run(folder: Path) -> None:
    status, lines, _ = run_cli(folder, "--match", "[13]-*")
    assert status == 0
    assert lines[1].startswith(f"SKIP {OTHER}: ")
    assert "router_mode" in lines[1]


def test_run_that_compared_nothing_exits_with_1(folder: Path) -> None:
    status, lines, _ = run_cli(folder, "--match", "3-*")
    assert status == 1
    assert lines[-1] == "1 files: 0 passed, 0 failed, 1 skipped"


@pytest.mark.parametrize("arguments", [("nowhere",), ("--match", "nothing*")])
def test_path_or_pattern_without_files_exits_with_2(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    paths = [folder / arguments[0]] if len(arguments) == 1 else [folder, *arguments]
    status, lines, message = run_cli(*paths)
    assert (status, lines) == (2, [])
    assert message.startswith("aisim-gym conformance: ")


def test_file_that_is_no_golden_exits_with_2(tmp_path: Path) -> None:
    (tmp_path / "bad.json.gz").write_text("{}")
    status, _, message = run_cli(tmp_path)
    assert status == 2
    assert "bad.json.gz: cannot be read" in message

"""The commands as a whole: help, version, errors, interruption."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import run_cli

from aisim_gym import __version__
from aisim_gym.replay import Replay


def test_module_prints_the_version() -> None:
    command = [sys.executable, "-m", "aisim_gym", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"aisim-gym {__version__}\n"


def test_module_reports_bad_input_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "aisim_gym", "replay", "nowhere.toml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "aisim-gym: cannot read nowhere.toml: No such file or directory\n"


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from aisim_gym.cli.main import app; "
        "app(['--help'], standalone_mode=False); print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in ("demo", "replay", "size", "conformance", "bench"))
    heavy = {"gymnasium", "matplotlib", "numba", "numpy", "pyarrow", "pydantic"}
    assert heavy & set(done.stderr.split()) == set()


@pytest.mark.parametrize("command", ["demo", "replay", "size", "conformance", "bench"])
def test_help_of_a_command_has_an_example(command: str) -> None:
    result = run_cli(command, "--help")
    assert result.status == 0
    assert f"Example: aisim-gym {command} " in re.sub(r"\x1b\[[0-9;]*m", "", result.out)


def test_debug_shows_where_an_error_comes_from() -> None:
    assert "Traceback" not in run_cli("replay", "nowhere.toml").err
    result = run_cli("--debug", "replay", "nowhere.toml")
    assert result.status == 2
    assert "Traceback" in result.err


def test_interrupted_replay_keeps_what_it_has(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = Replay.apply

    def interrupt_third(replay: Replay, decision: object) -> None:
        if len(replay.ticks) == 2:
            raise KeyboardInterrupt
        apply(replay, decision)  # type: ignore[arg-type]

    monkeypatch.setattr(Replay, "apply", interrupt_third)
    arguments = ("--policy", "static", "--param", "replicas=1", "--param", "keep_ticking=true")
    out = tmp_path / "run"
    result = run_cli("replay", "--trace", trace, *arguments, "--tick-s", "2", "--out", out)
    assert result.status == 130
    assert "partial" in result.out
    assert "Interrupted" in result.err
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["is_partial"], manifest["simulated_ms"]) == (True, 4000.0)
    assert json.loads((out / "summary.json").read_text())["num_requests"] == 9

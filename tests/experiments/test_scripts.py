"""The scripts as people run them: training, evaluation, its repetition, interruption."""

import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.effort import HANG_S
from support.rl_runs import CONFIGS, SMOKE
from support.source_tree import ROOT

pytest.importorskip("sb3_contrib")
pytest.importorskip("matplotlib")

FILES = ("episodes.csv", "summary.json")
TRAIN, EVALUATE = (ROOT / "experiments" / name for name in ("train.py", "evaluate.py"))


def command(script: Path, *arguments: object) -> list[str]:
    return [sys.executable, str(script), *map(str, arguments)]


def execute(script: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(script, *arguments), check=False, capture_output=True, text=True, timeout=HANG_S
    )


@pytest.fixture
def execute_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return ``execute`` without a process: importing PyTorch again takes seconds."""

    def run_here(script: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", command(script, *arguments)[1:])
        returncode: object = 0
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as ended:
            returncode = ended.code
        out, err = capsys.readouterr()
        if isinstance(returncode, str):
            err, returncode = f"{err}{returncode}\n", 1
        assert isinstance(returncode, int | None)
        return subprocess.CompletedProcess(sys.argv, returncode or 0, out, err)

    return run_here


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of the training script."""
    out = tmp_path_factory.mktemp("runs")
    done = execute(TRAIN, "--config", SMOKE, "--seed", 3, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "256 steps in" in done.stdout
    return out / "smoke" / "seed-3"


@pytest.mark.slow
def test_two_evaluations_in_processes_of_their_own_are_equal(run: Path, tmp_path: Path) -> None:
    """Field cases F63 and F66."""
    results = []
    for name in ("first", "second"):
        done = execute(EVALUATE, "--policy", run, "--episodes", 2, "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
        assert "uncalibrated: 1 training seed, fewer than 5; not tuned: hpa" in done.stdout
        results.append([(tmp_path / name / file).read_bytes() for file in FILES])
    assert results[0] == results[1]
    summary = json.loads(results[0][1])
    assert summary["policies"].keys() >= {"ppo seed 3", "hpa"}
    picture = (tmp_path / "first" / "plots" / "goodput.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    manifest = json.loads((tmp_path / "first" / "manifest.json").read_text("utf-8"))
    assert manifest["ended"] is not None
    assert manifest["split"] == "test"


@pytest.mark.slow
def test_training_seeds_are_compared_together(
    run: Path, tmp_path: Path, execute_here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    other = tmp_path / "smoke" / "seed-4"
    shutil.copytree(run, tmp_path / "smoke" / "seed-3")
    shutil.copytree(run / "policy", other)
    description = json.loads((other / "policy.json").read_text("utf-8"))
    description["training"]["seed"] = 4
    (other / "policy.json").write_text(json.dumps(description), "utf-8")
    options = ("--episodes", 2, "--baselines", "static")
    printed = []
    for number, seeds in enumerate(((tmp_path / "smoke",), (run, other))):
        policies = [word for path in seeds for word in ("--policy", path)]
        done = execute_here(EVALUATE, *policies, *options, "--out", tmp_path / str(number))
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.replace(str(tmp_path / str(number)), "OUT"))
    assert "all 2 training seeds:" in printed[0]
    assert printed[0] == printed[1]


@pytest.mark.slow
def test_wrong_argument_is_told_in_a_line(
    run: Path, tmp_path: Path, execute_here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = execute_here(EVALUATE, "--policy", run, "--out", tmp_path, "--split", "tst")
    assert done.returncode == 1
    line = "Error: unknown split 'tst'; did you mean `test`? (known: validation, test)"
    assert done.stderr.strip() == line


def test_training_wants_a_configuration_or_a_run() -> None:
    done = execute(TRAIN)
    assert done.returncode == 1
    assert done.stderr.strip() == "Error: expected either --config or --resume"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows knows no process groups to signal")
def test_interrupted_script_says_how_to_go_on_and_does(tmp_path: Path) -> None:
    config = tmp_path / "long.toml"
    text = SMOKE.read_text("utf-8").replace("total_steps = 256", "total_steps = 640")
    config.write_text(
        text.replace('name = "smoke"', 'name = "long"\nvec = "subproc"\nstart_method = "fork"'),
        "utf-8",
    )
    folder = tmp_path / "long" / "seed-1"
    process = subprocess.Popen(
        command(TRAIN, "--config", config, "--out", tmp_path),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list(folder.glob("checkpoints/step-*")) and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # what Ctrl-C does: every process of the terminal
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 130, errors
    assert f"--resume {folder}" in errors
    assert json.loads((folder / "manifest.json").read_text("utf-8"))["ended"] is None
    done = execute(TRAIN, "--resume", folder)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "summary.json").read_text("utf-8"))["steps"] == 640


def test_readme_names_every_configuration() -> None:
    text = (ROOT / "experiments" / "README.md").read_text("utf-8")
    for path in CONFIGS.glob("*.toml"):
        assert f"configs/{path.name}" in text

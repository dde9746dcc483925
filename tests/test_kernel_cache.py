"""Compiled code is made once, by one process, and whatever happens to its files a run goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from numba.core import config
from support.effort import HANG_S

from aisim_gym import kernel_cache, kernel_folder
from aisim_gym.kernel import entry_point, kernel
from aisim_gym.kernel_cache import EntryPoint, prepared_code
from aisim_gym.numba_adapter import IS_COMPLETE

pytestmark = pytest.mark.skipif(not IS_COMPLETE, reason="every process compiles for itself")

PROGRAM = '''
"""Adds up a table; the compiler takes as many seconds as it is told."""
import json, os, sys, time
from dataclasses import dataclass
from pathlib import Path
import numpy as np
from numba.extending import overload
from aisim_gym.table_set import TableSet
from aisim_gym.kernel import entry_point
from aisim_gym.kernel_cache import prepared_code

@dataclass(frozen=True)
class TinyWorld(TableSet):
    values: np.ndarray

def compile_slowly():
    pass

@overload(compile_slowly, jit_options={"_nrt": False})
def choose():
    time.sleep(float(sys.argv[1]))
    return lambda: None

@entry_point
def total(world):
    compile_slowly()
    values = world.values
    sum = 0
    for i in range(len(values)):
        sum += values[i]
    return sum

start = Path(sys.argv[2])
print("ready", flush=True)
while not start.exists():
    time.sleep(0.01)
result = total(TinyWorld(np.arange(4)))
print(json.dumps([int(result), [code.is_new for code in prepared_code()]]))
'''


class Runs:
    """Processes that run ``PROGRAM`` with a cache folder of their own; they start together."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM)
        self.start = folder / "start"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"},
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TMPDIR": str(folder),
        }
        self.processes: list[subprocess.Popen[str]] = []

    def begin(self, compiler_s: float) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(self.program), str(compiler_s), str(self.start)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
        return process

    def end(self, process: subprocess.Popen[str]) -> tuple[int, list[bool], list[str]]:
        """Return the sum, whether code was compiled, and the lines on stderr."""
        out, err = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, err
        result, is_new = json.loads(out)
        return result, is_new, err.splitlines()

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.folder.glob(f"**/kernel-*/*{suffix}"))


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()


def test_processes_that_start_at_once_compile_once_and_the_next_loads(runs: Runs) -> None:
    """F30: the processes of a vector environment, at a cold start and later."""
    begun = [runs.begin(compiler_s=1.0) for _ in range(3)]
    runs.start.touch()
    ended = [runs.end(process) for process in begun]
    assert [result for result, _, _ in ended] == [6, 6, 6]
    assert sorted(is_new for _, is_new, _ in ended) == [[False], [False], [True]]
    compiler = next(process for process, (_, new, _) in zip(begun, ended, strict=True) if new[0])
    for _, is_new, lines in ended:
        assert len(lines) == 1
        if is_new[0]:
            assert "compiling the replay kernel (TinyWorld), which takes 10-30 s, once" in lines[0]
            assert lines[0].endswith(f"it is kept in {runs.folder / 'cache' / 'aisim-gym'}")
        else:
            assert lines[0] == (
                f"aisim-gym: waiting for process {compiler.pid}, "
                "which is compiling the replay kernel (TinyWorld)"
            )
    assert len(runs.files(".code")) == 1
    assert not runs.files(".part")
    for lock in runs.files(".lock"):
        lock.unlink()
    assert runs.end(runs.begin(compiler_s=0.0)) == (6, [False], [])
    assert not runs.files(".lock"), "loading needs a folder to read only"


def test_another_process_compiles_after_one_was_killed(runs: Runs) -> None:
    runs.start.touch()
    killed = runs.begin(compiler_s=100.0)
    _wait_until(lambda: any(lock.read_text() for lock in runs.files(".lock")))
    heir = runs.begin(compiler_s=0.0)
    assert heir.stderr is not None
    assert f"waiting for process {killed.pid}," in heir.stderr.readline()
    killed.send_signal(signal.SIGKILL)
    result, is_new, lines = runs.end(heir)
    assert (result, is_new) == (6, [True])
    assert "compiling the replay kernel" in lines[0]


def test_only_one_line_is_said_where_processes_share_stderr(runs: Runs, tmp_path: Path) -> None:
    command = f'"$0" "$1" 1 "{runs.start}" & "$0" "$1" 1 "{runs.start}" & wait'
    runs.start.touch()
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, str(runs.program)],
        env=runs.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("[6, [") == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr


def test_where_nothing_can_be_kept_a_private_temporary_folder_serves(runs: Runs) -> None:
    runs.environment["XDG_CACHE_HOME"] = str(runs.program / "below-a-file")
    runs.start.touch()
    result, is_new, lines = runs.end(runs.begin(compiler_s=0.0))
    assert (result, is_new) == (6, [True])
    warned = [line for line in lines if "RuntimeWarning" in line]
    assert len(warned) == 1
    assert "compiled code cannot be kept: " in warned[0]
    (file,) = runs.files(".code")
    assert f"It is kept in {file.parents[1]} until that is cleared" in warned[0]
    assert file.parents[1].stat().st_mode & 0o777 == 0o700
    assert runs.end(runs.begin(compiler_s=0.0)) == (6, [False], [])

    file.parents[1].chmod(0o777)  # others could have put code there
    result, is_new, lines = runs.end(runs.begin(compiler_s=0.0))
    assert (result, is_new) == (6, [True])
    assert any("Every process compiles: set XDG_CACHE_HOME" in line for line in lines)


def _wait_until(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + HANG_S
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@kernel
def half(number: int) -> int:
    if number % 2:
        raise ValueError("an odd number")
    return number // 2


def quarter(number: int) -> int:
    return half(half(number))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder for compiled code of this test, in this process."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(config, "CACHE_DIR", "")
    _forget_folders()
    yield kernel_folder.user_folder()
    _forget_folders()


def _forget_folders() -> None:
    kernel_folder.user_folder.cache_clear()
    kernel_folder.writable_folder.cache_clear()


def _is_compiled_by(call: Callable[[], object]) -> bool:
    """Return whether a call compiles something; it must load it otherwise."""
    before = len(prepared_code())
    call()
    (code,) = prepared_code()[before:]
    return code.is_new


def test_a_kernel_raises_the_same_compiled_and_loaded(folder: Path) -> None:
    for is_new in (True, False):
        function = entry_point(quarter)
        assert _is_compiled_by(lambda f=function: f(8)) is is_new  # type: ignore[misc]
        assert function(12) == 3
        with pytest.raises(ValueError, match="an odd number"):
            function(6)


@pytest.mark.parametrize(
    "damage",
    [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"\x00" * 999],
    ids=["emptied", "cut short", "overwritten"],
)
def test_a_damaged_file_is_compiled_anew(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    assert _is_compiled_by(lambda: entry_point(quarter)(8))
    (file,) = folder.glob("*.code")
    file.write_bytes(damage(file.read_bytes()))
    assert _is_compiled_by(lambda: entry_point(quarter)(8))
    assert not _is_compiled_by(lambda: entry_point(quarter)(8))


@pytest.mark.parametrize(
    ("setting", "value"), [("BOUNDSCHECK", 1), ("CPU_NAME", "generic"), ("OPT", 1)]
)
def test_code_for_another_processor_or_setting_is_another_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, setting: str, value: object
) -> None:
    assert _is_compiled_by(lambda: entry_point(quarter)(8))
    monkeypatch.setattr(config, setting, value)
    assert _is_compiled_by(lambda: entry_point(quarter)(8))
    assert len([*folder.glob("*.code")]) == 2


def test_an_interrupted_compilation_lets_others_go_on(folder: Path) -> None:
    def unknown() -> None:
        raise NotImplementedError

    def broken(number: int) -> int:
        unknown()
        return number

    with pytest.raises(Exception, match="unknown"):
        entry_point(broken)(1)
    (lock,) = folder.glob("*.lock")
    program = (
        "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )
    subprocess.run([sys.executable, "-c", program, str(lock)], check=True)


def test_a_full_disk_is_told_and_the_run_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernel_cache, "_write_at_once", fail)
    assert entry_point(quarter)(8) == 2
    assert "compiled code cannot be kept: [Errno 28] No space left on device" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("numba_dir", "xdg", "home", "expected"),
    [
        ("", "", "/users/me", "/users/me/.cache"),
        ("", "/caches/me", "/users/me", "/caches/me"),
        ("", "not/absolute", "/users/me", "/users/me/.cache"),
        ("/numba", "/caches/me", "/users/me", "/numba"),
    ],
)
def test_folder_is_where_users_expect_it(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    numba_dir: str,
    xdg: str,
    home: str,
    expected: str,
) -> None:
    """F32: outside the package, so that nothing is left of it once it is uninstalled."""
    monkeypatch.setattr(config, "CACHE_DIR", numba_dir)
    monkeypatch.setenv("XDG_CACHE_HOME", xdg)
    monkeypatch.setenv("HOME", home)
    _forget_folders()
    found = kernel_folder.user_folder()
    assert found.parent == Path(expected) / "aisim-gym"
    assert found.name.startswith("kernel-")


def test_without_a_home_folder_one_warning_and_a_temporary_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _forget_folders()
    with pytest.warns(RuntimeWarning, match="home directory. It is kept in") as warned:
        assert _is_compiled_by(lambda: entry_point(quarter)(8))
    assert len(warned) == 1
    assert not _is_compiled_by(lambda: entry_point(quarter)(8))


def test_old_folders_are_removed_when_unused_for_a_day(folder: Path) -> None:
    ages_h = {f"kernel-{age}": age for age in (1, 2, 3, 26, 27, 28, 29)}
    now_s = time.time()
    for name, age_h in ages_h.items():
        other = folder.parent / name
        (other / "inside").mkdir(parents=True)
        os.utime(other, (now_s, now_s - 3600.0 * age_h))
    (folder.parent / "something-else").mkdir()
    assert entry_point(quarter)(8) == 2
    left = {path.name for path in folder.parent.iterdir()}
    kept = {f"kernel-{age}" for age in (1, 2, 3, 26, 27)}  # 27 is old, but the fifth
    assert left == {folder.name, "something-else", *kept}


def test_recently_used_folders_are_kept_however_many(folder: Path) -> None:
    for number in range(9):
        (folder.parent / f"kernel-{number}").mkdir(parents=True)
    assert entry_point(quarter)(8) == 2
    assert len([*folder.parent.iterdir()]) == 10


def test_use_is_noted(folder: Path) -> None:
    entry_point(quarter)(8)
    os.utime(folder, (0.0, 0.0))
    entry_point(quarter)(8)
    assert time.time() - folder.stat().st_mtime < 3600.0


def test_a_pickled_function_finds_its_code_in_another_process(folder: Path) -> None:
    """F30."""
    function: Any = entry_point(quarter)
    assert _is_compiled_by(lambda: function(8))
    state = {**function._reduce_states(), "uuid": "what another process does not know"}
    assert not _is_compiled_by(lambda: EntryPoint._rebuild(**state)(8))

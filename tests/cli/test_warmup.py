"""``aisim-gym warmup``: what it compiles, and that it compiles nothing twice."""

import re

import pytest
from support.cli import run_cli

from aisim_gym.cli.warm_runs import WarmRun, choose_runs
from aisim_gym.fleet.worlds import BACKENDS, WORLD_TYPES, world_type

ENVIRONMENTS = WarmRun("environments")
VLLM = [WarmRun("vllm", "vllm"), WarmRun("vllm, speculative decoding", "vllm", drafts=True)]


def test_environments_by_default_and_a_backend_as_asked() -> None:
    assert choose_runs([], everything=False) == [ENVIRONMENTS]
    assert choose_runs(["vllm"], everything=False) == VLLM
    assert choose_runs(["vllm", "sglang"], everything=False) == [*VLLM, WarmRun("sglang", "sglang")]


def test_all_is_every_kind_of_world() -> None:
    *replays, last = choose_runs([], everything=True)
    assert last == ENVIRONMENTS
    worlds = [world_type(run.backend, run.drafts) for run in replays if run.backend]
    assert sorted(worlds, key=WORLD_TYPES.index) == [*WORLD_TYPES]


def test_unknown_backend_is_refused_with_the_known_ones() -> None:
    result = run_cli("warmup", "--backend", "vlm")
    assert result.status == 2
    assert "unknown backend 'vlm'; did you mean 'vllm'?" in result.err
    assert all(name in result.err for name in BACKENDS)


def test_nothing_to_do_in_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.core.config.DISABLE_JIT", 1)
    result = run_cli("warmup")
    assert result.status == 2
    assert "NUMBA_DISABLE_JIT is set: nothing is compiled" in result.err


def test_what_is_kept_is_not_compiled_again() -> None:
    assert run_cli("warmup").status == 0
    result = run_cli("warmup")
    assert result.status == 0, result.err
    assert re.search(r"environments +│ nothing +│ create_first_workers", result.out)
    assert "advance" in result.out
    assert re.search(r"Kept: [\d.]+ MB in .*kernel-[0-9a-f]{16}$", result.out.strip())


def test_exit_status_tells_that_nothing_could_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from aisim_gym.cli import warm_runs
    from aisim_gym.kernel_cache import Prepared

    warmed = warm_runs.Warmed([Prepared("advance", True, 20.0, None)], 21.0, ["disk full"])
    monkeypatch.setattr(warm_runs, "warm", lambda runs: [(ENVIRONMENTS, warmed)])
    with pytest.warns(RuntimeWarning, match="disk full"):
        result = run_cli("warmup")
    assert result.status == 1

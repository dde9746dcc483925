"""Longer examples of the documentation do what their pages say."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from support.pages import blocks_of
from support.source_tree import ROOT

from aisim_gym import Replay

DOCS = ROOT / "docs"


@pytest.mark.slow
def test_step_response_takes_twenty_lines_and_shows_the_start_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F61: from two to six workers with 60 s of start-up, in at most twenty lines, as a picture."""
    image = pytest.importorskip("PIL.Image", reason="the extra `plot` is not installed")
    (block,) = blocks_of("docs/how-to/step-response.md", "python")
    assert len(block.code.splitlines()) <= 20
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(block.code, block.page, "exec"), names)
    with (
        image.open(tmp_path / "step-response.png") as drawn,
        image.open(DOCS / "images" / "step-response.png") as shipped,
    ):
        assert drawn.size == shipped.size
    replay = names["replay"]
    assert isinstance(replay, Replay)
    fleet = [(tick.active_decode, tick.starting_decode) for tick in replay.ticks]
    assert [fleet[i] for i in range(len(fleet)) if i == 0 or fleet[i] != fleet[i - 1]] == [
        (2, 0),
        (2, 4),
        (6, 0),
    ]
    first_ms = {counts: replay.ticks[fleet.index(counts)].now_ms for counts in set(fleet)}
    # Seen at the tick after the decision; active 60 s after the decision itself.
    assert first_ms[(6, 0)] == first_ms[(2, 4)] - 10_000.0 + 60_000.0


@pytest.mark.slow
def test_single_file_ppo_learns_for_some_updates(capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch", reason="the extra `rl` is not installed")
    example = load_example("ppo_single_file")
    options = example.Options(
        env_id="aisim_gym/Aggregated-v0",
        total_steps=96,
        num_envs=2,
        num_steps=16,
        evaluation_episodes=1,
    )
    torch.manual_seed(options.seed)
    untrained = example.Agent(20, 8).state_dict()
    agent = example.train(options)
    assert len(capsys.readouterr().out.splitlines()) == 3
    trained = agent.state_dict()
    assert all(torch.isfinite(weights).all() for weights in trained.values())
    assert any(not torch.equal(trained[name], untrained[name]) for name in trained)
    again = example.train(options).state_dict()
    assert all(torch.equal(trained[name], again[name]) for name in trained)
    assert example.evaluate(agent, options) < 0.0


def load_example(name: str) -> Any:
    spec = spec_from_file_location(name, DOCS / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # its dataclass looks it up
    spec.loader.exec_module(module)
    return module


def test_shipped_frame_is_one_of_the_renderer_and_small() -> None:
    image = pytest.importorskip("PIL.Image", reason="the extra `plot` is not installed")
    shipped = DOCS / "images" / "env-rgb.png"
    assert shipped.stat().st_size < 150_000
    with image.open(shipped) as picture:
        assert picture.size == (960, 640)

"""Training runs that take seconds: the whole chain, a policy that is not meant to be good."""

from pathlib import Path
from typing import Any

from rich.progress import Progress
from support.source_tree import ROOT

from aisim_gym.policies.rl import load_config
from aisim_gym.policies.rl.training_config import TrainingConfig
from aisim_gym.policies.rl.training_run import TrainingRun, finish_run, new_run, train

CONFIGS = ROOT / "experiments" / "configs"
SMOKE = CONFIGS / "smoke.toml"


def smoke_config(**changes: Any) -> TrainingConfig:
    """Return the smoke configuration with some of its fields changed."""
    return TrainingConfig(**{**load_config(SMOKE).model_dump(), **changes})


def silent_bars() -> Progress:
    """Return progress bars that show nothing."""
    return Progress(disable=True)


def train_smoke(out: Path, seed: int = 3, **changes: Any) -> TrainingRun:
    """Return a complete run in a new folder."""
    run = new_run(smoke_config(**changes), seed, out, source=ROOT)
    state = train(run, silent_bars())
    assert state is not None
    finish_run(run, state)
    return run

"""Training configurations: what is refused, with file and field, and what a hash stands for."""

from pathlib import Path

import pytest
from support.rl_runs import CONFIGS, SMOKE, smoke_config

from aisim_gym.errors import SpecError
from aisim_gym.policies.rl import TrainingConfig, load_config

SHORT = {"name": "short", "total_steps": 20_000, "env": {"id": "aisim_gym/Aggregated-v0"}}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_configuration_is_valid_and_named_as_its_file(path: Path) -> None:
    assert load_config(path).name == path.stem


def test_error_names_file_and_field_and_guesses(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    text = SMOKE.read_text("utf-8")
    path.write_text(text.replace("n_epochs = 2", "n_epoch = 2"), "utf-8")
    with pytest.raises(SpecError) as refused:
        load_config(path)
    message = str(refused.value)
    assert "hyperparameters.n_epoch: unknown field `n_epoch`" in message
    assert "did you mean `n_epochs`?" in message
    assert str(path) in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hyperparameters": {"batch_size": 60}}, r"batch_size: expected a divisor .*got 60"),
        ({"splits": {}}, "splits: expected `validation` among them, got none"),
        ({"validation_steps": 20_001}, "validation_steps: expected at most total_steps"),
        ({"algorithm": "maskable_pp"}, "did you mean `maskable_ppo`"),
        ({"total_steps": 0}, "total_steps"),
        ({"name": "a/b"}, "name"),
        ({"splits": {"validation": {"episodes": 1}}}, r"splits.validation.episodes.*got 1"),
    ],
)
def test_misfit_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        TrainingConfig.from_data({**SHORT, **changes})


def test_steps_are_rounded_up_to_whole_rollouts() -> None:
    config = smoke_config(total_steps=200)
    assert config.rollout_steps == 64
    assert config.trained_steps == 256


def test_hash_is_of_the_resolved_configuration() -> None:
    plain = TrainingConfig.from_data(SHORT)
    spelt_out = TrainingConfig.from_data(
        {**SHORT, "hyperparameters": {"gamma": 0.99}, "num_envs": 4}
    )
    assert plain.sha256() == spelt_out.sha256()
    assert plain.sha256() != TrainingConfig.from_data({**SHORT, "num_envs": 2}).sha256()

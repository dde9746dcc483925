"""How the difficulty of scenarios is measured: tuned on training episodes, told on others."""

from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import gymnasium
import pytest
from support.source_tree import ROOT

from aisim_gym.envs import ScalingEnv
from aisim_gym.policies import make_policy

pytest.importorskip("stable_baselines3", reason="the extra `rl` is not installed")

TRAFFIC = {"duration_s": 40.0, "base_rate_rps": 2.0, "peak_rate_rps": 4.0}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the script, whose environments are made small."""
    spec = spec_from_file_location("difficulty", ROOT / "experiments" / "difficulty.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)

    def make_env(env_id: str, split: str) -> ScalingEnv:
        kwargs: dict[str, Any] = {
            "max_workers": 2,
            "tick_s": 20.0,
            "workload": TRAFFIC,
            "split": split,
        }
        if "Aggregated" in env_id:
            kwargs["initial_workers"] = 1
        else:
            kwargs["initial_workers"] = {"prefill": 1, "decode": 1}
        env = gymnasium.make(env_id, **kwargs).unwrapped
        assert isinstance(env, ScalingEnv)
        return env

    monkeypatch.setattr(module, "make_env", make_env)
    return module


@pytest.mark.parametrize("pools", [1, 2])
def test_grid_of_the_autoscaler_has_every_metric_and_target_of_both_pools(
    script: Any, pools: int
) -> None:
    env_id = {1: "aisim_gym/Aggregated-v0", 2: "aisim_gym/Disaggregated-v0"}[pools]
    players = list(script.hpa_players(script.make_env(env_id, "validation")))
    assert len(players) == len(script.HPA_METRICS) * len(script.TARGET_FACTORS)
    assert len({player.setting for player in players}) == len(players)
    for player in players:
        assert len(player.choice) == 1 + pools
        make_policy("hpa", metrics=[player.choice])  # what the table says can be given
    choices = [player.choice for player in players if player.choice["name"] == "kv"]
    targets = [choice["decode_target"] for choice in choices]
    assert targets == [0.5 * factor for factor in script.TARGET_FACTORS]  # its preset is 0.5


def test_autoscaler_is_chosen_on_training_episodes_and_measured_on_validation_ones(
    script: Any,
) -> None:
    played: list[tuple[str, str]] = []

    def play_all(play: Any, players: list[Any]) -> list[Any]:
        split = play.args[1]
        played.extend((split, player.setting) for player in players)
        found = [play(player) for player in players]
        if split == "train":  # let a setting win that nobody would choose
            found[7] = found[7]._replace(reward=1.0)
        return found

    measured = script.measure("aisim_gym/Aggregated-v0", 2, play_all)
    tuned = [setting for split, setting in played if split == "train"]
    assert len(tuned) == 20
    rows = {row["policy"]: row for row in measured["rows"]}
    assert list(rows) == ["static", "hpa", "random"]
    assert rows["hpa"]["setting"] == tuned[7]
    assert rows["hpa"]["reward"] < 0.0  # that of the validation episodes
    shown = [setting for split, setting in played if split == "validation"]
    assert shown == ["1 worker", "2 workers", tuned[7], ""]
    assert rows["static"]["setting"] in shown[:2]
    assert measured["hpa_grid"]["episodes"] == script.TRAINING.episodes


def test_number_of_episodes_is_that_of_the_split_where_it_has_fewer(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScalingEnv, "num_episodes", property(lambda env: 2))
    monkeypatch.setattr(script, "hpa_players", lambda env: [script.Player("hpa", "", {})])
    assert script.measure("aisim_gym/Aggregated-v0", 5)["episodes"] == 2

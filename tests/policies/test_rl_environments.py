"""Environments as learners get them: fixed validation episodes, seeds, threads, processes (F33)."""

from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from support.rl_runs import smoke_config

from aisim_gym.policies.rl.native_envs import make_native_envs
from aisim_gym.policies.rl.training_config import EpisodeSet, TrainingConfig
from aisim_gym.policies.rl.training_envs import (
    FixedEpisodes,
    env_seed,
    make_env,
    make_training_envs,
    reset_arguments,
)

pytest.importorskip("stable_baselines3")


def test_validation_plays_the_same_episodes_every_round() -> None:
    config = smoke_config()
    env = FixedEpisodes(make_env(config.env.id, config.env.kwargs), EpisodeSet(episodes=2, first=7))
    first = [env.reset(seed=seed)[0] for seed in (1, 2)]
    second = [env.reset()[0] for _ in range(2)]
    assert np.array_equal(first, second)
    assert not np.array_equal(first[0], first[1])


def test_episodes_are_chosen_by_seed_or_by_number() -> None:
    assert reset_arguments(EpisodeSet(first=10), 2) == {"seed": 12}
    by_number = EpisodeSet(choose_by="episode", first=10)
    assert reset_arguments(by_number, 2) == {"options": {"episode": 12}}


def test_number_of_an_episode_reaches_the_environment() -> None:
    told: list[Any] = []

    class ToldInfo(gymnasium.Env[Any, Any]):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            told.append((seed, options))
            return 0, {}

    env = FixedEpisodes(ToldInfo(), EpisodeSet(episodes=2, choose_by="episode"))
    for _ in range(3):
        env.reset(seed=5)
    assert told == [(None, {"episode": 0}), (None, {"episode": 1}), (None, {"episode": 0})]


def test_run_that_goes_on_has_other_traffic_than_at_its_beginning() -> None:
    assert env_seed(3, 0) == env_seed(3, 0)
    assert len({env_seed(3, 0), env_seed(3, 64), env_seed(4, 0)}) == 3


def test_unknown_environment_is_refused_with_a_guess() -> None:
    with pytest.raises(ValueError, match=r"did you mean `aisim_gym/Aggregated-v0`.*known: "):
        make_env("aisim_gym/Agregated-v0", {})


def smoke_envs(**changes: Any) -> Any:
    return make_training_envs(smoke_config(**changes))


def played(config: TrainingConfig, num_steps: int) -> list[Any]:
    """Return all that Stable-Baselines3 gets to see of a rollout, but for the clock."""
    envs: Any = make_training_envs(config)
    random = np.random.default_rng(2)
    seen: list[Any] = []
    try:
        envs.seed(5)
        seen.append((envs.reset().tolist(), envs.reset_infos))
        for _ in range(num_steps):
            actions = random.integers(0, 3, (config.num_envs, 2))
            observations, rewards, dones, infos = envs.step(actions)
            assert (observations.dtype, rewards.dtype, dones.dtype) == ("f4", "f4", "?")
            for info in infos:
                if "episode" in info:
                    assert info["episode"].pop("t") >= 0.0
                    info["terminal_observation"] = info["terminal_observation"].tolist()
            reset_infos = list(envs.reset_infos)
            seen.append((observations.tolist(), rewards.tolist(), dones.tolist(), infos))
            seen.append(reset_infos)
    finally:
        envs.close()
    return seen


@pytest.mark.parametrize("horizon_s", [60.0, 120.0])
def test_native_environments_give_the_rollout_of_dummy_ones(horizon_s: float) -> None:
    """Episodes that are cut short and such that end by themselves, three of each environment."""
    config = smoke_config(num_envs=3)
    config.env.kwargs["horizon_s"] = horizon_s
    mine, theirs = (played(config.model_copy(update={"vec": v}), 32) for v in ("native", "dummy"))
    for step, (native, dummy) in enumerate(zip(mine, theirs, strict=True)):
        assert native == dummy, f"step {step}"
    infos = [info for step in mine[1::2] for info in step[3]]
    cut = [info["TimeLimit.truncated"] for info in infos if "episode" in info]
    assert len(cut) >= 9
    assert any(cut) is (horizon_s == 60.0)


def test_masks_and_attributes_of_native_environments_are_within_reach() -> None:
    envs = smoke_envs(num_envs=3)
    envs.reset()
    assert envs.has_attr("action_masks")
    assert not envs.has_attr("action_mask")
    masks = np.stack(envs.env_method("action_masks"))
    assert masks.shape == (3, 6)
    assert masks.all()
    assert [fleet.limits.tick_s for fleet in envs.get_attr("fleet_description")] == [10.0] * 3
    envs.set_attr("render_mode", "ansi", indices=[1])
    assert envs.get_attr("render_mode") == [None, "ansi", None]
    assert envs.env_is_wrapped(FixedEpisodes, indices=0) == [False]
    envs.close()


def test_options_of_native_environments_hold_for_the_next_reset() -> None:
    envs = smoke_envs()
    envs.set_options({"prefill_workers": 3})
    envs.reset()
    counts = [snapshot.prefill.num_non_draining for snapshot in envs.get_attr("snapshot")]
    assert counts == [3, 3]
    envs.reset()
    assert envs.get_attr("snapshot")[0].prefill.num_non_draining < 3
    envs.set_options([{"prefill_workers": 3}, {}])
    with pytest.raises(ValueError, match="options: expected the same for every environment"):
        envs.reset()
    envs.close()


@pytest.mark.parametrize("env_id", ["Acrobot-v1", "CartPole-v1"])
def test_native_is_refused_for_environments_from_elsewhere(env_id: str) -> None:
    with pytest.raises(TypeError, match=rf"vec: got 'native' for {env_id}, .*'dummy' or 'subproc'"):
        make_native_envs(env_id, {}, 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_trials_of_a_study_may_use_processes() -> None:
    """Field case F33: a study that tries settings, in environments in processes of their own."""
    optuna = pytest.importorskip("optuna", reason="optuna is not installed")

    def objective(trial: Any) -> float:
        num_steps = trial.suggest_int("num_steps", 1, 3)
        envs = make_training_envs(smoke_config(vec="subproc", start_method="spawn"))
        try:
            envs.seed(5)
            envs.reset()
            rewards = [envs.step(np.array([[2, 1], [0, 2]]))[1] for _ in range(num_steps)]
        finally:
            envs.close()
        return float(np.sum(rewards))

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(objective, n_trials=2, n_jobs=2)
    assert all(np.isfinite(trial.value) for trial in study.trials)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_processes_of_their_own_give_the_same_episodes(start_method: str) -> None:
    """Field case F33."""
    rollouts = []
    for changes in ({"vec": "dummy"}, {"vec": "subproc", "start_method": start_method}):
        envs = make_training_envs(smoke_config(**changes))
        try:
            envs.seed(5)
            observations = [cast(Any, envs.reset())]
            for _ in range(3):
                step = envs.step(np.array([[2, 1], [0, 2]]))
                observations += [step[0], step[1]]
        finally:
            envs.close()
        rollouts.append(observations)
    for mine, theirs in zip(*rollouts, strict=True):
        assert np.array_equal(mine, theirs.astype(mine.dtype))  # rewards: float32 and float64

"""Environments as learners get them: fixed validation episodes, seeds, processes (F33)."""

from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from support.rl_runs import smoke_config

from aisim_gym.policies.rl.training_config import EpisodeSet
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

    class Told(gymnasium.Env[Any, Any]):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            told.append((seed, options))
            return 0, {}

    env = FixedEpisodes(Told(), EpisodeSet(episodes=2, choose_by="episode"))
    for _ in range(3):
        env.reset(seed=5)
    assert told == [(None, {"episode": 0}), (None, {"episode": 1}), (None, {"episode": 0})]


def test_run_that_goes_on_has_other_traffic_than_at_its_beginning() -> None:
    assert env_seed(3, 0) == env_seed(3, 0)
    assert len({env_seed(3, 0), env_seed(3, 64), env_seed(4, 0)}) == 3


def test_unknown_environment_is_refused_with_a_guess() -> None:
    with pytest.raises(ValueError, match=r"did you mean `aisim_gym/Aggregated-v0`.*known: "):
        make_env("aisim_gym/Agregated-v0", {})


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

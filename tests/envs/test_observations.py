"""The observation objects: what they show, where their bounds are, what learners do with them."""

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import FlattenObservation, FrameStackObservation

from aisim_gym.envs import ScalingEnv, TickView
from aisim_gym.envs.fleet_choice import choose_fleet
from aisim_gym.envs.observation import SummaryObservation
from aisim_gym.envs.observer import OBSERVATIONS
from aisim_gym.envs.per_rank import RANK_ENTRIES, PerRankObservation
from aisim_gym.envs.spaces_fit import make_fitter
from aisim_gym.workload import requests_from_arrays

EnvBuilder = Callable[..., ScalingEnv]

AGG, DISAGG = "aisim_gym/Aggregated-v0", "aisim_gym/Disaggregated-v0"

VARIANTS: list[Any] = [
    "summary",
    "per_rank",
    {"name": "per_rank", "flat": False},
    {"name": "history", "length": 3},
]


def wide_fleet(make_env: EnvBuilder, env_id: str, **engine: Any) -> dict[str, Any]:
    """Return the default fleet with workers that can hold a prompt of a million tokens."""
    fleet = choose_fleet(make_env(env_id).kind)
    for launch in ("prefill", "decode", "engine"):
        if launch in fleet:
            fleet[launch]["engine"] |= engine | {"num_gpu_blocks": 70_000}
    return fleet


def extreme_requests(kind: str) -> Any:
    """Return one of the workloads that have broken observations elsewhere."""
    if kind == "one request of a million tokens":
        return requests_from_arrays([1000.0], [1_000_000], [20])
    if kind == "many at once":
        return requests_from_arrays([0.0] * 100_000, [800] * 100_000, [4] * 100_000)
    if kind == "a gap of ten minutes":
        return requests_from_arrays([0.0, 610_000.0], [500, 500], [50, 50])
    return requests_from_arrays([590_000.0], [1], [1])  # nothing for long


@pytest.mark.parametrize("observation", VARIANTS, ids=str)
@pytest.mark.parametrize(
    "kind",
    ["one request of a million tokens", "many at once", "a gap of ten minutes", "empty"],
)
def test_extreme_workloads_stay_within_the_space(
    env_id: str, kind: str, observation: Any, make_env: EnvBuilder
) -> None:
    """F09, F10, F14: bounds, type and shape hold; nothing is NaN and nothing warns."""
    env = make_env(
        env_id,
        fleet=wide_fleet(make_env, env_id),
        requests=extreme_requests(kind),
        observation=observation,
        min_workers=1 if env_id == AGG else 0,
        horizon_s=700.0,
    )
    with np.errstate(all="raise"):
        assert env.reset(seed=1)[0] in env.observation_space
        env.action_space.seed(1)
        ended = False
        while not ended:
            seen, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            assert seen in env.observation_space
            assert math.isfinite(reward)
            ended = terminated or truncated


@pytest.mark.parametrize("observation", VARIANTS, ids=str)
def test_thousands_of_random_steps_stay_within_the_space(
    env_id: str, observation: Any, make_env: EnvBuilder
) -> None:
    """F09: overload included; no worker at all where that is possible."""
    busy = {"duration_s": 600.0, "base_rate_rps": 1.0, "peak_rate_rps": 60.0, "period_s": 100.0}
    env = make_env(
        env_id,
        workload=busy,
        tick_s=0.5,
        observation=observation,
        min_workers=1 if env_id == AGG else 0,
    )
    env.action_space.seed(2)
    seen, _ = env.reset(seed=2)
    for _ in range(2500):
        assert seen in env.observation_space
        seen, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            seen, _ = env.reset()


@pytest.mark.parametrize("observation", VARIANTS[1:], ids=str)
def test_checkers_have_nothing_to_say(env_id: str, observation: Any, make_env: EnvBuilder) -> None:
    """F11, F12."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make_env(env_id, observation=observation))


@pytest.mark.parametrize("observation", ["per_rank", "history"])
def test_checker_of_stable_baselines3_has_nothing_to_say(
    env_id: str, observation: Any, make_env: EnvBuilder
) -> None:
    """F11, F12, F13."""
    checker = pytest.importorskip(
        "stable_baselines3.common.env_checker", reason="stable_baselines3 is not installed"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(make_env(env_id, observation=observation), warn=True)


@pytest.mark.parametrize("wrap", [FlattenObservation, lambda env: FrameStackObservation(env, 3)])
def test_wrapped_per_rank_observations_keep_their_type(
    env_id: str, wrap: Callable[[ScalingEnv], gymnasium.Env[Any, Any]], make_env: EnvBuilder
) -> None:
    """F12: nothing becomes float64."""
    env = wrap(make_env(env_id, observation="per_rank"))
    observation, _ = env.reset(seed=1)
    for _ in range(4):
        assert observation in env.observation_space
        parts = observation.values() if isinstance(observation, dict) else [observation]
        assert {part.dtype for part in parts} <= {np.dtype(np.float32), np.dtype(np.int8)}
        observation, *_ = env.step(env.action_space.sample())


@pytest.mark.slow
def test_multi_input_policy_learns_from_per_rank_observations(make_env: EnvBuilder) -> None:
    """F11."""
    ppo = pytest.importorskip("stable_baselines3", reason="stable_baselines3 is not installed")
    env = make_env(DISAGG, observation="per_rank")
    ppo.PPO("MultiInputPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu").learn(64)


# What is visible


def test_requests_that_no_pass_has_reported_are_in_flight(
    env_id: str, make_env: EnvBuilder
) -> None:
    """F58: a pass over a million tokens keeps the only worker busy; nothing completes."""
    fleet = wide_fleet(make_env, env_id, max_num_batched_tokens=1_000_000)
    fleet |= {key: 1 for key in fleet if key.startswith("num_")}
    at_ms = [1000.0, *(1500.0 + 100.0 * i for i in range(200))]
    requests = requests_from_arrays(at_ms, [1_000_000, *[200] * 200], [5] * 201)
    env = make_env(env_id, fleet=fleet, requests=requests, min_workers=1, tick_s=30.0)
    observation, _ = env.reset(seed=1)
    names = SummaryObservation(env.fleet_description).names
    seen = dict(zip(names, observation.tolist(), strict=True))
    assert seen["completion_rate"] == 0.0
    assert seen["request_rate"] == pytest.approx(math.log1p(201 / 30.0) / math.log1p(1000.0))
    assert seen["in_flight"] == pytest.approx(math.log1p(201) / math.log1p(10_000.0))


def test_requests_past_their_limit_and_those_that_missed_it_are_visible(
    env_id: str, make_env: EnvBuilder
) -> None:
    """F59: time spent in queues shows before anything completes."""
    busy = {"duration_s": 60.0, "base_rate_rps": 60.0, "peak_rate_rps": 60.0, "spike_at_s": None}
    env = make_env(env_id, workload=busy)
    names = SummaryObservation(env.fleet_description).names
    env.reset(seed=1)
    observation, *_, info = env.step(np.zeros_like(env.action_space.sample()))
    seen = dict(zip(names, observation.tolist(), strict=True))
    overdue = info["overdue_s"] / info["duration_s"]
    assert overdue > 1.0
    assert seen["overdue"] == pytest.approx(math.log1p(overdue) / math.log1p(10_000.0))
    ended = info["completed"] + info["rejected"]
    assert seen["bad"] == pytest.approx(1.0 - info["good"] / ended)
    assert seen["bad"] > 0.5


def test_gpus_are_those_of_the_targets(make_env: EnvBuilder) -> None:
    names = SummaryObservation(make_env(DISAGG).fleet_description).names
    for arguments, most in (({}, 16), ({"max_gpus": 5}, 5)):
        env = make_env(DISAGG, **arguments)
        env.reset(seed=1)
        observation, *_ = env.step(np.array([1, 2]))  # 2 + 3 GPUs, some of them starting
        assert observation[names.index("gpus")] == pytest.approx(5 / most)


def test_numbers_of_workers_are_shares_of_their_own_pool(make_env: EnvBuilder) -> None:
    env = make_env(DISAGG, max_workers={"prefill": 4, "decode": 16})
    names = SummaryObservation(env.fleet_description).names
    observation, _ = env.reset(seed=1)  # 1 + 2 workers
    assert observation[names.index("prefill_active")] == 1 / 4
    assert observation[names.index("decode_active")] == 2 / 16


# Ranks


def test_rows_are_the_ranks_of_active_workers(make_env: EnvBuilder) -> None:
    fleet = choose_fleet("disagg")
    fleet["decode"]["dp_size"] = 3
    env = make_env(
        DISAGG,
        fleet=fleet,
        observation={"name": "per_rank", "flat": False},
        max_workers={"prefill": 2, "decode": 4},
    )
    seen, _ = env.reset(seed=1)  # 1 + 2 workers
    assert {key: part.shape for key, part in seen.items()} == {
        "fleet": (29,),
        "prefill": (2, 10),
        "prefill_mask": (2,),
        "decode": (12, 10),
        "decode_mask": (12,),
    }
    assert seen["prefill_mask"].tolist() == [1, 0]
    assert seen["decode_mask"].tolist() == [1] * 6 + [0] * 6
    columns = [name for name, _ in RANK_ENTRIES]
    fpms = env.snapshot.decode.fpms
    assert len(fpms) == 6
    capacity = env.fleet_description.decode.max_kv_tokens / 3
    kv = [fpm.sum_decode_kv_tokens + fpm.sum_prefill_tokens for fpm in fpms]
    assert sum(kv) > 0
    kv_used = seen["decode"][:, columns.index("kv_used")]
    assert kv_used[:6] == pytest.approx(np.array(kv) / capacity)
    assert not seen["decode"][6:].any()


def test_rows_of_a_flat_table_follow_each_other(make_env: EnvBuilder) -> None:
    matrix = make_env(AGG, observation={"name": "per_rank", "flat": False})
    flat = make_env(AGG, observation="per_rank")
    rows = matrix.reset(seed=1)[0]["workers"]
    assert rows.any()
    assert flat.reset(seed=1)[0]["workers"].tolist() == rows.reshape(80).tolist()


def test_starting_and_draining_workers_have_no_rows(make_env: EnvBuilder) -> None:
    env = make_env(AGG, observation="per_rank")
    env.reset(seed=1)  # 3 workers
    seen, *_ = env.step(7)  # 5 more, which take 30 s to start
    assert len(env.snapshot.decode.starting_ids) == 5
    assert seen["workers_mask"].sum() == 3
    seen, *_ = env.step(0)
    assert seen["workers_mask"].sum() == len(env.snapshot.decode.active_ids) == 1


def test_workers_without_a_row_are_left_out(make_env: EnvBuilder) -> None:
    env = make_env(AGG)
    env.reset(seed=1)  # 3 workers
    small = make_env(AGG, fleet=choose_fleet("agg", initial_workers=1), max_workers=2)
    part = PerRankObservation(small.fleet_description)
    seen = part.observe(env.view)
    assert seen["workers_mask"].tolist() == [1, 1]
    _, num_clipped = make_fitter(part.space())(seen)
    assert num_clipped == 2  # workers_active and gpus are 3 / 2


# History


def test_history_is_the_last_observations_oldest_first(env_id: str, make_env: EnvBuilder) -> None:
    plain = make_env(env_id)
    env = make_env(env_id, observation={"name": "history", "length": 3})
    size = len(SummaryObservation(env.fleet_description).names)
    for seed in (1, 2):  # the second episode knows nothing of the first
        env.action_space.seed(seed)
        first, stacked = plain.reset(seed=seed)[0], env.reset(seed=seed)[0]
        past = [first] * 3
        for _ in range(5):
            assert np.array_equal(stacked, np.concatenate(past))
            action = env.action_space.sample()
            past = [*past[1:], plain.step(action)[0]]
            stacked = env.step(action)[0]
    assert len(stacked) == 3 * size


def test_forked_history_continues_on_its_own(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id, observation={"name": "history", "length": 3})
    env.reset(seed=1)
    again, fork = copy.deepcopy(env), env.fork()
    keep = np.zeros_like(env.action_space.sample())
    fork.step(env.action_space.sample())
    fork.step(keep)
    assert np.array_equal(env.step(keep)[0], again.step(keep)[0])


def test_history_of_an_object_of_ones_own(make_env: EnvBuilder) -> None:
    class Queued:
        def space(self) -> spaces.Box:
            return spaces.Box(0.0, 100.0, (1,), np.float32)

        def observe(self, view: TickView) -> list[float]:
            return [view.snapshot.now_ms / 1000.0]

    env = make_env(AGG, observation={"name": "history", "length": 2, "of": Queued()})
    assert env.reset(seed=1)[0].tolist() == [10.0, 10.0]
    assert env.step(0)[0].tolist() == [10.0, 20.0]
    assert env.step(0)[0].tolist() == [20.0, 30.0]


def test_entries_of_a_history_are_named(make_env: EnvBuilder) -> None:
    part = OBSERVATIONS["history"](make_env(AGG).fleet_description, length=2)
    names, units = (list(getattr(part, field)) for field in ("names", "units"))
    assert names[0] == "workers_active_1_ago"
    assert names[-1] == "time_0_ago"
    assert len(names) == len(units) == 40


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"of": "per_rank"}, r"observation 'history': of: got .*Dict.*, expected a one-dim"),
        ({"of": "sumary"}, "unknown of 'sumary'; did you mean `summary`"),
        ({"length": 0}, "observation 'history': length: got 0, expected >= 1"),
    ],
)
def test_history_of_what_cannot_be_stacked_is_refused(
    parameters: dict[str, Any], message: str, make_env: EnvBuilder
) -> None:
    with pytest.raises(ValueError, match=message):
        make_env(AGG, observation={"name": "history", **parameters})


# Objects of one's own


def test_parts_of_a_mapping_are_fitted_one_by_one() -> None:
    box = spaces.Box(0.0, 1.0, (2,), np.float32)
    space = spaces.Dict({"a": box, "m": spaces.MultiBinary(2)})
    fit = make_fitter(space)
    fitted, num_clipped = fit({"m": [True, False], "a": [2.0, 0.5]})
    assert num_clipped == 1
    assert fitted in space
    assert fitted["a"].tolist() == [1.0, 0.5]
    with pytest.raises(ValueError, match=r"observation: got \['a'\], expected a mapping with a, m"):
        fit({"a": [0.0, 0.0]})
    with pytest.raises(ValueError, match=r"observation\['a'\]: entry 1 is NaN"):
        fit({"a": [0.0, math.nan], "m": [0, 0]})


def test_object_of_ones_own_is_told_what_the_snapshot_does_not_say(make_env: EnvBuilder) -> None:
    class Told:
        told: TickView

        def space(self) -> spaces.Box:
            return spaces.Box(0.0, 1.0, (1,), np.float32)

        def observe(self, view: TickView) -> list[float]:
            self.told = view
            return [0.0]

    part = Told()
    env = make_env(AGG, horizon_s=100.0, observation=part, ttft_slo_ms=5.0)
    env.reset(seed=1)
    assert (part.told.step.mean_overdue, part.told.step.bad_frac) == (0.0, 0.0)
    *_, info = env.step(0)
    view = part.told
    assert view is env.view
    assert view.time_frac == 0.2
    assert view.in_flight == view.step.in_flight > 0
    assert view.step.mean_overdue == info["overdue_s"] / info["duration_s"] > 0.0
    ended = info["completed"] + info["rejected"]
    assert view.step.bad_frac == (ended - info["good"]) / ended > 0.0
    assert view.snapshot is env.snapshot  # built once
    assert view.load is view.load

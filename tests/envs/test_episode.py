"""Seeds, ends, costs of an episode (policies.md §18.2; rulings.md 11)."""

import random
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from support.audit import check_arrivals, check_requests
from support.effort import cpu_loops

from aisim_gym.envs import ScalingEnv
from aisim_gym.envs.fleet_choice import choose_fleet
from aisim_gym.fleet.paid_time import pool_worker_seconds
from aisim_gym.fleet.tables import DECODE, PREFILL
from aisim_gym.metrics.request_times import REQUEST_COMPLETED, REQUEST_OPEN
from aisim_gym.report import summarize
from aisim_gym.workload import (
    RequestTable,
    requests_from_arrays,
    requests_from_mooncake_rows,
)

EnvBuilder = Callable[..., ScalingEnv]


def play(env: ScalingEnv, action: Any = None, **reset: Any) -> list[Any]:
    """Return everything an episode shows; random actions unless one is given."""
    observation, info = env.reset(**reset)
    seen: list[Any] = [(observation.tolist(), info)]
    env.action_space.seed(11)
    ended = False
    while not ended:
        chosen = env.action_space.sample() if action is None else action
        observation, reward, terminated, truncated, info = env.step(chosen)
        assert observation in env.observation_space
        assert observation.dtype == np.float32
        assert np.isfinite(reward)
        ended = terminated or truncated
        assert not (terminated and truncated)
        seen.append((observation.tolist(), reward, terminated, truncated, info))
    return seen


def arrivals(env: ScalingEnv) -> list[float]:
    rows = np.asarray(env.replay.state.world.requests)
    return [float(at_ms) for at_ms in rows["arrival_ms"]]


def global_random_state() -> tuple[str, str]:
    return str(np.random.get_state()), str(random.getstate())  # noqa: NPY002


def burst(count: int, input_tokens: int = 300, output_tokens: int = 20) -> RequestTable:
    return requests_from_arrays(np.zeros(count), [input_tokens] * count, [output_tokens] * count)


def conversations(count: int, turns: int) -> RequestTable:
    """Return sessions that start a second apart; each turn comes 2 s after the one before."""
    rows = [
        {
            "session_id": f"s{session}",
            "delay" if turn else "timestamp": 2000.0 if turn else 1000.0 * session,
            "input_length": 300,
            "output_length": 20,
            "hash_ids": [100 * session + turn],
        }
        for session in range(count)
        for turn in range(turns)
    ]
    return requests_from_mooncake_rows(rows)


def least(env: ScalingEnv) -> Any:
    """Return the action that asks for the fewest workers."""
    return np.zeros(env.action_space.shape or (), np.int64)


# Seeds


def test_same_seed_gives_the_same_episode_whatever_the_global_state(
    env_id: str, make_env: EnvBuilder
) -> None:
    """F01."""
    episodes = []
    for i in range(2):
        np.random.seed(i)  # noqa: NPY002
        random.seed(i)
        env = make_env(env_id)
        before = global_random_state()
        episodes.append(play(env, seed=7))
        assert global_random_state() == before
        rows = np.asarray(env.replay.state.world.requests)
        episodes[-1].append([str(row) for row in rows.tolist()])
    assert episodes[0] == episodes[1]


def test_seed_starts_a_sequence_of_episodes(env_id: str, make_env: EnvBuilder) -> None:
    """F02."""
    env = make_env(env_id)
    first, second, third, fourth = (play(env, seed=seed) for seed in (123, None, 123, None))
    assert first == third
    assert second == fourth
    assert first != second


def test_resets_without_a_seed_give_new_requests_in_a_reproducible_order(
    env_id: str, make_env: EnvBuilder
) -> None:
    """F04."""
    sequences = []
    env = make_env(env_id)
    for _ in range(2):
        sequence = []
        for i in range(10):
            env.reset(seed=5 if i == 0 else None)
            sequence.append(tuple(arrivals(env)))
        sequences.append(sequence)
    assert sequences[0] == sequences[1]
    assert len(set(sequences[0])) == 10


def test_nothing_of_earlier_episodes_survives_a_reset(env_id: str, make_env: EnvBuilder) -> None:
    """F03, F07: neither workers nor caches, queues, clock or counters."""
    fresh = play(make_env(env_id), seed=1)
    used = make_env(env_id)
    most = np.full(used.action_space.shape or (), 7, np.int64)
    play(used, action=most, seed=9, options={"duration_s": 20.0})
    used.reset(seed=4)
    used.step(most)  # left in mid-episode
    assert play(used, seed=1) == fresh


def test_reset_in_mid_episode_can_be_repeated(env_id: str, make_env: EnvBuilder) -> None:
    """F24."""
    env = make_env(env_id, workload={"duration_s": 20.0, "mean_output_tokens": 10.0})
    for _ in range(100):
        env.reset()
        env.step(env.action_space.sample())
        env.reset()


# Ends


def test_finished_workload_terminates(env_id: str, make_env: EnvBuilder) -> None:
    """F19."""
    *_, last = play(make_env(env_id), seed=1)
    assert last[2:4] == (True, False)
    info = last[4]
    assert info["total_completed"] == info["total_arrived"] > 0


def test_horizon_truncates(env_id: str, make_env: EnvBuilder) -> None:
    """F19."""
    *_, last = play(make_env(env_id, horizon_s=25.0), seed=1)
    assert last[2:4] == (False, True)
    assert last[4]["now_s"] == 25.0


def test_end_exactly_at_the_horizon_terminates_and_one_later_truncates(
    env_id: str, make_env: EnvBuilder
) -> None:
    """F19."""
    requests = requests_from_arrays([12_000.0], [300], [20])
    env = make_env(env_id, requests=requests)
    play(env, seed=1)
    end_s = env.replay.now_ms / 1000.0
    assert 12.0 < end_s < 20.0
    *_, at_end = play(make_env(env_id, requests=requests, horizon_s=end_s), seed=1)
    assert at_end[2:4] == (True, False)
    *_, before = play(make_env(env_id, requests=requests, horizon_s=end_s - 1e-6), seed=1)
    assert before[2:4] == (False, True)


def test_hopeless_overload_still_ends(env_id: str, make_env: EnvBuilder) -> None:
    """F20: at the horizon, however long the queue is."""
    traffic = {"duration_s": 60.0, "base_rate_rps": 40.0, "peak_rate_rps": 40.0}
    env = make_env(env_id, workload={**traffic, "spike_at_s": None}, horizon_s=80.0)
    seen: list[tuple[Any, ...]] = []
    # Usual: 1.
    assert cpu_loops(lambda: seen.extend(play(env, action=least(env), seed=1))) < 300
    assert seen[-1][3]
    assert seen[-1][4]["is_success"] is False
    assert len(seen) == 1 + 7


def test_workload_that_ends_before_the_first_tick_is_one_step(
    env_id: str, make_env: EnvBuilder
) -> None:
    env = make_env(env_id, requests=burst(1))
    seen = play(env, seed=1)
    assert len(seen) == 2
    info = seen[-1][4]
    assert info["total_completed"] == 1
    assert info["gpu_hours"] == pytest.approx(3 * env.replay.now_ms / 3.6e6)


@pytest.mark.parametrize(("limit", "num_steps"), [(2, 2), (1000, 5), (-1, 5)])
def test_time_limit_wrapper_counts_steps(env_id: str, limit: int, num_steps: int) -> None:
    """F18: below the end of the episode it truncates, above it changes nothing, -1 is none."""
    traffic = {"duration_s": 60.0, "base_rate_rps": 1.0, "peak_rate_rps": 2.0}
    arguments: dict[str, Any] = {"workload": traffic, "tick_s": 10.0, "horizon_s": 80.0}
    env = gymnasium.make(env_id, max_episode_steps=limit, **arguments)
    env.reset(seed=1)
    steps: list[Any] = []
    while not steps or not (steps[-1][2] or steps[-1][3]):
        steps.append(env.step(env.action_space.sample()))
    assert len(steps) == num_steps
    assert steps[-1][2:4] == ((False, True) if limit == 2 else (True, False))


def test_success_is_told_after_every_step_so_that_any_end_knows_it(env_id: str) -> None:
    """The wrapper TimeLimit ends episodes without telling the environment."""
    traffic = {"duration_s": 60.0, "base_rate_rps": 60.0, "peak_rate_rps": 60.0}
    env = gymnasium.make(env_id, max_episode_steps=3, tick_s=10.0, workload=traffic)
    _, info = env.reset(seed=1)
    assert info["is_success"] is True  # nothing arrived that could be late
    truncated = False
    while not truncated:
        *_, truncated, info = env.step(np.zeros(env.action_space.shape or (), np.int64))
        assert info["is_success"] == (info["total_good"] >= 0.95 * info["total_arrived"])
    assert info["is_success"] is False


def test_step_needs_a_reset(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id)
    with pytest.raises(ResetNeeded):
        env.step(env.action_space.sample())
    play(env, seed=1)
    with pytest.raises(ResetNeeded, match="episode is over"):
        env.step(env.action_space.sample())
    env.close()
    env.close()
    with pytest.raises(ResetNeeded):
        _ = env.snapshot
    play(env, seed=1)


# Silence and extremes


def test_silence_is_observed_without_nan(env_id: str, make_env: EnvBuilder) -> None:
    """F14."""
    requests = requests_from_arrays([0.0, 600_000.0], [300, 300], [20, 20])
    env = make_env(env_id, requests=requests)
    with np.errstate(all="raise"):
        seen = play(env, seed=1)
    assert len(seen) == 61
    assert all(step[4]["obs_clipped"] == 0 for step in seen[1:])


@pytest.mark.parametrize(
    ("requests", "fleet_kv_blocks"),
    [
        (requests_from_arrays([0.0], [1_000_000], [3]), 20_000),
        (burst(20_000, input_tokens=8, output_tokens=1), 2048),
    ],
    ids=["one of a million tokens", "twenty thousand at once"],
)
def test_extreme_workloads_stay_inside_the_space(
    env_id: str, requests: RequestTable, fleet_kv_blocks: int, make_env: EnvBuilder
) -> None:
    fleet = choose_fleet(make_env(env_id).kind)
    for launch in ("prefill", "decode", "engine"):
        if launch in fleet:
            fleet[launch]["engine"]["num_gpu_blocks"] = fleet_kv_blocks
    seen = play(make_env(env_id, fleet=fleet, requests=requests, tick_s=0.5, horizon_s=60.0))
    assert seen


def test_disaggregated_pools_may_be_scaled_to_zero(make_env: EnvBuilder) -> None:
    env = make_env("aisim_gym/Disaggregated-v0", min_workers=0, horizon_s=80.0)
    seen = play(env, action=np.zeros(2, np.int64), seed=1)
    assert seen[-1][3]
    assert seen[-1][4]["total_arrived"] > seen[-1][4]["total_completed"]


# Nothing is lost


def test_every_request_is_somewhere_at_every_tick(env_id: str, make_env: EnvBuilder) -> None:
    """F51: arrived = completed + rejected + open, in the info and in the tables."""
    busy = {"duration_s": 60.0, "base_rate_rps": 5.0, "peak_rate_rps": 60.0, "period_s": 60.0}
    env = make_env(env_id, workload=busy, startup_s=5.0, horizon_s=90.0)
    env.reset(seed=1)
    env.action_space.seed(1)
    most_open, ended = 0, False
    while not ended:
        *_, terminated, truncated, info = env.step(env.action_space.sample())
        check_requests(env.replay.state)
        check_arrivals(env.replay.state)
        rows = np.asarray(env.replay.state.world.requests)
        rows = rows[rows["is_arrived"] == 1]
        num_open = int((rows["status"] == REQUEST_OPEN).sum())
        assert info["total_arrived"] == len(rows)
        assert info["total_completed"] == (rows["status"] == REQUEST_COMPLETED).sum()
        ends = info["total_completed"] + info["total_rejected"]
        assert info["total_arrived"] == ends + num_open
        most_open, ended = max(most_open, num_open), terminated or truncated
    assert most_open > 100


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_scarce_memory_preempts_and_still_gets_everything_done(
    enable_prefix_caching: bool,
    env_id: str,
    make_env: EnvBuilder,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """F52: outputs that outgrow the KV pool together, but not one by one; nothing is logged."""
    engine = {"num_gpu_blocks": 20, "enable_prefix_caching": enable_prefix_caching}
    fleet = choose_fleet(make_env(env_id).kind)
    for launch in ("prefill", "decode", "engine"):
        if launch in fleet:
            fleet[launch]["engine"] |= engine
    fleet |= {key: 1 for key in fleet if key.startswith("num_")}
    requests = burst(30, input_tokens=300, output_tokens=600)
    env = make_env(env_id, fleet=fleet, requests=requests, capture_details=True, horizon_s=3600.0)
    *_, last = play(env, action=least(env), seed=1)
    assert last[2:4] == (True, False)
    assert last[4]["total_completed"] == 30
    records = summarize(env.replay).per_request
    assert records is not None
    assert sum(records.columns["readmission_count"]) > 0
    out, err = capfd.readouterr()
    logged = [line for line in err.splitlines() if "compiling the replay kernel" not in line]
    assert (out, logged) == ("", [])


def test_overload_drops_nothing_and_never_looks_better(env_id: str, make_env: EnvBuilder) -> None:
    """F53: no hidden time-out; throughput is over all the time until the last completion."""
    good_frac = []
    for rate_rps in (1.0, 20.0, 60.0):
        load = {"duration_s": 60.0, "base_rate_rps": rate_rps, "peak_rate_rps": rate_rps}
        env = make_env(env_id, workload={**load, "spike_at_s": None}, horizon_s=90.0)
        info = play(env, action=least(env), seed=1)[-1][4]
        rows = np.asarray(env.replay.state.world.requests)
        completed = rows[rows["status"] == REQUEST_COMPLETED]
        assert set(rows["status"].tolist()) <= {REQUEST_OPEN, REQUEST_COMPLETED}
        summary = summarize(env.replay).summary
        span_s = completed["terminal_ms"].max() / 1000.0
        assert summary["request_throughput_rps"] == pytest.approx(len(completed) / span_s)
        good_frac.append(info["total_good"] / info["total_arrived"])
    assert good_frac == sorted(good_frac, reverse=True)
    assert good_frac[-1] < 0.5 * good_frac[0]


# Costs


@pytest.mark.parametrize(
    "workload", [{}, {"requests": conversations(12, 4)}], ids=["list", "sessions"]
)
def test_rewards_add_up_to_the_cost_of_the_run(
    env_id: str, make_env: EnvBuilder, workload: dict[str, Any]
) -> None:
    env = make_env(env_id, **workload)
    seen = play(env, seed=2)
    steps = [step[4] for step in seen[1:]]
    world = env.replay.state.world
    paid_s = sum(pool_worker_seconds(world, pool_id) for pool_id in (PREFILL, DECODE))
    assert sum(info["gpu_hours"] for info in steps) == pytest.approx(paid_s / 3600.0)
    assert sum(info["duration_s"] for info in steps) == pytest.approx(env.replay.now_ms / 1000.0)
    rows = np.asarray(env.replay.state.world.requests)
    ttft_ms = rows["first_token_ms"] - rows["arrival_ms"]
    itl_ms = (rows["last_token_ms"] - rows["first_token_ms"]) / np.maximum(
        rows["emitted_tokens"] - 1, 1
    )
    good = (ttft_ms <= 500.0) & ((rows["emitted_tokens"] < 2) | (itl_ms <= 30.0))
    assert sum(info["good"] for info in steps) == good.sum()
    assert sum(info["violations"] for info in steps) == (~good).sum()
    assert sum(info["arrived"] for info in steps) == len(rows)
    for step in seen[1:]:
        terms = [value for name, value in step[4].items() if name.startswith("reward_")]
        assert step[1] == pytest.approx(sum(terms))


def test_open_requests_count_by_their_lateness_at_the_end(
    env_id: str, make_env: EnvBuilder
) -> None:
    # Everything at once, far more than can be served: at 0.75 s those without a token are late by
    # half of the 500 ms limit, at 10 s by more than all of it.
    requests = burst(3000, input_tokens=4000, output_tokens=400)
    info = {}
    for horizon_s in (0.75, 10.0):
        env = make_env(env_id, requests=requests, tick_s=0.5, horizon_s=horizon_s)
        seen = play(env, action=least(env), seed=1)
        info[horizon_s] = seen[-1][4]
        rows = np.asarray(env.replay.state.world.requests)
        open_without_token = int((rows["emitted_tokens"] == 0).sum())
        late_frac = min(1.0, horizon_s / 0.5 - 1.0)
        least_late = open_without_token * late_frac
        assert info[horizon_s]["violations"] >= least_late - 1e-9
        assert info[horizon_s]["violations"] <= least_late + 3000 - open_without_token


def test_churn_counts_moved_workers(make_env: EnvBuilder) -> None:
    env = make_env("aisim_gym/Disaggregated-v0")
    env.reset(seed=1)
    *_, info = env.step(np.array([2, 0]))  # (1, 2) -> (3, 1)
    assert info["churn"] == 3
    assert info["reward_churn"] == pytest.approx(-0.003)

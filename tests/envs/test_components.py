"""Observations, actions, rewards, workloads: the components of an environment and its arguments."""

import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ResetNeeded
from gymnasium.spaces.utils import flatten

from aisim_gym.envs import ScalingEnv, Targets
from aisim_gym.envs.action import ACTIONS
from aisim_gym.envs.fleet_choice import choose_fleet
from aisim_gym.envs.observation import SummaryObservation
from aisim_gym.envs.observer import OBSERVATIONS
from aisim_gym.envs.outcomes import OutcomeLedger
from aisim_gym.envs.reward import REWARDS
from aisim_gym.envs.spaces_fit import make_fitter
from aisim_gym.errors import SpecError, WorkloadError
from aisim_gym.replay import Replay, ScalingDecision
from aisim_gym.report import summarize
from aisim_gym.spec import sample_timing
from aisim_gym.workload import requests_from_arrays, write_simple_csv

EnvBuilder = Callable[..., ScalingEnv]

AGG, DISAGG = "aisim_gym/Aggregated-v0", "aisim_gym/Disaggregated-v0"


# Observation


def test_documented_table_is_the_observation(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id)
    doc = (type(env).__doc__ or "").split("## Observation Space")[1].split("##")[0]
    rows = [line.strip().strip("|").split(" | ") for line in doc.splitlines() if "|" in line][2:]
    box, part = env.observation_space, SummaryObservation(env.fleet_description)
    assert isinstance(box, spaces.Box)
    assert tuple(row[1].strip() for row in rows) == part.names
    assert tuple(row[2].strip() for row in rows) == part.units
    assert [int(row[0]) for row in rows] == list(range(len(part.names)))
    assert [float(row[3]) for row in rows] == box.low.tolist()
    assert [float(row[4]) for row in rows] == box.high.tolist()


def test_entries_have_the_values_of_the_snapshot(make_env: EnvBuilder) -> None:
    env = make_env(DISAGG)
    observation, _ = env.reset(seed=1)
    part, snapshot = SummaryObservation(env.fleet_description), env.snapshot
    seen = dict(zip(part.names, observation.tolist(), strict=True))
    traffic = snapshot.traffic
    kv_tokens = sum(fpm.sum_decode_kv_tokens for fpm in snapshot.decode.fpms)
    expected = {
        "prefill_active": 1 / 8,
        "decode_active": 2 / 8,
        "decode_kv_used": kv_tokens / (len(snapshot.decode.fpms) * 131_072),
        "request_rate": math.log1p(traffic.num_req / 10.0) / math.log1p(1000.0),
        "ttft": traffic.avg_ttft_ms / 500.0 / 4.0,
        "itl": traffic.avg_itl_ms / 30.0 / 4.0,
        "time": 10.0 / 360.0,
    }
    assert {name: seen[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_values_are_clipped_counted_and_fresh() -> None:
    box = spaces.Box(0.0, 1.0, (3,), np.float32)
    fitted, num_clipped = make_fitter(box)([-1.0, 0.5, math.inf])
    assert (fitted.tolist(), fitted.dtype, num_clipped) == ([0.0, 0.5, 1.0], np.float32, 2)


def test_nan_and_wrong_shapes_are_refused() -> None:
    box = spaces.Box(0.0, 1.0, (2,), np.float32)
    with pytest.raises(ValueError, match="entry 1 is NaN"):
        make_fitter(box)([0.0, math.nan])
    with pytest.raises(ValueError, match=r"got shape \(3,\), expected \(2,\)"):
        make_fitter(box)([0.0, 0.0, 0.0])


# Action


def test_targets_are_counted_from_the_minimum(make_env: EnvBuilder) -> None:
    env = make_env(DISAGG, min_workers=1, max_workers=5)
    assert env.action_space == spaces.MultiDiscrete([5, 5])
    env.reset(seed=1)
    assert env.action_object.decode(np.array([0, 4]), env.view) == Targets(1, 5)
    assert env.action_object.encode(Targets(3, 99), env.view).tolist() == [2, 4]
    env.step(np.array([2, 3]))
    snapshot = env.snapshot
    assert (snapshot.prefill.num_non_draining, snapshot.decode.num_non_draining) == (3, 4)


def test_deltas_stop_at_the_limits(make_env: EnvBuilder) -> None:
    env = make_env(AGG, action={"name": "deltas", "max_delta": 2}, max_workers=4)
    assert env.action_space == spaces.Discrete(5)
    env.reset(seed=1)  # 3 workers
    targets = [env.action_object.decode(np.int64(i), env.view).decode for i in range(5)]
    assert targets == [1, 2, 3, 4, 4]
    assert env.action_object.encode(Targets(None, 3), env.view) == 2


@pytest.mark.parametrize("action", [8, -1, [1, 1], 0.5, None])
def test_action_outside_the_space_is_refused(action: Any, make_env: EnvBuilder) -> None:
    env = make_env(AGG)
    env.reset(seed=1)
    with pytest.raises(ValueError, match=r"action: got .*expected an element of Discrete\(8\)"):
        env.step(action)


def test_all_choices_are_valid_without_a_gpu_limit(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id)
    env.reset(seed=1)
    mask = env.action_masks()
    assert mask.dtype == np.bool_
    assert mask.all()
    nvec = getattr(env.action_space, "nvec", None)
    assert len(mask) == (8 if nvec is None else nvec.sum())


@pytest.mark.parametrize("action", ["targets", "deltas"])
def test_masks_need_an_episode(action: str, env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id, action=action)
    with pytest.raises(ResetNeeded, match="call reset"):
        env.action_masks()
    env.reset(seed=1)
    assert env.action_masks().all()
    env.close()
    with pytest.raises(ResetNeeded, match="call reset"):
        env.action_masks()


def test_gpu_limit_masks_choices_and_refuses_what_exceeds_it(make_env: EnvBuilder) -> None:
    env = make_env(DISAGG, max_gpus=5)
    env.reset(seed=1)
    assert env.action_masks().tolist() == [True] * 4 + [False] * 4 + [True] * 4 + [False] * 4
    *_, info = env.step(np.array([2, 2]))  # 3 + 3 GPUs
    assert (info["action_refused"], info["churn"]) == (1, 0)
    *_, info = env.step(np.array([2, 1]))
    assert (info["action_refused"], info["churn"]) == (0, 2)


# Any part


NAMED_PARTS: list[dict[str, Any]] = [
    *({"observation": name} for name in OBSERVATIONS),
    *({"action": name} for name in ACTIONS),
    *({"reward": name} for name in REWARDS),
]


@pytest.mark.parametrize("arguments", NAMED_PARTS, ids=str)
def test_named_part_survives_json_and_pickle(
    env_id: str, arguments: dict[str, Any], make_env: EnvBuilder
) -> None:
    """F17."""
    env = make_env(env_id, **arguments)
    assert env.spec is not None
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    steps = []
    for each in (env, pickle.loads(pickle.dumps(env)), again):
        observation, _ = each.reset(seed=4)
        each.action_space.seed(4)
        seen = [np.asarray(flatten(each.observation_space, observation)).tolist()]
        for _ in range(3):
            observation, reward, *_, info = each.step(each.action_space.sample())
            seen.append(
                [np.asarray(flatten(each.observation_space, observation)).tolist(), reward, info]
            )
        steps.append(seen)
    assert steps[0] == steps[1] == steps[2]


# Reward and outcomes


def test_weight_that_is_negative_is_refused(env_id: str, make_env: EnvBuilder) -> None:
    with pytest.raises(ValueError, match=r"violation_weight: got -1, expected a finite number"):
        make_env(env_id, reward={"name": "cost_slo", "violation_weight": -1})


def test_requests_are_counted_once_in_the_step_in_which_they_end() -> None:
    at_ms = np.arange(200) * 50.0
    requests = requests_from_arrays(at_ms, [500] * 200, [10 + 7 * (i % 9) for i in range(200)])
    replay = Replay({"fleet": {"kind": "agg"}}, requests, initial_tick_ms=100.0)
    ledger = OutcomeLedger(ttft_slo_ms=33.0, itl_slo_ms=11.3)
    steps = []
    while (snapshot := replay.advance_to_tick()) is not None:
        steps.append(ledger.count_step(replay.state)[0])
        rows = np.asarray(replay.state.world.requests)
        assert sum(step.completed for step in steps) == (rows["status"] == 1).sum()
        assert sum(step.arrived for step in steps) == (at_ms <= snapshot.now_ms).sum()
        replay.apply(ScalingDecision(None, None, snapshot.now_ms + 100.0))
    steps.append(ledger.count_step(replay.state)[0])
    rows = np.asarray(replay.state.world.requests)
    ttft_ms = rows["first_token_ms"] - rows["arrival_ms"]
    gaps = np.maximum(rows["emitted_tokens"] - 1, 1)
    itl_ms = (rows["last_token_ms"] - rows["first_token_ms"]) / gaps
    good = (ttft_ms <= 33.0) & (itl_ms <= 11.3)
    assert 0 < good.sum() < 200
    assert sum(step.good for step in steps) == good.sum()
    overdue_s = np.maximum(ttft_ms - 33.0, 0.0).sum() / 1000.0
    assert sum(step.overdue_s for step in steps) == pytest.approx(overdue_s)


def test_bounds_of_the_limits_are_inclusive() -> None:
    requests = requests_from_arrays([0.0, 1000.0], [500, 500], [1, 30])
    replay = Replay({"fleet": {"kind": "agg"}}, requests)
    replay.advance_to_tick()
    rows = np.asarray(replay.state.world.requests)
    ttft_ms = float((rows["first_token_ms"] - rows["arrival_ms"]).max())
    itl_ms = float(rows["last_token_ms"][1] - rows["first_token_ms"][1]) / 29
    assert OutcomeLedger(ttft_ms, itl_ms).count_step(replay.state)[0].good == 2
    below = (np.nextafter(ttft_ms, 0.0), np.nextafter(itl_ms, 0.0))
    assert OutcomeLedger(below[0], itl_ms).count_step(replay.state)[0].good < 2
    assert OutcomeLedger(ttft_ms, below[1]).count_step(replay.state)[0].good == 1


# Workload and arguments


def write_trace(path: Path) -> None:
    rows = [
        {"timestamp": 1000 * i, "input_length": 400, "output_length": 10, "hash_ids": [i]}
        for i in range(60)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_trace_file_is_played_and_sliced(env_id: str, tmp_path: Path, make_env: EnvBuilder) -> None:
    folder = tmp_path / "dir with spaces, ünïcode"
    folder.mkdir()
    write_trace(folder / "trace.jsonl")
    env = make_env(env_id, trace=str(folder / "trace.jsonl"))
    env.reset(seed=1)
    assert len(env.replay.state.world.requests) == 60
    env.reset(options={"start_s": 20.0, "duration_s": 10.0})
    rows = np.asarray(env.replay.state.world.requests)
    assert rows["arrival_ms"].tolist() == [1000.0 * i for i in range(10)]
    env.reset()
    assert len(env.replay.state.world.requests) == 60  # options are not remembered
    with pytest.raises(ValueError, match=r"options.start_s: got 500.0, expected less than 59"):
        env.reset(options={"start_s": 500.0})


def test_format_of_trace_files_is_detected_if_it_is_not_given(
    tmp_path: Path, make_env: EnvBuilder
) -> None:
    path = tmp_path / "trace.csv"
    write_simple_csv(requests_from_arrays([0.0, 5.0], [10, 20], [3, 4]), path)
    env = make_env(AGG, workload={"trace_files": [str(path)]})
    env.reset(seed=1)
    assert np.asarray(env.replay.state.world.requests)["input_tokens"].tolist() == [10, 20]
    with pytest.raises(WorkloadError, match="failed to parse line 1"):
        make_env(AGG, workload={"trace_files": [str(path)], "trace_format": "mooncake"})
    with pytest.raises(SpecError, match=r"^workload.time_unit is for mooncake, .*'csv'"):
        make_env(AGG, workload={"trace_files": [str(path)], "time_unit": "s"})


def test_fields_of_traffic_need_no_kind(make_env: EnvBuilder) -> None:
    fields = {"arrivals": {"kind": "poisson", "rate_rps": 2.0}, "lengths": "azure-conv"}
    seen = []
    for workload in (fields, {"kind": "traffic", **fields}):
        env = make_env(AGG, workload={"duration_s": 20.0, **workload})
        env.reset(seed=3)
        seen.append(np.asarray(env.replay.state.world.requests)["arrival_ms"].tolist())
    assert seen[0] == seen[1]


def test_environment_with_a_trace_and_a_timing_table_survives_json(
    tmp_path: Path, make_env: EnvBuilder
) -> None:
    write_trace(tmp_path / "trace.jsonl")
    timing = sample_timing(lambda new, prefix: 6.0 + 0.02 * new, lambda n, context: 6.0 + 0.01 * n)
    env = make_env(
        AGG,
        engine={"timing_model": timing.model_dump(mode="json")},
        trace=str(tmp_path / "trace.jsonl"),
    )
    assert env.spec is not None
    again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))
    objects = make_env(AGG, engine={"timing_model": timing}, trace=tmp_path / "trace.jsonl")
    assert len({each.reset(seed=1)[0].tobytes() for each in (env, again, objects)}) == 1
    assert len({each.step(1)[0].tobytes() for each in (env, again, objects)}) == 1


def test_workers_at_the_start_are_an_option(make_env: EnvBuilder) -> None:
    env = make_env(DISAGG)
    env.reset(options={"prefill_workers": 3, "decode_workers": np.int64(4)})
    assert (len(env.snapshot.prefill.active_ids), len(env.snapshot.decode.active_ids)) == (3, 4)
    env.reset()
    assert (len(env.snapshot.prefill.active_ids), len(env.snapshot.decode.active_ids)) == (1, 2)
    with pytest.raises(ValueError, match=r"^options.decode_workers: got 12, expected 1 "):
        env.reset(options={"decode_workers": 12})


@pytest.mark.parametrize(
    ("max_workers", "error", "message"),
    [
        ({"prefill": 4, "decode": 1}, ValueError, r"initial_workers.decode: got 2 \(the default\)"),
        ({"prefill": 4, "decode": None}, TypeError, "max_workers.decode: got None, expected an in"),
    ],
)
def test_limits_of_a_pool_that_the_start_does_not_keep_are_refused(
    max_workers: Any, error: type[Exception], message: str, make_env: EnvBuilder
) -> None:
    with pytest.raises(error, match=f"^{message}"):
        make_env(DISAGG, max_workers=max_workers)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"worker": 2}, "unknown option 'worker'; did you mean `workers`"),
        (
            {"workers": 9},
            r"options.workers: got 9, expected 1 \(min_workers\) to 8 \(max_workers\)",
        ),
        ({"start_s": -1.0}, "start_s: got -1.0"),
        ({"duration_s": 0.0}, "duration_s: got 0.0"),
        ({"start_s": math.nan}, "start_s: got nan"),
    ],
)
def test_wrong_options_are_refused(
    options: dict[str, Any], message: str, make_env: EnvBuilder
) -> None:
    with pytest.raises(ValueError, match=message):
        make_env(AGG).reset(options=options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 2.0}, "options.workers: got 2.0, expected an integer"),
        ({"workers": True}, "options.workers: got True, expected an integer"),
        ({"start_s": "x"}, "options.start_s: got 'x', expected a number >= 0"),
        ({"duration_s": None}, "options.duration_s: got None, expected a number > 0"),
        (5, "options: got 5, expected a mapping or None"),
        ([], r"options: got \[\], expected a mapping or None"),
    ],
)
def test_options_of_a_wrong_type_are_refused(
    options: Any, message: str, make_env: EnvBuilder
) -> None:
    with pytest.raises(TypeError, match=f"^{message}$"):
        make_env(AGG).reset(options=options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observation": "summry"}, r"unknown observation 'summry'; did you mean `summary`"),
        (
            {"action": {"name": "deltas", "max_dleta": 1}},
            r"action 'deltas': unknown parameter 'max_dleta'; did you mean `max_delta`\?",
        ),
        ({"action": {"name": "box", "x": 1}}, r"action 'box': .* 'x' \(known: none\)"),
        ({"reward": {"weight": 1}}, r"reward: got no `name` beside .* \(known: cost_slo, "),
        ({"reward": 5}, "reward: got 5, expected a name, a mapping .* or an object with __call__"),
        ({"observation": SummaryObservation}, "observation: got <class .*, expected a name"),
        ({"horizon_s": 10.0}, "horizon_s: got 10.0, expected .* larger than tick_s"),
        ({"horizon_s": math.inf}, "horizon_s: got inf"),
        ({"tick_s": 0.0}, "tick_s: got 0.0, expected >= 0.001"),
        ({"tick_s": 1e-20}, "tick_s: got 1e-20, expected >= 0.001"),
        ({"max_workers": 2}, r"initial_workers: got 3 \(the default\), expected 1 \(min_w.* to 2"),
        ({"initial_workers": 9}, r"^initial_workers: got 9, expected 1 \(min_workers\) to 8"),
        ({"fleet": choose_fleet("agg") | {"num_workers": 9}}, r"^fleet.num_workers: got 9, expec"),
        ({"max_workers": None}, "max_workers: got None"),
        ({"max_gpus": 2}, "max_gpus: got 2, expected at least the 3 GPUs"),
        ({"min_workers": 0}, "min_workers: got 0, expected >= 1"),
        ({"fleet": {"kind": "disagg"}}, "fleet"),
        ({"workload": {"base_rate": 1.0}}, "unknown field `base_rate`"),
        ({"workload": "stedy"}, r"unknown workload 'stedy'; did you mean `steady`\? \(presets: a"),
        ({"workload": "my.csv"}, r"unknown workload 'my.csv' \(.*; a trace file is given as `trac"),
        ({"workload": {"lengths": "azure-code"}}, "^workload.generator: missing field `arrivals`"),
        ({"workload": {}, "trace": "x.jsonl"}, "got more than one of workload, trace and"),
        ({"trace": "/no/such/trace.jsonl"}, "/no/such/trace.jsonl"),
        ({"requests": requests_from_arrays([], [], [])}, "requests: got no requests"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: dict[str, Any], message: str, make_env: EnvBuilder
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make_env(AGG, **arguments)


@pytest.mark.parametrize("name", ["ttft_slo_ms", "itl_slo_ms"])
@pytest.mark.parametrize(
    ("limit_ms", "error", "message"),
    [
        (None, TypeError, "got None, expected a number > 0 and finite"),
        ("500", TypeError, "got '500', expected a number > 0 and finite"),
        (True, TypeError, "got True, expected a number > 0 and finite"),
        (0, ValueError, "got 0, expected > 0 and finite"),
        (-1.5, ValueError, "got -1.5, expected > 0 and finite"),
        (math.nan, ValueError, "got nan, expected > 0 and finite"),
        (math.inf, ValueError, "got inf, expected > 0 and finite"),
    ],
)
def test_latency_limit_must_be_a_positive_number(
    name: str, limit_ms: Any, error: type[Exception], message: str, make_env: EnvBuilder
) -> None:
    with pytest.raises(error, match=rf"^{name}: {message} \(ms\)"):
        make_env(AGG, **{name: limit_ms})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"requests": [1]}, r"requests: got list, expected a RequestTable \(.*\) or None"),
        ({"tick_s": "3"}, "tick_s: got '3', expected a number >= 0.001 and finite"),
        ({"horizon_s": "9"}, "horizon_s: got '9', expected a number larger than tick_s, or None"),
        (
            {"max_workers": 8.5},
            "max_workers: got 8.5, expected an integer >= min_workers: .* action space",
        ),
        ({"min_workers": "1"}, "min_workers: got '1', expected an integer >= 0"),
        ({"max_gpus": 7.5}, "max_gpus: got 7.5, expected an integer >= 1, or None"),
        ({"fleet": 5}, "fleet: got 5, expected a table with `kind`, or None"),
        ({"workload": 5}, "workload: got 5, expected the name of a preset, a mapping or None"),
        ({"trace": 5}, "trace: got 5, expected a path or None"),
        ({"capture_details": "no"}, "capture_details: got 'no', expected True or False"),
        (
            {"action": {"name": "deltas", "max_delta": 1.5}},
            "action 'deltas': max_delta: got 1.5, expected an integer >= 1",
        ),
        (
            {"reward": {"name": "cost_slo", "gpu_hour_weight": "1"}},
            "reward 'cost_slo': gpu_hour_weight: got '1', expected a number >= 0 and finite",
        ),
    ],
)
def test_arguments_of_a_wrong_type_are_refused(
    arguments: dict[str, Any], message: str, make_env: EnvBuilder
) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):  # Gymnasium appends the arguments
        make_env(AGG, **arguments)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            {"workload": {"peak": 1}},
            "workload.generator.peak: unknown field `peak`, expected one of",
        ),
        (
            {"workload": {"peak_rate_rps": 1}},
            "workload.generator.peak_rate_rps must be at least base_rate_rps, got 1 and 3",
        ),
    ],
)
def test_errors_in_tables_begin_with_the_argument(
    arguments: dict[str, Any], line: str, make_env: EnvBuilder
) -> None:
    with pytest.raises(SpecError) as raised:
        make_env(AGG, **arguments)
    assert str(raised.value).startswith(line)


def test_numbers_of_numpy_are_numbers(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(
        env_id,
        ttft_slo_ms=np.float32(500.0),
        itl_slo_ms=np.int64(30),
        tick_s=np.float32(10.0),
        max_workers=np.int64(8),
    )
    plain = make_env(env_id)
    assert env.observation_space == plain.observation_space
    assert env.action_space == plain.action_space
    assert np.array_equal(env.reset(seed=1)[0], plain.reset(seed=1)[0])


def test_gpu_hours_are_those_of_the_report(env_id: str, make_env: EnvBuilder) -> None:
    fleet = choose_fleet(make_env(env_id).kind)
    for launch in ("prefill", "decode", "engine"):
        if launch in fleet:
            fleet[launch] |= {"tensor_parallel_size": 2, "dp_size": 3}
    env = make_env(env_id, fleet=fleet)
    _, info = env.reset(seed=1)
    ended = False
    while not ended:
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        ended = terminated or truncated
    assert env.fleet_description.decode.gpus_per_worker == 6
    assert env.fleet_description.decode.dp_size == 3
    assert info["total_gpu_hours"] == pytest.approx(summarize(env.replay).summary["gpu_hours"])


def test_fleet_of_the_other_topology_is_refused(make_env: EnvBuilder) -> None:
    fleet = choose_fleet("agg")
    with pytest.raises(ValueError, match=r"fleet\.kind: got 'agg', expected 'disagg'"):
        make_env(DISAGG, fleet=fleet)


@pytest.mark.parametrize(
    ("lengths", "engine", "message"),
    [
        ((131_072, 2), {}, r"num_gpu_blocks \* block_size is 131072"),
        ((900, 200), {"max_model_len": 1000}, "max_model_len is 1000"),
        (
            (9000, 1),
            {"enable_chunked_prefill": False},
            "max_num_batched_tokens without chunked prefill is 8192",
        ),
    ],
)
def test_request_that_can_never_run_is_refused_when_the_environment_is_built(
    lengths: tuple[int, int],
    engine: dict[str, Any],
    message: str,
    env_id: str,
    make_env: EnvBuilder,
) -> None:
    fleet = choose_fleet(make_env(env_id).kind)
    for launch in ("prefill", "decode", "engine"):
        if launch in fleet:
            fleet[launch]["engine"] |= engine
    requests = requests_from_arrays([0.0, 1.0], [10, lengths[0]], [10, lengths[1]])
    with pytest.raises(WorkloadError, match=rf"1 request\(s\) can never run .* {message}"):
        make_env(env_id, fleet=fleet, requests=requests)


def test_worker_of_an_impossible_request_is_named(make_env: EnvBuilder) -> None:
    requests = requests_from_arrays([0.0], [200_000], [1])
    with pytest.raises(WorkloadError, match="can never run on an aggregated worker, the first"):
        make_env(AGG, requests=requests)
    with pytest.raises(WorkloadError, match="can never run on a prefill worker, the first"):
        make_env(DISAGG, requests=requests)


def test_longest_request_that_fits_runs(env_id: str, make_env: EnvBuilder) -> None:
    requests = requests_from_arrays([0.0], [131_072 - 9], [10])
    env = make_env(env_id, requests=requests, tick_s=60.0)
    _, info = env.reset(seed=1)
    terminated = False
    while not terminated:
        _, _, terminated, truncated, info = env.step(env.action_space.sample())
        assert not truncated
    assert info["total_completed"] == 1


def test_generator_that_can_exceed_the_capacity_is_refused(make_env: EnvBuilder) -> None:
    with pytest.raises(WorkloadError, match="workload: the longest request it can produce"):
        make_env(AGG, workload={"mean_input_tokens": 20_000.0})


def test_seed_in_the_generator_fixes_the_requests(env_id: str, make_env: EnvBuilder) -> None:
    env = make_env(env_id, workload={"duration_s": 30.0, "seed": 4})
    sizes = []
    for seed in (1, 2):
        env.reset(seed=seed)
        sizes.append(np.asarray(env.replay.state.world.requests)["arrival_ms"].tolist())
    assert sizes[0] == sizes[1]

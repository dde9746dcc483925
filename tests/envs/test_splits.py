"""Training, validation and test episodes never share traffic (env-checklist 32)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aisim_gym.envs import ScalingEnv
from aisim_gym.envs.episode_workload import NUM_HELD_OUT, FixedWorkload, make_workload
from aisim_gym.errors import SpecError, WorkloadError
from aisim_gym.spec import WorkloadSpec
from aisim_gym.workload import load_workload, requests_from_arrays

EnvBuilder = Callable[..., ScalingEnv]

TRAFFIC: dict[str, Any] = {
    "duration_s": 20.0,
    "base_rate_rps": 1.0,
    "peak_rate_rps": {"uniform": [2.0, 4.0]},
}
AGG = "aisim_gym/Aggregated-v0"


def arrivals(env: ScalingEnv, **reset: Any) -> tuple[float, ...]:
    env.reset(**reset)
    return tuple(np.asarray(env.replay.state.world.requests)["arrival_ms"].tolist())


def every_second(count: int) -> Any:
    return requests_from_arrays(1000.0 * np.arange(count), [10] * count, [2] * count)


# Generated traffic: by seed


def test_held_out_episodes_are_numbered_and_the_same_for_everybody(make_env: EnvBuilder) -> None:
    env = make_env(AGG, workload=TRAFFIC, split="validation")
    assert env.num_episodes == NUM_HELD_OUT
    first = arrivals(env, seed=1, options={"episode": 7})
    assert arrivals(env, seed=2, options={"episode": 7}) == first
    assert arrivals(env, options={"episode": 8}) != first
    again = make_env(AGG, workload=TRAFFIC, split="validation")
    assert arrivals(again, options={"episode": 7}) == first


def test_splits_share_no_episode(make_env: EnvBuilder) -> None:
    seen: dict[str, set[tuple[float, ...]]] = {}
    for split in ("train", "validation", "test"):
        env = make_env(AGG, workload=TRAFFIC, split=split)
        numbers: list[dict[str, Any]] = [{"episode": i} for i in range(20)]
        seen[split] = {arrivals(env, options=options) for options in numbers}
        seen[split] |= {arrivals(env, seed=i) for i in range(20)}
    assert len(seen["train"]) == 40
    assert not seen["train"] & seen["validation"]
    assert not seen["train"] & seen["test"]
    assert not seen["validation"] & seen["test"]


def test_episode_without_a_number_is_one_of_the_numbered(make_env: EnvBuilder) -> None:
    env = make_env(AGG, workload=TRAFFIC, split="test")
    numbered = {arrivals(env, options={"episode": i}) for i in range(NUM_HELD_OUT)}
    assert {arrivals(env, seed=5), arrivals(env), arrivals(env)} <= numbered


def test_episode_that_is_not_there_is_refused(make_env: EnvBuilder) -> None:
    env = make_env(AGG, workload=TRAFFIC, split="test")
    with pytest.raises(ValueError, match=r"options.episode: got 100, expected 0 to 99"):
        env.reset(options={"episode": 100})
    with pytest.raises(ValueError, match=r"options.episode: got -1, expected >= 0"):
        env.reset(options={"episode": -1})


def test_traffic_without_a_request_is_an_episode(make_env: EnvBuilder) -> None:
    env = make_env(AGG, workload={**TRAFFIC, "base_rate_rps": 1e-6, "peak_rate_rps": 1e-6})
    env.reset(seed=1)
    _, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert (terminated, truncated) == (True, False)
    assert reward == -0.001 * info["churn"]  # no time passes: only the action is paid for
    assert (info["now_s"], info["total_arrived"], info["is_success"]) == (0.0, 0, True)


def test_range_that_could_draw_invalid_traffic_is_refused_at_once(make_env: EnvBuilder) -> None:
    crossing = {**TRAFFIC, "base_rate_rps": {"uniform": [1.0, 3.0]}}
    with pytest.raises(SpecError, match="peak_rate_rps must be at least base_rate_rps"):
        make_env(AGG, workload=crossing)


def test_range_that_could_draw_too_long_requests_is_refused_at_once(make_env: EnvBuilder) -> None:
    long = {**TRAFFIC, "mean_input_tokens": {"uniform": [100.0, 20_000.0]}}
    with pytest.raises(WorkloadError, match="longest request it can produce"):
        make_env(AGG, workload=long)


# A [workload] table with a trace


def write_trace(folder: Path) -> dict[str, Any]:
    rows = [f"{i // 2},{100 + i},{10 + i}" for i in range(20)]
    path = folder / "trace.csv"
    path.write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]), "utf-8")
    return {"trace_files": [str(path)], "trace_format": "csv"}


def test_closed_loop_is_refused(tmp_path: Path, make_env: EnvBuilder) -> None:
    with pytest.raises(ValueError, match=r"^workload\.replay_concurrency: got 3, expected none: "):
        make_env(AGG, workload={**write_trace(tmp_path), "replay_concurrency": 3})


@pytest.mark.filterwarnings("ignore:.* requests are longer than allowed")
@pytest.mark.parametrize(
    "fields",
    [
        {"arrival_speedup_ratio": 2.0},
        {"spread_ms": 100.0},
        {"start_s": 5.0},
        {"duration_s": 5.0},
        {"rate_scale": 2.0},
        {"rate_scale": 2.0, "rate_seed": 1},
        {"max_input_tokens": 109},
        {"max_total_tokens": 129, "overlong": "clip"},
    ],
)
def test_every_other_field_of_the_table_counts(
    fields: dict[str, Any], tmp_path: Path, make_env: EnvBuilder
) -> None:
    def play(table: dict[str, Any]) -> list[tuple[Any, ...]]:
        env = make_env(AGG, workload=table)
        env.reset(seed=1)
        columns = ("arrival_ms", "input_tokens", "output_tokens")
        requests = np.asarray(env.replay.state.world.requests)
        return list(zip(*(requests[name].tolist() for name in columns), strict=True))

    table = write_trace(tmp_path)
    wanted = load_workload(WorkloadSpec.from_data({**table, **fields}))
    played = play({**table, **fields})
    assert [row[0] for row in played] == wanted.arrival_ms.tolist()
    assert [row[1:] for row in played] == list(
        zip(wanted.input_tokens.tolist(), wanted.output_tokens.tolist(), strict=True)
    )
    assert played != play(table)


def test_synthetic_prefixes_are_blocks_of_the_engine(make_env: EnvBuilder) -> None:
    synthetic = {
        "kind": "synthetic",
        "input_tokens": 128,
        "output_tokens": 2,
        "request_count": 4,
        "request_rate": 1.0,
        "shared_prefix_ratio": 0.5,
        "num_prefix_groups": 1,
    }
    workload = make_workload(synthetic, engine_block_size=32)
    table = workload.draw(np.random.default_rng(1)).requests
    assert table.trace_block_size == 32
    assert table.prompt_starts.tolist() == [0, 2, 4, 6, 8]
    env = make_env(AGG, workload=synthetic, engine={"block_size": 32})
    assert len(arrivals(env, seed=1)) == 4


# A fixed workload: by time


def test_blocks_of_time_are_three_fifths_one_fifth_and_one_fifth() -> None:
    random = np.random.default_rng(1)
    counts = {
        split: len(make_workload(None, requests=every_second(101), split=split).draw(random)[0])
        for split in ("train", "validation", "test")
    }
    assert counts == {"train": 60, "validation": 20, "test": 21}


def test_windows_of_training_begin_anywhere_and_stay_in_the_blocks() -> None:
    blocks = {"train": [[0.0, 20.0], [60.0, 90.0]], "test": [[30.0, 60.0]]}
    workload = FixedWorkload(every_second(101), "trace", "train", blocks, 10.0)
    assert workload.num_episodes is None
    random = np.random.default_rng(2)
    starts = []
    for _ in range(300):
        requests, duration_s = workload.draw(random)
        assert duration_s == 10.0
        first = int(requests.row[0])
        assert 9 <= len(requests) <= 11
        assert first + len(requests) <= 20 or (first >= 60 and first + len(requests) <= 91)
        starts.append(first)
    assert len({start for start in starts if start < 20}) >= 9
    assert len({start for start in starts if start >= 60}) >= 18


def test_windows_of_tests_lie_side_by_side_and_are_numbered() -> None:
    blocks = {"train": [[0.0, 20.0]], "test": [[30.0, 55.0]]}
    workload = FixedWorkload(every_second(101), "trace", "test", blocks, 10.0)
    random = np.random.default_rng(2)
    assert workload.num_episodes == 2
    assert [int(workload.draw(random, i).requests.row[0]) for i in range(2)] == [30, 40]
    assert {int(workload.draw(random).requests.row[0]) for _ in range(20)} == {30, 40}


def test_asked_part_counts_from_the_start_of_the_episode_and_stays_in_it(
    make_env: EnvBuilder,
) -> None:
    blocks = {"train": [[0.0, 20.0]], "test": [[30.0, 55.0]]}
    env = make_env(AGG, requests=every_second(101), split="test", blocks=blocks, episode_s=10.0)
    env.reset(options={"episode": 1, "start_s": 2.0, "duration_s": 3.0})
    rows = np.asarray(env.replay.state.world.requests)
    assert rows["source_index"].tolist() == [42, 43, 44]
    assert rows["arrival_ms"].tolist() == [0.0, 1000.0, 2000.0]
    env.reset(options={"episode": 0, "start_s": 8.0, "duration_s": 50.0})
    assert np.asarray(env.replay.state.world.requests)["source_index"].tolist() == [38, 39]
    with pytest.raises(ValueError, match=r"options.episode: got 2, expected 0 to 1"):
        env.reset(options={"episode": 2, "start_s": 0.0, "duration_s": 3.0})
    with pytest.raises(ValueError, match=r"options.start_s: got 20.0, expected less than 10.0"):
        env.reset(options={"start_s": 20.0})  # that is after the window


def test_part_up_to_the_end_has_the_last_request_and_a_quiet_part_none(
    make_env: EnvBuilder,
) -> None:
    env = make_env(AGG, requests=requests_from_arrays([0.0, 5000.0, 10_000.0], [10] * 3, [2] * 3))
    assert arrivals(env, options={"duration_s": 10.0}) == (0.0, 5000.0, 10_000.0)
    assert arrivals(env, options={"duration_s": 5.0}) == (0.0,)
    assert arrivals(env, options={"start_s": 6.0, "duration_s": 3.0}) == ()


def test_real_numbers_for_a_whole_one_are_refused_at_once(make_env: EnvBuilder) -> None:
    lengths = {"kind": "named", "name": "azure-conv"}
    workload = {
        "kind": "traffic",
        "duration_s": 60.0,
        "arrivals": {"kind": "poisson", "rate_rps": 3.0},
        "lengths": {**lengths, "max_output_tokens": {"uniform": [200, 800]}},
    }
    with pytest.raises(SpecError, match=r"max_output_tokens.*`200.0`.*integers draws whole ones"):
        make_env(AGG, workload=workload)
    workload["lengths"] = {**lengths, "max_output_tokens": {"integers": [200, 800]}}
    make_env(AGG, workload=workload).reset(seed=1)


def test_whole_workload_is_one_episode(make_env: EnvBuilder) -> None:
    env = make_env(AGG, requests=every_second(20))
    assert env.num_episodes == 1
    assert arrivals(env, options={"episode": 0}) == arrivals(env)
    with pytest.raises(ValueError, match=r"options.episode: got 1, expected 0 to 0"):
        env.reset(options={"episode": 1})


def test_seed_in_the_workload_makes_it_fixed(make_env: EnvBuilder) -> None:
    fixed = {"duration_s": 40.0, "base_rate_rps": 2.0, "peak_rate_rps": 4.0, "seed": 3}
    env = make_env(AGG, workload=fixed, split="train", episode_s=10.0)
    whole = make_env(AGG, workload=fixed)
    assert arrivals(whole, seed=1) == arrivals(whole, seed=2)
    assert arrivals(env, seed=1) != arrivals(env, seed=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "eval"}, "split: got 'eval', expected None or one of: train, validation, test"),
        ({"episode_s": 50.0, "split": "test"}, r"expected at most 20.*the block from 80.0 s"),
        ({"episode_s": 0.0}, "episode_s: got 0.0, expected a finite number > 0"),
        ({"blocks": {"train": [[0.0, 200.0]]}}, r"blocks.train\[0\]: got \[0.0, 200.0\]"),
        (
            {"blocks": {"train": [[0.0, 50.0]], "test": [[40.0, 60.0]]}, "split": "train"},
            "expected blocks that do not overlap",
        ),
        ({"blocks": {"dev": [[0.0, 50.0]]}}, "blocks: got 'dev', expected names out of"),
        ({"blocks": {"train": [[0.0, 50.0]]}, "split": "test"}, "got none of split 'test'"),
    ],
)
def test_bad_division_is_refused(
    arguments: dict[str, Any], message: str, make_env: EnvBuilder
) -> None:
    with pytest.raises(ValueError, match=message):
        make_env(AGG, requests=every_second(101), **arguments)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (
            {"train": [0, 50]},
            r"blocks.train\[0\]: got 0, expected \[start_s, end_s\]: one block is",
        ),
        ({"train": 3}, r"blocks.train: got 3, expected a list of \[start_s, end_s\]"),
        ({"train": "all"}, "blocks.train: got 'all', expected a list"),
        ([[0, 50]], r"blocks: got \[\[0, 50\]\], expected a mapping from split to blocks"),
    ],
)
def test_blocks_of_a_wrong_type_are_refused(
    blocks: Any, message: str, make_env: EnvBuilder
) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        make_env(AGG, requests=every_second(101), blocks=blocks, split="train")


def test_blocks_may_be_an_array() -> None:
    blocks: Any = {"train": np.array([[0.0, 20.0], [60.0, 90.0]])}
    assert FixedWorkload(every_second(101), "trace", "train", blocks).num_episodes == 2


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        ({**TRAFFIC, "seed": 1}, "it has a seed"),
        ({"trace_files": ["a.csv"], "rate_scale": {"uniform": [1, 2]}}, "it has trace_files"),
        ({"kind": "synthetic", "input_tokens": {"choice": [1, 2]}}, "it is of the kind synthetic"),
    ],
)
def test_range_in_a_fixed_workload_is_refused(
    workload: dict[str, Any], reason: str, make_env: EnvBuilder
) -> None:
    place = r"workload\.(peak_rate_rps|rate_scale|input_tokens)"
    with pytest.raises(ValueError, match=rf"^{place}: got a range, .*every episode.*\({reason}\)$"):
        make_env(AGG, workload=workload)


@pytest.mark.parametrize("arguments", [{"episode_s": 5.0}, {"blocks": {"train": [[0.0, 5.0]]}}])
def test_generated_traffic_has_no_blocks(arguments: dict[str, Any], make_env: EnvBuilder) -> None:
    with pytest.raises(ValueError, match="for traffic that is generated in every episode"):
        make_env(AGG, workload=TRAFFIC, **arguments)

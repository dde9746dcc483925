"""Sessions and closed loops: when each turn arrives, and how long its prompt is.

Rules: workloads.md §7, §8, §5, worked examples 2-8 and 11 of §15. A prefill takes 10 ms, a decode
1 ms. Cases beyond the examples were asked of the reference.
"""

from typing import Any

import pytest
from support.fleets import arrivals, run_small, small_fleet
from support.sessions import by_turn, run_turns, session_table, turn

from aisim_gym.errors import ReplayError, WorkloadError
from aisim_gym.replay import Replay, StepEnd
from aisim_gym.report import summarize
from aisim_gym.spec import ReplaySpec, SyntheticSpec
from aisim_gym.workload import generate_synthetic


def worker(concurrency: int | None = None, **engine: Any) -> ReplaySpec:
    """One aggregated worker; a closed loop with ``concurrency``."""
    workload = {"replay_concurrency": concurrency}
    return small_fleet(workers=1, engine=engine, workload=workload)


def pair(concurrency: int | None = None, **parts: Any) -> ReplaySpec:
    """One prefill and one decode worker."""
    workload = {"replay_concurrency": concurrency}
    return small_fleet(prefill=1, decode=1, workload=workload, **parts)


def synthetic_run(spec: ReplaySpec, ratio: float = 1.0, **fields: Any) -> list[float]:
    """Return the arrivals of a synthetic workload of 8-token prompts and 3-token outputs."""
    generator = SyntheticSpec(input_tokens=8, output_tokens=3, **fields)
    run = run_small(spec, generate_synthetic(generator, ratio, 4))
    return [float(at_ms) for at_ms in sorted(run.column("arrival_time_ms"))]


# Worked examples


def test_turn_comes_its_authored_gap_after_the_end_of_the_one_before() -> None:
    """Example 2: stamps 0 and 30, the first turn ends at 10."""
    run = run_turns(worker(), [turn("a", timestamp=0), turn("a", timestamp=30)])
    assert by_turn(run, "arrival_time_ms") == {"a": [0.0, 40.0]}


def test_authored_delay_counts_from_the_end_of_the_turn_before() -> None:
    turns = [
        turn("a", hash_ids=[1], timestamp=0),
        turn("a", 8, hash_ids=[1, 2], delay=5),
        turn("a", 12, hash_ids=[1, 2, 3], delay=7),
    ]
    run = run_turns(worker(), turns)
    assert by_turn(run, "arrival_time_ms") == {"a": [0.0, 15.0, 32.0]}
    assert by_turn(run, "reused_input_tokens") == {"a": [0, 4, 8]}


def test_sessions_run_side_by_side() -> None:
    """Example 3; an authored delay wins over the stamp."""
    turns = [
        turn("a", timestamp=0),
        turn("b", timestamp=3),
        turn("a", timestamp=50),
        turn("b", timestamp=60, delay=1.5),
    ]
    run = run_turns(worker(), turns)
    assert by_turn(run, "arrival_time_ms") == {"a": [0.0, 60.0], "b": [3.0, 21.5]}
    assert by_turn(run, "terminal_time_ms")["b"][0] == 20.0


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (1.0, [0.0, 4.0, 27.0, 28.0, 54.0, 55.0]),
        (2.0, [0.0, 2.0, 24.5, 25.5, 49.0, 50.0]),
    ],
)
def test_synthetic_sessions_think_between_turns(ratio: float, expected: list[float]) -> None:
    """Example 4; a speed-up divides starts and think times, not what the engine does."""
    fields = {"request_count": 2, "turns_per_session": 3, "inter_turn_delay_ms": 5.0}
    assert synthetic_run(worker(), ratio, arrival_interval_ms=4.0, **fields) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [(worker(2), [0.0, 0.0, 12.0, 12.0, 24.0]), (pair(2), [0.0, 0.0, 13.0, 13.0, 26.0])],
    ids=["agg", "disagg"],
)
def test_list_in_a_closed_loop_keeps_so_many_requests_in_flight(
    spec: ReplaySpec, expected: list[float]
) -> None:
    """Example 5."""
    assert synthetic_run(spec, request_count=5) == expected


@pytest.mark.parametrize(
    ("concurrency", "sessions", "think_ms", "expected"),
    [
        (2, 3, 50.0, [0.0, 0.0, 62.0, 62.0, 74.0, 136.0]),
        (1, 2, 5.0, [0.0, 17.0, 29.0, 46.0]),
    ],
)
def test_session_in_a_closed_loop_keeps_its_place_while_it_thinks(
    concurrency: int, sessions: int, think_ms: float, expected: list[float]
) -> None:
    """Example 6."""
    fields = {"turns_per_session": 2, "inter_turn_delay_ms": think_ms}
    assert synthetic_run(worker(concurrency), request_count=sessions, **fields) == expected


def test_closed_loop_takes_sessions_in_the_order_of_the_file() -> None:
    """Example 7: stamps are ignored."""
    run = run_turns(worker(1), [turn("b", timestamp=500), turn("a", timestamp=0)])
    assert by_turn(run, "arrival_time_ms") == {"a": [10.0], "b": [0.0]}


def test_session_goes_on_after_a_turn_that_was_rejected() -> None:
    """Example 8."""
    turns = [turn("a", 40, timestamp=0), turn("a", delay=3)]
    run = run_turns(worker(num_gpu_blocks=8), turns)
    assert by_turn(run, "terminal_status") == {"a": ["rejected", "completed"]}
    assert by_turn(run, "arrival_time_ms") == {"a": [0.0, 3.0]}


DELTAS = [turn("a", 4, 2, [1], timestamp=0), turn("a", 4, 1, [2], delay=5)]
DELTAS += [turn("a", 3, 1, [3], delay=5)]


def test_delta_turn_repeats_all_prompts_and_outputs_before_it() -> None:
    """Example 11."""
    run = run_turns(worker(), DELTAS, is_delta=True)
    assert by_turn(run, "input_length") == {"a": [4, 10, 14]}
    assert by_turn(run, "arrival_time_ms") == {"a": [0.0, 16.0, 31.0]}
    assert by_turn(run, "reused_input_tokens") == {"a": [0, 4, 8]}


# The end of a session


@pytest.mark.parametrize("concurrency", [None, 1])
def test_failed_turn_ends_its_session(concurrency: int | None) -> None:
    """The decode worker can never hold the first prompt; the turn behind it never comes."""
    spec = pair(concurrency, decode_engine={"num_gpu_blocks": 4})
    turns = [
        turn("a", 20, 2, timestamp=0),
        turn("a", delay=3),
        turn("b", 4, 2, timestamp=5),
        turn("b", 4, 2, delay=1),
    ]
    run = run_turns(spec, turns)
    assert by_turn(run, "terminal_status") == {"a": ["failed"], "b": ["completed", "completed"]}
    first_ms = 5.0 if concurrency is None else 10.0  # the place is free when the turn has failed
    assert by_turn(run, "arrival_time_ms")["b"] == [first_ms, 23.0]
    assert run.replay.is_done
    assert run.summary["num_requests"] == 3


def test_rejected_last_turn_gives_the_place_to_the_next_session() -> None:
    run = run_turns(worker(1, num_gpu_blocks=8), [turn("a", 40), turn("b"), turn("c", 40)])
    assert by_turn(run, "arrival_time_ms") == {"a": [0.0], "b": [0.0], "c": [10.0]}


def test_turn_refused_by_the_prefill_worker_is_followed_by_the_next() -> None:
    turns = [turn("a", 40, 2, timestamp=0), turn("a", delay=3)]
    run = run_turns(pair(prefill_engine={"num_gpu_blocks": 8}), turns)
    assert by_turn(run, "terminal_status") == {"a": ["rejected", "completed"]}
    assert by_turn(run, "arrival_time_ms") == {"a": [0.0, 3.0]}


def test_turn_without_delay_comes_at_the_instant_of_the_end_before() -> None:
    turns = [turn("b", timestamp=0), turn("a", timestamp=0), turn("b", delay=0), turn("a", delay=0)]
    run = run_turns(worker(max_num_seqs=1), turns)
    assert by_turn(run, "arrival_time_ms") == {"a": [0.0, 20.0], "b": [0.0, 10.0]}
    assert by_turn(run, "terminal_time_ms") == {"a": [20.0, 40.0], "b": [10.0, 30.0]}


def test_turns_of_one_instant_arrive_in_the_order_of_their_sessions() -> None:
    """Both second turns are due at 12; b is the first session of the file."""
    turns = [turn("b", timestamp=0), turn("a", timestamp=0), turn("a", delay=2), turn("b", delay=2)]
    run = run_turns(small_fleet(workers=2), turns)
    assert by_turn(run, "arrival_time_ms") == {"a": [0.0, 12.0], "b": [0.0, 12.0]}
    assert by_turn(run, "decode_worker_idx") == {"a": [1, 1], "b": [0, 0]}


def test_speed_up_divides_starts_and_delays() -> None:
    turns = [turn("a", timestamp=10), turn("a", timestamp=30), turn("b", timestamp=4)]
    run = run_turns(worker(), turns, ratio=2.0)
    assert by_turn(run, "arrival_time_ms") == {"a": [3.0, 30.0], "b": [0.0]}


# Delta prompts after output that was cut


@pytest.mark.parametrize(
    ("engine", "turns", "inputs", "outputs"),
    [
        ({"max_model_len": 8}, [(4, 9), (4, 1), (3, 1)], [4, 12, 15], [4, 0, 0]),
        ({"max_model_len": 14}, [(4, 9), (4, 9), (3, 1)], [4, 17, 20], [9, 0, 0]),
        ({"max_model_len": 14}, [(4, 3), (4, 9), (3, 1)], [4, 11, 17], [3, 3, 0]),
        (
            {"backend": "trtllm", "num_gpu_blocks": 8},
            [(4, 90), (4, 2), (3, 1)],
            [4, 36, 39],
            [28, 0, 0],
        ),
        ({"max_model_len": 40}, [(4, 2), (40, 2), (3, 1)], [4, 46, 49], [2, 0, 0]),
    ],
)
def test_delta_turn_continues_what_was_emitted_not_what_was_asked_for(
    engine: dict[str, Any], turns: list[tuple[int, int]], inputs: list[int], outputs: list[int]
) -> None:
    """A turn without output, rejected for example, adds its own input only."""
    rows = [
        turn("a", length, output, range(100 * at, 100 * at + 25), **start(at))
        for at, (length, output) in enumerate(turns)
    ]
    run = run_turns(worker(**engine), rows, is_delta=True)
    assert by_turn(run, "input_length") == {"a": inputs}
    assert by_turn(run, "output_length") == {"a": outputs}


def start(at: int) -> dict[str, float]:
    return {"delay": 5.0} if at else {"timestamp": 0.0}


def test_forked_session_keeps_its_own_lengths() -> None:
    spec = worker(max_model_len=9)
    replay = Replay(spec, session_table(spec, DELTAS, is_delta=True))
    replay.step()
    copy = replay.fork()
    for run in (copy, replay):
        while run.step() is not StepEnd.COMPLETE:
            pass
    assert list(summarize(copy).per_request or ()) == list(summarize(replay).per_request or ())


# Closed loops


def test_closed_loop_of_a_list_refills_in_the_instant_a_request_ends() -> None:
    spec = worker(2)
    run = run_small(spec, arrivals([0.0] * 4, output_tokens=[3, 5, 3, 3]))
    assert run.column("arrival_time_ms") == [0.0, 0.0, 12.0, 24.0]
    assert run.column("ttft_ms") == [10.0, 10.0, 11.0, 11.0]  # others decode in the same pass


def test_closed_loop_counts_rejected_requests_out_at_once() -> None:
    spec = worker(1, num_gpu_blocks=8)
    run = run_small(spec, arrivals([0.0] * 3, [40, 8, 40]))
    assert run.column("arrival_time_ms") == [0.0, 0.0, 12.0]
    assert run.column("terminal_status") == ["rejected", "completed", "rejected"]


def test_closed_loop_larger_than_the_workload_starts_everything() -> None:
    run = run_small(worker(10), arrivals([0.0] * 3))
    assert run.column("arrival_time_ms") == [0.0] * 3


def test_place_in_a_disaggregated_closed_loop_is_free_at_the_decode_end() -> None:
    """Not when the source is released."""
    spec = pair(1, transfer_gb_s=1.0)
    run = run_small(spec, arrivals([0.0] * 2))
    assert run.column("arrival_time_ms") == [0.0, 21.0]


def test_arrivals_that_are_not_placed_in_time_count_when_they_are_admitted() -> None:
    """A planner sees requests of a closed loop when they enter it."""
    run = run_small(worker(1), arrivals([0.0] * 3), [(11.0, None, None), (13.0, None, None)])
    assert [snapshot.traffic.num_req for snapshot in run.snapshots] == [1, 1]


def test_sessions_without_a_start_are_only_for_closed_loops() -> None:
    table = session_table(worker(1), [turn("a", timestamp=3), turn("b"), turn("b", delay=1)])
    assert Replay(worker(1), table).advance_to_tick() is None
    with pytest.raises(WorkloadError, match="requires first_arrival_timestamp_ms for session b: "):
        Replay(worker(), table)


def test_stuck_session_is_an_error_and_the_turns_behind_it_never_arrive() -> None:
    spec = worker(1, num_gpu_blocks=8)
    replay = Replay(spec, session_table(spec, [turn("a", 10, 24), turn("a", delay=1), turn("b")]))
    with pytest.raises(ReplayError, match=r"with 1 in-flight .*: 1, first request 1 on aggregated"):
        replay.advance_to_tick()
    assert replay.state.world.requests["is_arrived"].tolist() == [1, 0, 0]


# Records


def test_records_name_session_and_turn() -> None:
    run = run_turns(worker(), [turn("a", timestamp=0), turn("b", timestamp=1), turn("a", delay=0)])
    assert run.column("session_id") == ["a", "b", "a"]
    assert run.column("turn_index") == [0, 0, 1]
    numbers = [int(uuid.replace("-", ""), 16) for uuid in run.column("uuid")]
    assert numbers == [1, 3, 2]  # by session and turn


def test_sessions_of_one_turn_that_arrive_as_authored_are_a_plain_list() -> None:
    run = run_turns(worker(), [turn("a", timestamp=0), turn("b", timestamp=1)])
    assert run.column("session_id") == run.column("turn_index") == [None, None]
    assert run.replay.session_ids == ()


def test_turns_that_have_not_arrived_are_no_requests_of_the_run() -> None:
    spec = small_fleet(workers=1, max_sim_time_ms=12.0)
    run = run_turns(spec, [turn("a", timestamp=0), turn("a", delay=5)])
    assert run.summary["num_requests"] == 1
    assert run.column("session_id") == ["a"]
    assert run.replay.hit_time_limit

"""Optional stages in runs whose every pass can be followed by hand (replay-runtime.md §17).

A prefill takes 10 ms, a decode 1 ms. Without stages a lone request that arrives at 0 has its tokens
at 11, 12 and 13.
"""

from typing import Any

import pytest
from support.fleets import SmallRun, arrivals, run_small, small_fleet
from support.sessions import by_turn, run_turns, turn
from support.stages import (
    DETOKENIZERS,
    ENCODERS,
    NO_ENCODING_LATENCY,
    NO_LATENCY,
    TOKENIZERS,
    with_stages,
)

from aisim_gym.replay import Replay, ScalingDecision
from aisim_gym.report import summarize
from aisim_gym.spec import ReplaySpec

ALL_STAGES = {
    "encoder": ENCODERS,
    "tokenization": TOKENIZERS,
    "detokenization": DETOKENIZERS,
}


def pair(stages: dict[str, Any], **parts: Any) -> ReplaySpec:
    """One prefill and one decode worker with stages."""
    return with_stages(small_fleet(prefill=1, decode=1, **parts), **stages)


def check_columns(run: SmallRun, **expected: list[float]) -> None:
    """Assert what columns of the records are, in order of arrival."""
    assert {name: run.column(name) for name in expected} == expected


# All stages together


def test_request_crosses_all_stages_on_its_way() -> None:
    """The first two share a batch of 17 ms, the third one's takes 11; transfers take 8 ms."""
    run = run_small(pair(ALL_STAGES, transfer_gb_s=1.0), arrivals([0.0, 0.0, 5.0]))
    check_columns(
        run,
        arrival_time_ms=[0.0, 0.0, 5.0],
        encoder_ready_ms=[18.0, 18.0, 29.0],
        tokenized_ms=[21.0, 24.0, 32.0],
        prefill_admit_ms=[21.0, 31.0, 41.0],
        source_held_ms=[31.0, 41.0, 51.0],
        destination_reserved_ms=[31.0, 41.0, 51.0],
        destination_activated_ms=[39.0, 49.0, 59.0],
        decode_admit_ms=[39.0, 49.0, 59.0],
        first_token_ms=[40.75, 50.75, 60.75],
        last_token_ms=[42.75, 52.75, 62.75],
        terminal_time_ms=[42.75, 52.75, 62.75],
        ttft_ms=[40.75, 50.75, 55.75],
    )
    assert run.summary["duration_ms"] == 62.75


def test_sglang_reserves_the_destination_before_the_prompt_is_tokenized() -> None:
    run = run_small(
        pair(ALL_STAGES, transfer_gb_s=1.0, engine={"backend": "sglang"}), arrivals([0.0, 0.0])
    )
    check_columns(
        run,
        encoder_ready_ms=[18.0, 18.0],
        destination_reserved_ms=[18.0, 18.0],
        tokenized_ms=[21.0, 24.0],
        prefill_admit_ms=[21.0, 31.0],
        source_held_ms=[31.0, 41.0],
        destination_activated_ms=[39.0, 49.0],
        first_token_ms=[40.75, 50.75],
        terminal_time_ms=[42.75, 52.75],
    )


def test_trtllm_has_the_same_stages() -> None:
    engine = {"backend": "trtllm"}
    run = run_small(pair(ALL_STAGES, transfer_gb_s=1.0, engine=engine), arrivals([0.0, 0.0]))
    check_columns(
        run,
        encoder_ready_ms=[18.0, 18.0],
        tokenized_ms=[21.0, 24.0],
        prefill_admit_ms=[21.0, 31.0],
        destination_activated_ms=[39.0, 49.0],
        terminal_time_ms=[42.75, 52.75],
    )


@pytest.mark.parametrize("backend", ["vllm", "trtllm", "sglang"])
def test_stages_without_latency_give_the_times_without_stages(backend: str) -> None:
    spec = small_fleet(prefill=1, decode=2, transfer_gb_s=1.0, engine={"backend": backend})
    stages = {
        "encoder": NO_ENCODING_LATENCY,
        "tokenization": NO_LATENCY,
        "detokenization": NO_LATENCY,
    }
    requests = arrivals(
        [0.0, 3.0, 7.0, 21.5], input_tokens=[8, 5, 20, 8], output_tokens=[3, 0, 5, 9]
    )
    plain, staged = run_small(spec, requests), run_small(with_stages(spec, **stages), requests)
    assert plain.report.per_request is not None
    for name, values in plain.report.per_request.columns.items():
        assert staged.column(name) == values, name
    check_columns(
        staged, encoder_ready_ms=[0.0, 3.0, 7.0, 21.5], tokenized_ms=[0.0, 3.0, 7.0, 21.5]
    )


# Tokenization


@pytest.mark.parametrize(
    ("workers", "tokenized_ms", "prefill_admit_ms"),
    [(1, [3.0, 6.0, 9.0], [3.0, 13.0, 13.0]), (2, [3.0, 3.0, 6.0], [3.0, 3.0, 13.0])],
)
def test_prompts_wait_for_the_tokenizer_that_is_free_first(
    workers: int, tokenized_ms: list[float], prefill_admit_ms: list[float]
) -> None:
    spec = pair({"tokenization": {**TOKENIZERS, "workers": workers}})
    run = run_small(spec, arrivals([0.0, 0.0, 1.0]))
    check_columns(run, tokenized_ms=tokenized_ms, prefill_admit_ms=prefill_admit_ms)


def test_each_prefill_worker_has_tokenizers_of_its_own() -> None:
    spec = with_stages(small_fleet(prefill=2, decode=1), tokenization=TOKENIZERS)
    run = run_small(spec, arrivals([0.0, 0.0, 1.0]))
    check_columns(run, tokenized_ms=[3.0, 3.0, 6.0], prefill_worker_idx=[0, 1, 0])


def test_ranks_of_a_worker_share_its_tokenizers() -> None:
    spec = with_stages(small_fleet(prefill=1, decode=1, dp_size=2), tokenization=TOKENIZERS)
    run = run_small(spec, arrivals([0.0, 0.0]))
    check_columns(run, tokenized_ms=[3.0, 6.0], prefill_worker_idx=[0, 1])


def test_long_prompt_takes_longer_and_holds_up_those_behind_it() -> None:
    run = run_small(pair({"tokenization": TOKENIZERS}), arrivals([0.0, 0.0], [40, 8]))
    check_columns(run, tokenized_ms=[11.0, 14.0], prefill_admit_ms=[11.0, 21.0])


def test_prompt_that_is_tokenized_at_the_end_of_a_pass_joins_the_next_one() -> None:
    """Unlike an arrival at that instant (example 7): it is submitted before passes start."""
    run = run_small(pair({"tokenization": {"request_ms": 5.0}}), arrivals([0.0, 2.0, 5.0]))
    check_columns(run, tokenized_ms=[5.0, 10.0, 15.0], prefill_admit_ms=[5.0, 15.0, 15.0])


def test_draining_worker_waits_for_the_prompts_that_it_tokenizes() -> None:
    """The tick at 1 drains the second worker while the prompt placed there is tokenized."""
    spec = with_stages(small_fleet(prefill=2, decode=1, transfer_gb_s=1.0), tokenization=TOKENIZERS)
    run = run_small(spec, arrivals([0.0, 0.0, 2.0]), [(1.0, 1, None)])
    check_columns(
        run,
        prefill_worker_idx=[0, 1, 0],
        tokenized_ms=[3.0, 3.0, 6.0],
        source_held_ms=[13.0, 13.0, 23.0],
        source_released_ms=[23.0, 21.0, 31.0],
    )
    transitions = [entry for operation in run.operations for entry in operation["transitions"]]
    assert [(entry["transition"], entry["worker_id"]) for entry in transitions] == [
        ("worker_draining", 1),
        ("worker_removed", 1),
    ]
    assert [operation["at_ms"] for operation in run.operations] == [1.0, 21.0]


def test_added_worker_starts_with_free_tokenizers() -> None:
    spec = with_stages(small_fleet(prefill=1, decode=1), tokenization={"request_ms": 5.0})
    run = run_small(spec, arrivals([0.0, 0.0, 2.0]), [(1.0, 2, None)])
    check_columns(run, tokenized_ms=[5.0, 10.0, 7.0], prefill_worker_idx=[0, 0, 1])


def test_refused_prompt_was_tokenized() -> None:
    spec = pair({"tokenization": TOKENIZERS}, prefill_engine={"num_gpu_blocks": 4})
    run = run_small(spec, arrivals([0.0], 24))
    assert run.column("terminal_status") == ["rejected"]
    check_columns(run, tokenized_ms=[7.0], terminal_time_ms=[7.0])


# Detokenization


def test_client_receives_tokens_once_they_are_detokenized() -> None:
    run = run_small(pair({"detokenization": DETOKENIZERS}), arrivals([0.0]))
    check_columns(
        run,
        first_token_ms=[11.75],
        last_token_ms=[13.75],
        terminal_time_ms=[13.75],
        e2e_latency_ms=[13.75],
        source_released_ms=[10.0],
    )


@pytest.mark.parametrize(
    ("workers", "first_token_ms", "last_token_ms"),
    [(1, [11.75, 12.5], [14.75, 15.5]), (2, [11.75, 11.75], [13.75, 13.75])],
)
def test_outputs_wait_for_the_detokenizer_that_is_free_first(
    workers: int, first_token_ms: list[float], last_token_ms: list[float]
) -> None:
    """One detokenizer has 1.5 ms to do in each pass of 1 ms."""
    spec = pair({"detokenization": {**DETOKENIZERS, "workers": workers}})
    run = run_small(spec, arrivals([0.0, 0.0]))
    check_columns(
        run,
        first_token_ms=first_token_ms,
        last_token_ms=last_token_ms,
        terminal_time_ms=last_token_ms,
    )


def test_each_decode_worker_has_detokenizers_of_its_own() -> None:
    spec = with_stages(small_fleet(prefill=1, decode=2), detokenization=DETOKENIZERS)
    run = run_small(spec, arrivals([0.0, 0.0]))
    check_columns(run, terminal_time_ms=[13.75, 13.75], decode_worker_idx=[0, 1])


def test_tokens_of_one_pass_are_one_output() -> None:
    """Three tokens a pass take 0.5 + 3 * 0.25 ms: 11 to 12.25, and then to 13.5."""
    drafts = {"aic_nextn": 2, "aic_nextn_accept_rates": "1,1"}
    spec = pair({"detokenization": DETOKENIZERS}, decode_engine=drafts)
    run = run_small(spec, arrivals([0.0], 8, 6))
    check_columns(run, first_token_ms=[12.25], last_token_ms=[13.5], ttst_ms=[0.0])


def test_request_without_output_is_received_too() -> None:
    run = run_small(pair({"detokenization": DETOKENIZERS}), arrivals([0.0], 8, 0))
    plain = run_small(small_fleet(prefill=1, decode=1), arrivals([0.0], 8, 0))
    assert run.column("output_length") == [0]
    check_columns(run, terminal_time_ms=[plain.column("terminal_time_ms")[0] + 0.5])


def test_rejection_skips_the_stage() -> None:
    spec = pair({"detokenization": DETOKENIZERS}, prefill_engine={"num_gpu_blocks": 4})
    run = run_small(spec, arrivals([0.0], 24))
    assert run.column("terminal_status") == ["rejected"]
    check_columns(run, terminal_time_ms=[0.0])


def test_request_is_in_flight_until_it_is_received() -> None:
    """Its completion is in the traffic of the decode pass that ended at 13 all the same."""
    spec = pair({"detokenization": DETOKENIZERS})
    replay = Replay(spec, arrivals([0.0]), initial_tick_ms=13.5)
    snapshot = replay.advance_to_tick()
    assert snapshot is not None
    assert (snapshot.traffic.shape_count, snapshot.traffic.avg_ttft_ms) == (1, 11.75)
    assert replay.state.world.clock.in_flight == 1
    assert replay.state.world.clock.open_handoffs == 0
    assert summarize(replay).summary["completed_requests"] == 0
    replay.apply(ScalingDecision(None, None, None))
    assert replay.advance_to_tick() is None
    assert (replay.now_ms, replay.state.world.clock.in_flight) == (13.75, 0)
    assert summarize(replay).summary["completed_requests"] == 1


def test_what_is_received_after_the_time_limit_does_not_count() -> None:
    run = run_small(pair({"detokenization": DETOKENIZERS}, max_sim_time_ms=13.5), arrivals([0.0]))
    assert (run.summary["num_requests"], run.summary["completed_requests"]) == (1, 0)
    assert run.column("terminal_status") == []


def test_closed_loop_goes_on_at_receipt() -> None:
    spec = pair({"detokenization": DETOKENIZERS}, workload={"replay_concurrency": 1})
    run = run_small(spec, arrivals([0.0, 0.0]))
    check_columns(run, arrival_time_ms=[0.0, 13.75], terminal_time_ms=[13.75, 27.5])


def test_next_turn_counts_from_receipt() -> None:
    spec = pair({"detokenization": DETOKENIZERS})
    run = run_turns(spec, [turn("a", timestamp=0), turn("a", delay=5)])
    assert by_turn(run, "terminal_time_ms")["a"][0] == 11.75
    assert by_turn(run, "arrival_time_ms") == {"a": [0.0, 16.75]}


def test_decode_worker_may_be_gone_before_its_last_output_is_received() -> None:
    spec = with_stages(
        small_fleet(prefill=1, decode=2), detokenization={"request_ms": 50.0, "workers": 3}
    )
    run = run_small(spec, arrivals([0.0, 0.0]), [(11.5, None, 1)])
    check_columns(run, decode_worker_idx=[0, 1], terminal_time_ms=[63.0, 63.0])
    assert [operation["at_ms"] for operation in run.operations] == [11.5, 13.0]


# The encoder pool


def test_requests_reach_the_fleet_in_batches() -> None:
    run = run_small(pair({"encoder": ENCODERS}), arrivals([0.0, 0.0, 0.0, 5.0]))
    check_columns(
        run,
        arrival_time_ms=[0.0, 0.0, 0.0, 5.0],
        encoder_ready_ms=[18.0, 18.0, 35.0, 35.0],
        prefill_admit_ms=[18.0, 18.0, 35.0, 35.0],
    )


def test_late_small_batch_may_overtake_and_is_placed_first() -> None:
    encoder = {**ENCODERS, "num_instances": 2, "forward_ms": [1.0, 50.0]}
    spec = with_stages(small_fleet(prefill=2, decode=1), encoder=encoder)
    run = run_small(spec, arrivals([0.0, 0.0, 1.0]))
    check_columns(run, encoder_ready_ms=[53.0, 53.0, 4.0], prefill_worker_idx=[1, 0, 0])


def test_parked_requests_have_arrived_and_are_in_flight() -> None:
    spec = pair({"encoder": ENCODERS})
    replay = Replay(spec, arrivals([0.0, 0.0, 5.0]), initial_tick_ms=6.0)
    snapshot = replay.advance_to_tick()
    assert snapshot is not None
    assert snapshot.traffic.num_req == 3
    assert (replay.state.world.clock.in_flight, replay.state.world.clock.open_handoffs) == (3, 0)


def test_closed_loop_counts_parked_requests() -> None:
    """Each takes 11 ms of the encoder, 1 ms to the fleet and 13 ms there."""
    encoder = {**ENCODERS, "max_batch": 1, "forward_ms": [10.0]}
    spec = pair({"encoder": encoder}, workload={"replay_concurrency": 2})
    run = run_small(spec, arrivals([0.0] * 4))
    check_columns(
        run,
        arrival_time_ms=[0.0, 0.0, 25.0, 36.0],
        encoder_ready_ms=[12.0, 23.0, 37.0, 48.0],
        terminal_time_ms=[25.0, 36.0, 50.0, 61.0],
    )


def test_encoder_gpus_are_paid_for_during_the_whole_run() -> None:
    encoder = {**ENCODERS, "num_instances": 2, "gpus_per_instance": 3}
    run = run_small(pair({"encoder": encoder}), arrivals([0.0, 500.0]))
    assert run.column("terminal_time_ms") == [25.0, 525.0]
    assert run.summary["encoder_gpus"] == 6
    assert run.summary["encoder_gpu_seconds"] == pytest.approx(6 * 0.525)
    assert run.summary["gpu_hours"] == pytest.approx((1 + 1 + 6) * 0.525 / 3600)


# Reports


def test_report_tells_of_the_stages_that_are_on_only() -> None:
    plain = small_fleet(prefill=1, decode=1)
    names = {"encoder_ready_ms", "tokenized_ms", "encoder_gpus", "encoder_gpu_seconds"}
    told = {}
    for stage in ("encoder", "tokenization", "detokenization"):
        run = run_small(with_stages(plain, **{stage: ALL_STAGES[stage]}), arrivals([0.0]))
        assert run.report.per_request is not None
        told[stage] = names & {*run.summary, *run.report.per_request.columns}
    assert told == {
        "encoder": {"encoder_ready_ms", "encoder_gpus", "encoder_gpu_seconds"},
        "tokenization": {"tokenized_ms"},
        "detokenization": set(),
    }
    run = run_small(plain, arrivals([0.0]))
    assert run.report.per_request is not None
    assert not names & {*run.summary, *run.report.per_request.columns}

"""Records per request (replay-runtime.md §15.6)."""

import json
import uuid

from support.fleets import SmallRun, arrivals, every, run_small, small_fleet
from support.sessions import run_turns, turn

from aisim_gym.report import RequestRecords

# As the reference writes the second request of example 1, its random id replaced.
SECOND_OF_TWO = (
    '{"session_id": null, "turn_index": null, "uuid": "00000000-0000-0000-0000-000000000002", '
    '"arrival_time_ms": 5.0, "dispatched_at_ms": null, "first_admit_ms": 10.0, '
    '"terminal_time_ms": 23.0, "first_token_ms": 21.0, "last_token_ms": 23.0, "ttft_ms": 16.0, '
    '"ttst_ms": 1.0, "e2e_latency_ms": 18.0, "itl_ms": 1.0, "input_length": 8, '
    '"requested_output_length": 3, "output_length": 3, "reused_input_tokens": 0, '
    '"prefill_worker_idx": null, "decode_worker_idx": 0, "prefill_admit_ms": null, '
    '"source_held_ms": null, "destination_reserved_ms": null, "destination_activated_ms": null, '
    '"decode_admit_ms": null, "source_released_ms": null, "decode_reused_input_tokens": null, '
    '"prefill_route_overlap_tokens": null, "decode_route_overlap_tokens": null, '
    '"routing_history": [{"pool": "agg", "outcome": "immediate", "queue_entered_at_ms": null, '
    '"released_at_ms": null, "queue_wait_ms": 0.0, "logical_worker_id": 0, "scheduler_id": 0, '
    '"dp_rank": 0, "reported_overlap_tokens": 0, "selected_overlap_blocks": null, '
    '"best_available_overlap_blocks": null, "overlap_regret_blocks": null, '
    '"placement_replica_id": null}], "admission_history": [{"admission_ordinal": 0, '
    '"pool_admission_ordinal": 0, "pool": "agg", "at_ms": 10.0, "reused_input_tokens": 0, '
    '"is_readmission": false}], "admission_count": 1, "readmission_count": 0, '
    '"pressure_record_ordinals": [], "terminal_status": "completed"}'
)


def records_of(run: SmallRun) -> RequestRecords:
    """Return the captured records."""
    assert run.report.per_request is not None
    return run.report.per_request


def test_record_is_written_as_by_the_reference() -> None:
    run = run_small(small_fleet(workers=1), arrivals(every(5.0, 2)))
    assert json.dumps(records_of(run)[1]) == SECOND_OF_TWO


def test_iteration_indexing_and_columns_say_the_same() -> None:
    records = records_of(run_small(small_fleet(prefill=1, decode=1), arrivals(every(5.0, 3))))
    assert list(records) == [records[index] for index in range(len(records))]
    assert [record["ttft_ms"] for record in records] == records.columns["ttft_ms"]


def test_records_are_sorted_by_arrival_then_id() -> None:
    records = records_of(run_small(small_fleet(workers=1), arrivals([20.0, 0.0, 20.0, 5.0])))
    assert records.row.tolist() == [1, 3, 0, 2]
    assert records.columns["uuid"] == [str(uuid.UUID(int=row + 1)) for row in (1, 3, 0, 2)]


def test_columns_hold_plain_python_values() -> None:
    records = records_of(run_small(small_fleet(prefill=1, decode=1), arrivals(every(5.0, 3))))
    types = {type(value) for values in records.columns.values() for value in values}
    assert types <= {int, float, str, list, type(None)}


def test_handoff_of_a_disaggregated_request_is_recorded() -> None:
    spec = small_fleet(prefill=1, decode=1, transfer_gb_s=1.0)
    (record,) = records_of(run_small(spec, arrivals([0.0])))
    assert record["prefill_admit_ms"] == record["first_admit_ms"] == 0.0
    assert record["source_held_ms"] == record["destination_reserved_ms"] == 10.0
    assert record["destination_activated_ms"] == record["decode_admit_ms"] == 18.0
    assert [entry["pool"] for entry in record["admission_history"]] == ["prefill", "decode"]
    assert [entry["admission_ordinal"] for entry in record["admission_history"]] == [0, 1]
    assert [entry["pool_admission_ordinal"] for entry in record["admission_history"]] == [0, 0]
    assert (record["admission_count"], record["readmission_count"]) == (2, 0)
    assert record["prefill_route_overlap_tokens"] == record["decode_route_overlap_tokens"] == 0


def test_request_that_crosses_both_pools_is_one_request() -> None:
    """F55, F59: its first token is prefill's, its gaps are decode's; waiting is told apart."""
    spec = small_fleet(prefill=1, decode=1, prefill_ms=10.0, decode_ms=1.0)
    run = run_small(spec, arrivals(every(5.0, 6), 8, 4))
    columns = records_of(run).columns
    assert len(set(columns["uuid"])) == 6 == run.summary["num_requests"]
    assert run.summary["completed_requests"] == run.summary["num_ttft_samples"] == 6
    assert run.summary["total_output_tokens"] == 6 * 4
    assert columns["itl_ms"] == [1.0] * 6
    for arrival_ms, admit_ms, held_ms, decode_ms, first_ms in zip(
        *(columns[name] for name in ("arrival_time_ms", "first_admit_ms", "source_held_ms")),
        *(columns[name] for name in ("decode_admit_ms", "first_token_ms")),
        strict=True,
    ):
        assert arrival_ms <= admit_ms < held_ms <= decode_ms <= first_ms
        assert held_ms - admit_ms == 10.0
    assert columns["first_admit_ms"][-1] > columns["arrival_time_ms"][-1]


def test_readmission_after_preemption_is_counted() -> None:
    # Two requests of 3 prompt blocks each grow until 7 blocks no longer hold both.
    spec = small_fleet(workers=1, engine={"num_gpu_blocks": 7})
    records = records_of(run_small(spec, arrivals([0.0, 0.0], 12, 8)))
    assert sorted(records.columns["readmission_count"]) == [0, 1]
    readmitted = records.columns["readmission_count"].index(1)
    history = records[readmitted]["admission_history"]
    assert [entry["is_readmission"] for entry in history] == [False, True]
    assert [entry["pool_admission_ordinal"] for entry in history] == [0, 1]
    assert records[readmitted]["admission_count"] == 2


def test_rejected_request_was_routed_but_never_admitted() -> None:
    spec = small_fleet(workers=1, engine={"num_gpu_blocks": 4})
    (record,) = records_of(run_small(spec, arrivals([0.0], 24)))
    assert (record["terminal_status"], record["decode_worker_idx"]) == ("rejected", 0)
    assert (len(record["routing_history"]), record["admission_history"]) == (1, [])
    assert (record["first_admit_ms"], record["ttft_ms"], record["itl_ms"]) == (None, None, None)
    assert (record["admission_count"], record["readmission_count"]) == (0, 0)


def test_single_token_has_no_gap() -> None:
    (record,) = records_of(run_small(small_fleet(workers=1), arrivals([0.0], 8, 1)))
    assert (record["ttft_ms"], record["ttst_ms"], record["itl_ms"]) == (10.0, None, None)


def test_turns_are_sorted_by_arrival_then_session_and_numbered_by_session() -> None:
    turns = [turn("b", timestamp=5), turn("a", timestamp=5), turn("b", delay=0)]
    records = records_of(run_turns(small_fleet(workers=1), turns))
    assert [(r["session_id"], r["turn_index"]) for r in records] == [("b", 0), ("a", 0), ("b", 1)]
    numbers = [uuid.UUID(record["uuid"]).int for record in records]
    assert numbers == [1, 3, 2]
    assert records.row.tolist() == [0, 1, 2]


def test_destination_comes_before_the_prompt_in_the_routes_of_sglang() -> None:
    engine = {"backend": "sglang", "num_gpu_blocks": 16}
    (record,) = records_of(
        run_small(small_fleet(prefill=1, decode=1, engine=engine), arrivals([0]))
    )
    assert [entry["pool"] for entry in record["routing_history"]] == ["decode", "prefill"]
    assert [entry["pool"] for entry in record["admission_history"]] == ["prefill", "decode"]
    assert (record["destination_reserved_ms"], record["source_held_ms"]) == (0.0, 10.0)


def test_burst_has_gaps_of_zero() -> None:
    engine = {"aic_nextn": 2, "aic_nextn_accept_rates": "1,1"}
    (record,) = records_of(run_small(small_fleet(workers=1, engine=engine), arrivals([0.0], 8, 6)))
    assert (record["ttft_ms"], record["ttst_ms"], record["itl_ms"]) == (11.0, 0.0, 0.2)
    assert record["output_length"] == 6

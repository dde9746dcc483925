"""Group passes of data-parallel workers (engine-vllm-trtllm.md §11)."""

from support.fleets import run_small, small_fleet
from support.pass_log import trace

CADENCE = {"prefill_schedule_interval": 4}


def test_cadence_counts_anew_once_the_worker_was_drained() -> None:
    """As example E19, 1000 ms after a request that took one pass."""
    spec = small_fleet(workers=1, decode_ms=4.0, dp_size=2, engine=CADENCE)
    run = run_small(
        spec,
        trace((0, 4, 1, [9]), (1000, 4, 8, [1]), (1000, 4, 8, [2]), (1005, 4, 3, [3])),
    )
    assert run.column("decode_worker_idx") == [0, 1, 0, 1]
    assert run.column("first_admit_ms") == [0.0, 1000.0, 1000.0, 1022.0]


def test_cadence_goes_on_while_any_rank_has_work() -> None:
    """Passes start at 0, 10, 14, 18 and 22; the second rank has nothing from 10 to 11."""
    spec = small_fleet(workers=1, decode_ms=4.0, dp_size=2, engine=CADENCE)
    run = run_small(spec, trace((0, 4, 9, [1]), (0, 4, 1, [2]), (11, 4, 3, [3])))
    assert run.column("first_admit_ms")[2] == 22.0


def test_cadence_does_nothing_for_one_rank() -> None:
    spec = small_fleet(workers=1, decode_ms=4.0, engine=CADENCE)
    run = run_small(spec, trace((0, 4, 8, [1]), (5, 4, 3, [3])))
    assert run.column("first_admit_ms") == [0.0, 10.0]


def test_request_waits_for_the_end_of_the_group_pass_although_its_rank_idles() -> None:
    run = run_small(small_fleet(workers=1, dp_size=2), trace((0, 4, 1, [1]), (3, 4, 1, [2])))
    assert run.column("decode_worker_idx") == [0, 1]
    assert run.column("first_admit_ms") == [0.0, 10.0]

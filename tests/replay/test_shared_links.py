"""KV transfers that share links, in whole runs (replay-runtime.md §11.3, example 16).

A prefill takes 10 ms; a prompt of 8 tokens is 8 MB, which take 8 ms at 1 GB/s.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fleets import SmallRun, arrivals, every, run_small, small_fleet
from support.results import results
from support.stages import with_stages

from aisim_gym.fleet.handoff import handoff_failed
from aisim_gym.replay import Replay, ScalingDecision
from aisim_gym.report import summarize
from aisim_gym.spec import ReplaySpec


def shared(decode_gb_s: float | None = None, gb_s: float = 1.0, **parts: Any) -> ReplaySpec:
    """A small fleet with shared links, one prefill and one decode worker by default."""
    decode_engine = {} if decode_gb_s is None else {"kv_transfer_bandwidth": decode_gb_s}
    workers = {"prefill": 1, "decode": 1}
    spec = small_fleet(**{**workers, **parts}, transfer_gb_s=gb_s, decode_engine=decode_engine)
    return with_stages(spec, transfer_links="shared")


def activated_ms(run: SmallRun) -> list[float]:
    """Return when the KV of each request had arrived."""
    return run.column("destination_activated_ms")


def test_transfers_do_not_share_by_default() -> None:
    spec = small_fleet(prefill=1, decode=1, transfer_gb_s=1.0)
    assert activated_ms(run_small(spec, arrivals([0.0, 0.0]))) == [18.0, 18.0]


def test_transfer_alone_takes_its_fixed_duration() -> None:
    assert activated_ms(run_small(shared(), arrivals([0.0]))) == [18.0]


def test_transfers_of_one_prefill_rank_share_its_link() -> None:
    assert activated_ms(run_small(shared(decode=2), arrivals([0.0, 0.0]))) == [26.0, 26.0]


def test_transfers_to_one_decode_rank_share_its_link() -> None:
    run = run_small(shared(1.0, prefill=2), arrivals([0.0, 0.0]))
    assert activated_ms(run) == [26.0, 26.0]
    assert run.column("prefill_worker_idx") == [0, 1]


def test_decode_rank_without_bandwidth_receives_any_number() -> None:
    assert activated_ms(run_small(shared(prefill=2), arrivals([0.0, 0.0]))) == [18.0, 18.0]


def test_slow_receiver_sets_the_pace() -> None:
    assert activated_ms(run_small(shared(0.25), arrivals([0.0]))) == [42.0]


@pytest.mark.parametrize(
    ("decode_gb_s", "expected"), [(1.0, [26.0, 26.0, 26.0]), (None, [26.0, 18.0, 26.0])]
)
def test_three_transfers_over_crossing_links(
    decode_gb_s: float | None, expected: list[float]
) -> None:
    """The first and the third come from one prefill rank; two go to one decode rank."""
    run = run_small(shared(decode_gb_s, prefill=2, decode=2), arrivals([0.0, 0.0, 0.0]))
    assert run.column("prefill_worker_idx") == [0, 1, 0]
    assert run.column("decode_worker_idx") == [0, 0, 1]
    assert activated_ms(run) == expected


def test_later_transfer_slows_down_the_one_under_way() -> None:
    """At 0.5 GB/s each takes 16 ms alone; the second begins when the first has 6 ms left."""
    run = run_small(shared(gb_s=0.5), arrivals([0.0, 10.0]))
    assert run.column("source_held_ms") == [10.0, 20.0]
    assert activated_ms(run) == [32.0, 42.0]


def test_ranks_of_one_worker_have_links_of_their_own() -> None:
    assert activated_ms(run_small(shared(dp_size=2), arrivals([0.0, 0.0]))) == [18.0, 18.0]


def test_workers_that_are_added_bring_their_links() -> None:
    """The second prompt is prefilled from 12 to 22 on the worker added at 11."""
    spec = shared(1.0)
    run = run_small(spec, arrivals([0.0, 12.0, 12.0, 12.0]), [(11.0, 4, 4)])
    assert run.column("prefill_worker_idx") == [0, 1, 2, 3]
    assert run.column("decode_worker_idx") == [0, 1, 2, 3]
    assert activated_ms(run) == [18.0, 30.0, 30.0, 30.0]


@pytest.mark.parametrize("backend", ["vllm", "trtllm", "sglang"])
def test_every_backend_shares(backend: str) -> None:
    run = run_small(shared(engine={"backend": backend}), arrivals([0.0, 0.0]))
    assert activated_ms(run) == [26.0, 26.0]


def test_without_bandwidth_there_are_no_links() -> None:
    fixed = small_fleet(prefill=1, decode=1, decode_engine={"kv_transfer_bandwidth": 1.0})
    run = run_small(with_stages(fixed, transfer_links="shared"), arrivals([0.0, 0.0]))
    assert activated_ms(run) == [10.0, 10.0]
    assert len(run.replay.state.world.links) == 0


def test_missing_tokens_only_are_shared_too() -> None:
    """A repeated prompt of 10 tokens finds 8 of them at its destination: 4 ms instead of 12."""
    spec = shared(prefill_engine={"kv_transfer_timing_mode": "destination_missing"})
    run = run_small(spec, arrivals(every(100.0, 2), 10, hash_ids=[[1, 2, 3], [1, 2, 3]]))
    held_ms = run.column("source_held_ms")
    spans = [end - start for start, end in zip(held_ms, activated_ms(run), strict=True)]
    assert spans == [12.0, 4.0]


def test_cancelled_handoff_gives_its_share_back() -> None:
    """Both have 6 of 8 ms left at 14; nothing in a replay cancels, so the test does."""
    replay = Replay(shared(decode=2), arrivals([0.0, 0.0]), initial_tick_ms=14.0)
    assert replay.advance_to_tick() is not None
    handoff_failed(replay.state.world, 0)
    replay.apply(ScalingDecision(None, None, None))
    assert replay.advance_to_tick() is None
    records = summarize(replay).per_request
    assert records is not None
    assert records.columns["terminal_status"] == ["canceled", "completed"]
    assert records.columns["destination_activated_ms"] == [None, 20.0]


@given(
    st.sampled_from([0.1, 0.3, 1.0, 7.0]),
    st.sampled_from([None, 7.0]),
    st.lists(st.integers(1, 200), min_size=1, max_size=6),
)
def test_one_transfer_at_a_time_is_like_fixed_ones(
    gb_s: float, decode_gb_s: float | None, input_tokens: list[int]
) -> None:
    decode_engine = {} if decode_gb_s is None else {"kv_transfer_bandwidth": decode_gb_s}
    fixed = small_fleet(prefill=2, decode=2, transfer_gb_s=gb_s, decode_engine=decode_engine)
    requests = arrivals(every(10_000.0, len(input_tokens)), input_tokens)
    runs = [
        Replay.run(spec, None, requests)
        for spec in (fixed, with_stages(fixed, transfer_links="shared"))
    ]
    assert results(runs[0]) == results(runs[1])

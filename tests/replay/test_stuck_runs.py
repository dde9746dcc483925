"""Runs that cannot go on raise the reference's error (rulings.md 1 and 2, replay-runtime.md §19).

The message says which request is stuck, where and when; nothing spins.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from support.fleets import ScriptedTicks, arrivals, every, run_small, small_fleet
from support.pass_log import trace

from aisim_gym.errors import ReplayError
from aisim_gym.replay import FleetDescription, Replay, ScalingDecision, ScalingSnapshot
from aisim_gym.replay.advance import MAX_STUCK_TICKS
from aisim_gym.spec import ReplaySpec
from aisim_gym.workload import RequestTable, requests_from_arrays

NO_CHANGE = ScalingDecision(None, None, None)


class EndlessTicks:
    """A policy that asks for another tick for ever.

    Attributes:
        gap_ms: Between two ticks.
        answers: Targets by ordinal of the tick.
        seen: Ticks so far.
    """

    def __init__(
        self, gap_ms: float, answers: Mapping[int, tuple[int | None, int | None]] | None = None
    ) -> None:
        self.gap_ms = gap_ms
        self.answers = answers or {}
        self.seen = 0

    def reset(self, fleet: FleetDescription, seed: int | None = None) -> None:
        self.seen = 0

    def initial_tick_ms(self) -> float:
        return self.gap_ms

    def on_tick(self, snapshot: ScalingSnapshot) -> ScalingDecision:
        prefill, decode = self.answers.get(self.seen, (None, None))
        self.seen += 1
        return ScalingDecision(prefill, decode, snapshot.now_ms + self.gap_ms)


def unchunked(**options: Any) -> ReplaySpec:
    """A worker that must compute a prompt in one pass of at most 16 tokens."""
    engine = {"max_num_batched_tokens": 16, "enable_chunked_prefill": False}
    return small_fleet(workers=1, engine=engine, **options)


def narrow(**options: Any) -> ReplaySpec:
    """A worker with 8 blocks of 4 tokens."""
    return small_fleet(workers=1, engine={"num_gpu_blocks": 8}, **options)


STUCK = {
    "prompt over the token budget": (unchunked(), arrivals([0.0], 17)),
    "output over the pool": (narrow(), arrivals([0.0], 10, 24)),
}

DEADLOCK = (
    small_fleet(
        prefill=1,
        decode=1,
        transfer_gb_s=0.5,
        decode_engine={"num_gpu_blocks": 6, "enable_prefix_caching": False},
    ),
    trace((0.0, 8, 4, [1, 2]), (1.0, 12, 3, [3, 4, 5]), (2.0, 4, 4, [6])),
)
"""A preempted request heads the queue and does not fit; activated ones behind it hold the rest."""


@pytest.mark.parametrize(("spec", "requests"), STUCK.values(), ids=STUCK)
def test_request_that_can_never_run_is_named_with_its_worker_and_time(
    spec: ReplaySpec, requests: RequestTable
) -> None:
    with pytest.raises(
        ReplayError,
        match=r"replay invariant violated: offline replay detected an effect-free zero-duration "
        r"pass with 1 in-flight requests remaining \(stuck at \d+\.\d ms: 1, first request 1 "
        r"on aggregated worker 0, 1\d input tokens\)",
    ):
        Replay.run(spec, None, requests)


def test_message_counts_the_stuck_requests_and_names_the_first_of_the_source() -> None:
    requests = requests_from_arrays([30.0, 0.0, 10.0, 5.0], [18, 8, 17, 8], [2, 2, 2, 2])
    with pytest.raises(ReplayError, match=r"with 2 in-flight .* 2, first request 1 on .* 18 input"):
        Replay.run(unchunked(), None, requests)


def test_message_names_the_worker_of_the_request() -> None:
    spec = small_fleet(workers=2, dp_size=2, engine={"num_gpu_blocks": 8})
    with pytest.raises(ReplayError, match="first request 2 on aggregated worker 1"):
        Replay.run(spec, None, arrivals([0.0, 0.0], 10, [2, 24]))


def test_requests_before_a_stuck_one_finish_and_those_behind_it_are_stuck_too() -> None:
    replay = Replay(unchunked(), arrivals([0.0, 50.0, 60.0], [8, 17, 8], 2))
    with pytest.raises(ReplayError, match=r"with 2 in-flight .*first request 2 "):
        replay.advance_to_tick()
    assert replay.state.world.requests["emitted_tokens"].tolist() == [2, 0, 0]


@pytest.mark.parametrize(("spec", "requests"), STUCK.values(), ids=STUCK)
def test_ticks_for_ever_do_not_keep_a_stuck_run_alive(
    spec: ReplaySpec, requests: RequestTable
) -> None:
    policy = EndlessTicks(1000.0)
    with pytest.raises(ReplayError, match="effect-free zero-duration pass with 1 in-flight"):
        Replay.run(spec, policy, requests)
    assert MAX_STUCK_TICKS <= policy.seen <= MAX_STUCK_TICKS + 2


def test_stuck_run_with_ticks_for_ever_goes_on_to_the_time_limit() -> None:
    policy = EndlessTicks(10.0)
    replay = Replay.run(unchunked(max_sim_time_ms=20_000.0), policy, arrivals([0.0], 17))
    assert replay.hit_time_limit
    assert policy.seen == 2000
    assert replay.now_ms == 20_000.0


def test_stuck_run_without_ticks_is_an_error_also_below_a_time_limit() -> None:
    with pytest.raises(ReplayError, match="effect-free zero-duration pass"):
        Replay.run(unchunked(max_sim_time_ms=20_000.0), None, arrivals([0.0], 17))


def test_stuck_request_waits_for_later_arrivals() -> None:
    """An arrival may change things, so the run is not stuck before the last one."""
    replay = Replay(unchunked(), arrivals([0.0, 5000.0], [17, 8], 2))
    with pytest.raises(ReplayError, match=r"stuck at 5000\.0 ms: 2"):
        replay.advance_to_tick()


def test_adding_workers_does_not_help_a_request_that_was_placed() -> None:
    policy = EndlessTicks(1000.0, {0: (None, 3)})
    with pytest.raises(ReplayError, match="on aggregated worker 0"):
        Replay.run(unchunked(), policy, arrivals([0.0], 17))


def test_starting_worker_lets_a_stuck_run_go_on_until_it_is_ready() -> None:
    policy = EndlessTicks(100.0, {0: (None, 2)})
    spec = unchunked(startup_ms=300_000.0)
    with pytest.raises(ReplayError, match=r"stuck at"):
        Replay.run(spec, policy, arrivals([0.0], 17))
    assert policy.seen > 3000 > MAX_STUCK_TICKS


# Disaggregated fleets


def test_preempted_decode_that_never_fits_again_is_a_deadlock() -> None:
    with pytest.raises(
        ReplayError,
        match=r"offline disagg replay encountered an effect-free zero-duration pass with 3 "
        r"in-flight requests remaining \(stuck at .* ms: 3, first request 1 on decode worker 0",
    ):
        Replay.run(DEADLOCK[0], None, DEADLOCK[1])


def test_decode_deadlock_ends_under_ticks_for_ever() -> None:
    policy = EndlessTicks(50.0)
    with pytest.raises(ReplayError, match="disagg replay encountered an effect-free"):
        Replay.run(DEADLOCK[0], policy, DEADLOCK[1])
    assert policy.seen <= MAX_STUCK_TICKS + 100


def test_prompt_over_the_budget_of_the_prefill_worker_is_named_there() -> None:
    spec = small_fleet(
        prefill=1,
        decode=1,
        prefill_engine={"max_num_batched_tokens": 16, "enable_chunked_prefill": False},
    )
    with pytest.raises(ReplayError, match="first request 1 on prefill worker 0, 17 input tokens"):
        Replay.run(spec, None, arrivals([0.0], 17))


@pytest.mark.parametrize("empty", [(0, None), (None, 0), (0, 0)], ids=str)
def test_empty_pool_is_not_stuck_while_ticks_may_refill_it(
    empty: tuple[int | None, int | None],
) -> None:
    refill = (1 if empty[0] == 0 else None, 1 if empty[1] == 0 else None)
    policy = EndlessTicks(5.0, {0: empty, 2 * MAX_STUCK_TICKS: refill})
    replay = Replay.run(small_fleet(prefill=1, decode=1), policy, arrivals(every(12.0, 3)))
    assert replay.is_done
    assert policy.seen > 2 * MAX_STUCK_TICKS


@pytest.mark.parametrize(
    ("prefill", "decode", "place"),
    [(0, None, "waiting for a prefill worker"), (None, 0, "on prefill worker 0")],
)
def test_empty_pool_is_a_dead_end_once_ticks_have_stopped(
    prefill: int | None, decode: int | None, place: str
) -> None:
    with pytest.raises(
        ReplayError,
        match="replay invariant violated: offline disagg replay reached a dead end with 2 "
        rf"in-flight requests remaining .*first request 2 {place}",
    ):
        run_small(
            small_fleet(prefill=1, decode=1),
            arrivals([0.0, 40.0, 50.0]),
            [(35.0, prefill, decode)],
        )


def test_prompt_refused_by_a_draining_prefill_worker_breaks_the_run_as_in_the_reference() -> None:
    """Nothing else keeps that worker, so the clean-up of the handoff finds it gone."""
    rows = [
        (-1.897132585058841, 8, 13),
        (23.144092733383346, 9, 2),
        (23.144092733383346, 16, 26),
        (24.144092733383346, 2, 1),
        (25.144092733383346, 80, 15),
        (22.805669002235444, 29, 0),
    ]
    first_ms = min(at_ms for at_ms, _, _ in rows)
    requests = requests_from_arrays(
        [at_ms - first_ms for at_ms, _, _ in rows],
        [input_tokens for _, input_tokens, _ in rows],
        [output_tokens for _, _, output_tokens in rows],
        [range(100 * at, 100 * at + -(-rows[at][1] // 2)) for at in range(len(rows))],
        trace_block_size=2,
    )
    spec = small_fleet(
        prefill=1,
        decode=3,
        engine={"block_size": 8},
        prefill_engine={
            "num_gpu_blocks": 4,
            "timing_model": {"type": "fixed", "prefill_ms": 10.0, "decode_ms": 4.0},
        },
        decode_engine={
            "num_gpu_blocks": 24,
            "enable_prefix_caching": False,
            "timing_model": {"type": "fixed", "prefill_ms": 3.0, "decode_ms": 4.0},
        },
    )
    ticks = ScriptedTicks([(10.0, 4, None), (33.7, 1, 2), (41.1, None, None)])
    with pytest.raises(
        ReplayError,
        match=r"replay invariant violated: offline replay selected unknown rank 1 "
        r"\(request 5 was refused at .* ms by prefill worker 1, which was draining",
    ):
        Replay.run(spec, ticks, requests)


# After an error


def test_failed_run_raises_again_and_stays_where_it_was() -> None:
    replay = Replay(narrow(), arrivals([0.0], 10, 24))
    messages = []
    for _ in range(3):
        with pytest.raises(ReplayError) as raised:
            replay.advance_to_tick()
        messages.append(str(raised.value))
    assert len(set(messages)) == 1
    assert not replay.is_done
    assert replay.snapshot is None


def test_failed_aggregated_arrival_raises_again() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0, 30.0]), initial_tick_ms=20.0)
    replay.advance_to_tick()
    replay.apply(ScalingDecision(None, 0, None))
    for _ in range(2):
        with pytest.raises(ReplayError, match=r"no active workers.*request 2 arrives at 30\.0 ms"):
            replay.advance_to_tick()


def test_fork_of_a_failed_run_fails_too() -> None:
    replay = Replay(narrow(), arrivals([0.0], 10, 24))
    with pytest.raises(ReplayError):
        replay.advance_to_tick()
    with pytest.raises(ReplayError, match="effect-free"):
        replay.fork().advance_to_tick()


# Misuse


def test_tick_must_be_answered_before_the_run_goes_on() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0]), initial_tick_ms=5.0)
    replay.advance_to_tick()
    with pytest.raises(ReplayError, match=r"tick 0 at 5\.0 ms waits for a decision: call apply"):
        replay.advance_to_tick()
    replay.apply(NO_CHANGE)
    assert replay.advance_to_tick() is None


def test_only_a_tick_can_be_answered() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0]), initial_tick_ms=5.0)
    with pytest.raises(ReplayError, match="no tick waits for a decision"):
        replay.apply(NO_CHANGE)
    replay.advance_to_tick()
    replay.apply(NO_CHANGE)
    with pytest.raises(ReplayError, match="no tick waits for a decision"):
        replay.apply(NO_CHANGE)


def test_finished_run_stays_finished() -> None:
    replay = Replay(small_fleet(workers=1), arrivals([0.0]))
    assert [replay.advance_to_tick() for _ in range(3)] == [None] * 3
    assert replay.is_done
    with pytest.raises(ReplayError, match="no tick waits"):
        replay.apply(NO_CHANGE)

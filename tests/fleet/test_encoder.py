"""The encoder pool: batches, deliveries and what is in flight (replay-runtime.md §17.1)."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aisim_gym.fleet.encoder import (
    EncoderRow,
    enter_encoder,
    next_batch_ms,
    start_batches,
)
from aisim_gym.fleet.time_heap import TimedRow, TimeHeapRow, next_ms, pop
from aisim_gym.tables import make_table


class Pool:
    """An encoder pool in a settle loop that knows only deliveries and arrivals."""

    def __init__(
        self,
        forward_ms: list[float],
        num_instances: int = 1,
        preprocess_ms: float = 0.0,
        transfer_ms: float = 0.0,
    ) -> None:
        self.encoder = make_table(EncoderRow, 1)[0]
        self.encoder.num_instances = num_instances
        self.encoder.preprocess_ms = preprocess_ms
        self.encoder.transfer_ms = transfer_ms
        self.forward_ms = np.array(forward_ms)
        self.free_ms = np.zeros(num_instances)
        self.heap = make_table(TimeHeapRow, 1)[0]
        self.deliveries = make_table(TimedRow, 100)
        self.next_waiting = np.zeros(100, np.int64)
        self.batches: list[tuple[float, int]] = []
        self.delivered: list[tuple[int, float]] = []

    def next_ms(self) -> float:
        return min(next_batch_ms(self.encoder, self.free_ms), next_ms(self.heap, self.deliveries))

    def start_batches_now(self, now_ms: float) -> None:
        waiting = int(self.encoder.num_waiting)
        tables = (self.forward_ms, self.next_waiting, self.heap, self.deliveries)
        start_batches(self.encoder, self.free_ms, *tables, now_ms)
        if self.encoder.num_waiting < waiting:
            self.batches.append((now_ms, waiting - int(self.encoder.num_waiting)))

    def run(self, arrivals_ms: list[float]) -> list[float]:
        """Return when each request is delivered."""
        num_arrived, now_ms = 0, 0.0
        while True:
            arrival_ms = arrivals_ms[num_arrived] if num_arrived < len(arrivals_ms) else math.inf
            at_ms = min(self.next_ms(), arrival_ms)
            if at_ms == math.inf:
                break
            assert at_ms >= now_ms, "the clock went back"
            now_ms = at_ms
            changed = True
            while changed:
                changed = False
                self.start_batches_now(now_ms)
                while next_ms(self.heap, self.deliveries) <= now_ms:
                    self.delivered.append((pop(self.heap, self.deliveries), now_ms))
                while num_arrived < len(arrivals_ms) and arrivals_ms[num_arrived] <= now_ms:
                    enter_encoder(self.encoder, self.next_waiting, num_arrived)
                    num_arrived += 1
                    changed = True
                parked = self.encoder.num_waiting + self.heap.count
                assert parked == num_arrived - len(self.delivered)
        assert [now_ms for _, now_ms in self.delivered] == sorted(ms for _, ms in self.delivered)
        assert sorted(request for request, _ in self.delivered) == list(range(len(arrivals_ms)))
        return [now_ms for _, now_ms in sorted(self.delivered)]


def simulate(
    arrivals_ms: list[float],
    forward_ms: list[float],
    num_instances: int,
    preprocess_ms: float,
    transfer_ms: float,
) -> list[float]:
    """Return delivery times from explicit encoders: the lowest idle one takes what waits."""
    busy_until = [0.0] * num_instances
    delivered: dict[int, float] = {}
    waiting: list[int] = []
    to_come = list(enumerate(arrivals_ms))
    while to_come or waiting:
        # A batch starts before the arrivals of its instant are seen, unless nothing waited.
        if waiting and (not to_come or min(busy_until) <= to_come[0][1]):
            now_ms = max(min(busy_until), max(arrivals_ms[request] for request in waiting[:1]))
        else:
            now_ms = to_come[0][1]
            while to_come and to_come[0][1] == now_ms:
                waiting.append(to_come.pop(0)[0])
        for i in range(num_instances):
            if waiting and busy_until[i] <= now_ms:
                batch, waiting = waiting[: len(forward_ms)], waiting[len(forward_ms) :]
                busy_until[i] = now_ms + len(batch) * preprocess_ms + forward_ms[len(batch) - 1]
                delivered |= dict.fromkeys(batch, busy_until[i] + transfer_ms)
    return [delivered[request] for request in sorted(delivered)]


def test_batch_takes_preprocessing_per_request_one_pass_and_the_way() -> None:
    pool = Pool([10.0, 15.0], preprocess_ms=1.0, transfer_ms=1.0)
    assert pool.run([0.0, 0.0, 0.0, 5.0]) == [18.0, 18.0, 35.0, 35.0]
    assert pool.batches == [(0.0, 2), (17.0, 2)]


def test_requests_of_one_instant_share_a_batch() -> None:
    pool = Pool([4.0, 5.0, 6.0, 7.0])
    assert pool.run([3.0, 3.0, 3.0]) == [9.0, 9.0, 9.0]


def test_encoder_is_free_while_its_results_are_on_the_way() -> None:
    pool = Pool([10.0], transfer_ms=100.0)
    assert pool.run([0.0, 0.0, 10.0]) == [110.0, 120.0, 130.0]


def test_idle_encoders_share_what_one_batch_cannot_hold() -> None:
    pool = Pool([10.0, 16.0], num_instances=2)
    assert pool.run([0.0, 0.0, 0.0]) == [16.0, 16.0, 10.0]
    assert pool.batches == [(0.0, 3)]


def test_arrival_at_the_end_of_a_batch_misses_the_next_one_if_others_wait() -> None:
    assert Pool([10.0, 16.0]).run([0.0, 5.0, 10.0]) == [10.0, 20.0, 30.0]
    assert Pool([10.0, 16.0]).run([0.0, 10.0, 10.0]) == [10.0, 26.0, 26.0]


def test_small_late_batch_may_be_delivered_before_a_large_early_one() -> None:
    pool = Pool([1.0, 50.0], num_instances=2)
    pool.run([0.0, 0.0, 1.0])
    assert pool.delivered == [(2, 2.0), (0, 50.0), (1, 50.0)]


def test_encoders_without_latency_deliver_at_once() -> None:
    assert Pool([0.0, 0.0]).run([0.0, 0.0, 0.0, 2.5]) == [0.0, 0.0, 0.0, 2.5]


def test_next_instant_is_a_delivery_or_a_free_encoder_for_those_who_wait() -> None:
    pool = Pool([10.0], transfer_ms=5.0)
    assert pool.next_ms() == math.inf
    enter_encoder(pool.encoder, pool.next_waiting, 0)
    pool.start_batches_now(0.0)
    assert pool.next_ms() == 15.0
    enter_encoder(pool.encoder, pool.next_waiting, 1)
    assert pool.next_ms() == 10.0


@given(
    st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.5, 10.0]), max_size=40),
    st.lists(st.sampled_from([0.5, 1.0, 2.0, 7.0]), min_size=1, max_size=4),
    st.integers(1, 3),
    st.sampled_from([0.0, 0.25]),
    st.sampled_from([0.0, 3.0]),
)
def test_pool_behaves_like_explicit_encoders(
    waits_ms: list[float],
    forward_ms: list[float],
    num_instances: int,
    preprocess_ms: float,
    transfer_ms: float,
) -> None:
    arrivals_ms = np.cumsum(waits_ms).tolist()
    pool = Pool(forward_ms, num_instances, preprocess_ms, transfer_ms)
    assert pool.run(arrivals_ms) == simulate(
        arrivals_ms, forward_ms, num_instances, preprocess_ms, transfer_ms
    )

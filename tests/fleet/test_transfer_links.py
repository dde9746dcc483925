"""Transfers on shared links: rates, ends, cancelling (replay-runtime.md §11.3, ex. 16)."""

import math
from fractions import Fraction
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.transfer_links import (
    LinkRow,
    TransferRow,
    TransferSetRow,
    cancel_transfer,
    next_transfer_ms,
    pop_transfer,
    start_transfer,
)
from aisim_gym.tables import make_table

P0, P1, P2, D0, D1, D2 = range(6)
RECEIVE_RATES = (0.25, 0.75, 1.0, 2.5, math.inf)


class Start(NamedTuple):
    """A transfer to start; all numbers are multiples of 1/8, so that a model can be exact."""

    at_ms: float
    sender: int
    receiver: int
    work_ms: float


class Links:
    """Three prefill and three decode ranks with their links."""

    def __init__(self, receive_rate: float = math.inf) -> None:
        self.state = make_table(TransferSetRow, 1)[0]
        self.state.receive_rate = receive_rate
        self.transfers = make_table(TransferRow, 40)
        self.links = make_table(LinkRow, 6)

    def start(
        self, request: int, transfer: Start, now_ms: float | None = None, handoff_id: int = -1
    ) -> None:
        at_ms, sender, receiver, work_ms = transfer
        handoff_id = request if handoff_id < 0 else handoff_id
        at_ms = at_ms if now_ms is None else now_ms
        tables = (self.state, self.transfers)
        start_transfer(*tables, request, handoff_id, sender, receiver, work_ms, at_ms)

    def cancel(self, request: int) -> bool:
        return cancel_transfer(self.state, self.transfers, request)

    def next_ms(self) -> float:
        assert not self.state.is_stale, "ask for what ends first"
        return next_transfer_ms(self.state)

    def pop_all(self, now_ms: float) -> list[int]:
        """Return the requests whose transfers end by now, in order of delivery."""
        popped: list[int] = []
        while True:
            request = pop_transfer(self.state, self.transfers, self.links, now_ms)
            if request == NONE:
                return popped
            popped.append(request)

    def running(self) -> list[TransferRow]:
        rows = [self.transfers[i] for i in range(int(self.state.num_rows))]
        return [row for row in rows if row.is_running]

    def run(
        self,
        starts: list[Start],
        cancels_ms: dict[int, float] | None = None,
        polls_ms: list[float] | None = None,
    ) -> dict[int, float]:
        """Run transfers; return their ends by request, in order of delivery.

        Args:
            starts: The request is the position.
            cancels_ms: When some are cancelled, by request.
            polls_ms: More instants at which the links are asked for what is due.
        """
        cancels_ms = cancels_ms or {}
        ends: dict[int, float] = {}
        instants = {start.at_ms for start in starts} | {*cancels_ms.values(), *(polls_ms or ())}
        while instants or self.next_ms() < math.inf:
            now_ms = min([self.next_ms(), *instants])
            for request in self.pop_all(now_ms):
                assert request not in ends
                ends[request] = float(now_ms)
            for request, at_ms in cancels_ms.items():
                if at_ms == now_ms:
                    assert self.cancel(request) == (request not in ends)
            for request, start in enumerate(starts):
                if start.at_ms == now_ms:
                    self.start(request, start)
            assert self.pop_all(now_ms) == []
            instants = {at_ms for at_ms in instants if at_ms > now_ms}
        assert self.state.num_transfers == 0
        return ends


def fair_rates(jobs: dict[int, Start], receive_rate: Fraction | None) -> dict[int, Fraction]:
    """Return max-min fair rates: all rise together, those on a link that fills up stop."""
    rates = dict.fromkeys(jobs, Fraction(0))
    rising = set(jobs)
    links = {
        link: Fraction(1) if link < D0 else receive_rate
        for job in jobs.values()
        for link in (job.sender, job.receiver)
    }
    while rising:
        room = {}
        for link, capacity in links.items():
            users = [i for i, job in jobs.items() if link in (job.sender, job.receiver)]
            num_rising = len(rising & set(users))
            if capacity is not None and num_rising:
                room[link] = (capacity - sum(rates[i] for i in users)) / num_rising
        step = min(room.values())
        full = {link for link, left in room.items() if left == step}
        for i in rising:
            rates[i] += step
        rising -= {i for i in rising if {jobs[i].sender, jobs[i].receiver} & full}
    return rates


def fluid_ends(
    starts: list[Start], receive_rate: float, cancels_ms: dict[int, float] | None = None
) -> dict[int, float]:
    """Return the ends of transfers, computed with fractions, by request."""
    rate = None if math.isinf(receive_rate) else Fraction(receive_rate)
    cancels_ms = cancels_ms or {}
    changes = {Fraction(at_ms) for at_ms in cancels_ms.values()}
    changes |= {Fraction(start.at_ms) for start in starts}
    left: dict[int, Fraction] = {}
    ends: dict[int, float] = {}
    now = Fraction(0)
    while changes or left:
        rates = fair_rates({i: starts[i] for i in left}, rate)
        at = min(changes | {now + left[i] / rates[i] for i in left})
        left = {i: work - rates[i] * (at - now) for i, work in left.items()}
        now = at
        ends |= {i: float(now) for i, work in left.items() if work == 0}
        left = {i: work for i, work in left.items() if work > 0 and cancels_ms.get(i) != now}
        if now in changes:
            started = {i for i, start in enumerate(starts) if start.at_ms == now}
            left |= {i: Fraction(starts[i].work_ms) for i in started}
            changes.remove(now)
    return ends


EIGHTHS = st.integers(0, 200).map(lambda eighths: eighths / 8)
STARTS = st.builds(
    Start,
    EIGHTHS,
    st.integers(P0, P2),
    st.integers(D0, D2),
    st.integers(1, 120).map(lambda eighths: eighths / 8),
)


@pytest.mark.parametrize(
    ("receive_rate", "starts", "ends_ms"),
    [
        pytest.param(1.0, [Start(10, P0, D0, 8)], [18.0], id="alone"),
        pytest.param(
            math.inf, [Start(10, P0, D0, 8), Start(10, P0, D1, 8)], [26.0, 26.0], id="one sender"
        ),
        pytest.param(
            1.0, [Start(10, P0, D0, 8), Start(10, P1, D0, 8)], [26.0, 26.0], id="one receiver"
        ),
        pytest.param(
            math.inf,
            [Start(10, P0, D0, 8), Start(10, P1, D0, 8)],
            [18.0, 18.0],
            id="unlimited receiver",
        ),
        pytest.param(0.25, [Start(0, P0, D0, 8)], [32.0], id="slow receiver"),
        pytest.param(
            1.0,
            [Start(0, P0, D0, 8), Start(0, P0, D1, 8), Start(0, P1, D1, 8)],
            [16.0, 16.0, 16.0],
            id="three, equal links",
        ),
        pytest.param(
            math.inf,
            [Start(0, P0, D0, 8), Start(0, P0, D1, 8), Start(0, P1, D1, 8)],
            [16.0, 16.0, 8.0],
            id="three, unlimited receivers",
        ),
        pytest.param(
            math.inf, [Start(0, P0, D0, 8), Start(4, P0, D1, 8)], [12.0, 16.0], id="overlapping"
        ),
        pytest.param(
            1.0,
            [Start(0, P0, D0, 8), Start(0, P0, D0, 8), Start(0, P0, D1, 8), Start(0, P1, D1, 8)],
            [24.0, 24.0, 24.0, 12.0],
            id="what a bottleneck leaves goes to others",
        ),
    ],
)
def test_transfers_share_the_links_of_their_ranks(
    receive_rate: float, starts: list[Start], ends_ms: list[float]
) -> None:
    ends = Links(receive_rate).run(starts)
    assert ends == pytest.approx(dict(enumerate(ends_ms)), rel=1e-15)


@given(st.lists(STARTS, min_size=1, max_size=12), st.sampled_from(RECEIVE_RATES))
def test_rates_are_max_min_fair(starts: list[Start], receive_rate: float) -> None:
    """No link is overfull, and each transfer has a full link on which none is faster."""
    links = Links(receive_rate)
    for request, start in enumerate(starts):
        links.start(request, start, now_ms=0.0)
    links.pop_all(0.0)
    rows = links.running()
    used = [
        sum(row.rate for row in rows if link in (row.sender, row.receiver)) for link in range(6)
    ]
    capacity = [1.0] * 3 + [receive_rate] * 3
    assert all(used[link] <= capacity[link] + 1e-12 for link in range(6))
    for row in rows:
        assert any(
            used[link] == pytest.approx(capacity[link])
            and all(
                other.rate <= row.rate + 1e-12
                for other in rows
                if link in (other.sender, other.receiver)
            )
            for link in (row.sender, row.receiver)
        )
    rate = None if math.isinf(receive_rate) else Fraction(receive_rate)
    expected = fair_rates(dict(enumerate(starts)), rate)
    assert {row.request: row.rate for row in rows} == pytest.approx(
        {request: float(fair) for request, fair in expected.items()}
    )


@given(st.lists(STARTS, max_size=12), st.sampled_from(RECEIVE_RATES))
def test_ends_are_those_of_a_fluid_model(starts: list[Start], receive_rate: float) -> None:
    ends = Links(receive_rate).run(starts)
    assert ends.keys() == set(range(len(starts)))
    assert ends == pytest.approx(fluid_ends(starts, receive_rate), rel=1e-12)
    assert list(ends.values()) == sorted(ends.values())


@given(
    st.lists(STARTS, max_size=10), st.lists(EIGHTHS, max_size=20), st.sampled_from(RECEIVE_RATES)
)
def test_looking_at_the_links_changes_nothing(
    starts: list[Start], polls_ms: list[float], receive_rate: float
) -> None:
    ends = Links(receive_rate).run(starts, polls_ms=polls_ms)
    assert list(ends.items()) == list(Links(receive_rate).run(starts).items())


@given(
    st.lists(STARTS, max_size=10),
    st.floats(0.0, 30.0),
    st.floats(1e-3, 1e6),
    st.sampled_from(RECEIVE_RATES),
)
def test_transfer_alone_on_its_links_takes_exactly_its_work(
    others: list[Start], at_ms: float, work_ms: float, receive_rate: float
) -> None:
    crowd = [start._replace(sender=P1, receiver=D1 + start.receiver % 2) for start in others]
    ends = Links(receive_rate).run([Start(at_ms, P0, D0, work_ms), *crowd])
    assert ends[0] == at_ms + work_ms / min(1.0, receive_rate)


@given(st.permutations(range(4)))
def test_transfers_that_end_together_are_delivered_by_handoff(handoffs: list[int]) -> None:
    links = Links()
    for request, handoff_id in enumerate(handoffs):
        links.start(request, Start(0, P0, D0, 0.7), handoff_id=handoff_id)
    links.pop_all(0.0)
    assert links.pop_all(links.next_ms()) == sorted(range(4), key=lambda i: handoffs[i])
    assert links.next_ms() == math.inf


def test_equal_transfers_end_at_one_instant_whatever_their_work() -> None:
    for work_ms in (0.1, 1 / 3, 123.456, 1e9 / 7):
        links = Links(0.3)
        for request in range(3):
            links.start(request, Start(1e6 / 3, P0, D0, work_ms))
        links.pop_all(1e6 / 3)
        assert len(links.pop_all(links.next_ms())) == 3


def test_transfer_that_is_due_stays_due_until_it_is_delivered() -> None:
    links = Links()
    links.start(0, Start(0, P0, D0, 4))
    links.pop_all(0.0)
    assert links.next_ms() == 4.0
    links.start(1, Start(4, P0, D0, 4))
    assert links.pop_all(4.0) == [0]
    assert links.next_ms() == 8.0


def test_cancelled_transfer_frees_its_share() -> None:
    links = Links()
    links.start(0, Start(0, P0, D0, 8))
    links.start(1, Start(0, P0, D1, 8))
    links.pop_all(0.0)
    assert links.cancel(1)
    assert not links.cancel(1)
    links.pop_all(4.0)
    assert links.next_ms() == 4.0 + 6.0
    assert links.pop_all(10.0) == [0]


def test_transfer_cancelled_when_it_is_due_is_not_delivered() -> None:
    links = Links()
    links.start(0, Start(0, P0, D0, 8))
    links.start(1, Start(0, P1, D1, 8))
    links.pop_all(0.0)
    assert links.cancel(0)
    assert links.pop_all(8.0) == [1]


@given(
    st.lists(st.tuples(STARTS, st.none() | st.integers(1, 80)), max_size=10),
    st.sampled_from(RECEIVE_RATES),
)
def test_those_that_are_not_cancelled_share_what_is_freed(
    transfers: list[tuple[Start, int | None]], receive_rate: float
) -> None:
    """Each transfer comes with the eighths of a millisecond until it is cancelled."""
    starts = [start for start, _ in transfers]
    cancels_ms = {
        request: start.at_ms + eighths / 8
        for request, (start, eighths) in enumerate(transfers)
        if eighths is not None
    }
    expected = fluid_ends(starts, receive_rate, cancels_ms)
    assume(all(expected.get(request) != at_ms for request, at_ms in cancels_ms.items()))
    ends = Links(receive_rate).run(starts, cancels_ms)
    assert ends == pytest.approx(expected, rel=1e-12)


def test_rows_are_used_again() -> None:
    links = Links()
    for request in range(200):
        links.start(request, Start(request, P0, D0, 2.5))
        links.pop_all(float(request))
        if request >= 20:
            links.cancel(request - 20)
    assert links.state.num_rows <= 21
    assert len(links.running()) == links.state.num_transfers

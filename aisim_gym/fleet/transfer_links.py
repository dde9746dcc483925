"""Shared links: concurrent KV transfers share the links of their ranks max-min fairly.

Rules: replay-runtime.md §11.3. A prefill rank sends over a link of rate 1, and a decode rank
receives over a link of rate ``receive_rate``. Links are indexed by rank row. The work of a transfer
is its duration in ms when alone on links of rate 1.

Every transfer stores the last instant at which its rate changed, and its remaining work at that
instant. Its end is computed once from these values, so activity on other links does not affect a
transfer, and a transfer alone on its links ends at exactly ``start + work / rate``.

A start or a cancellation only marks the rates as stale. They are recomputed by the next call of
:func:`pop_transfer`, once per instant, after all transfers that end then are removed. The next end
is undefined until then, so a caller that changes the links must call it at the same instant.
"""

import math
from typing import Protocol

from aisim_gym.engine.tables import NONE
from aisim_gym.errors import TableFullError
from aisim_gym.kernel import kernel
from aisim_gym.tables import B1, F8, I8, Table


class TransferSetRow(Protocol):
    """All transfers of a fleet."""

    receive_rate: F8  # decode rank relative to prefill rank, +inf: unlimited
    next_end_ms: F8  # end of the first transfer to end, +inf if none
    num_transfers: I8
    num_rows: I8  # table rows used so far
    is_stale: B1  # rates do not match the running transfers yet


class TransferRow(Protocol):
    """One transfer."""

    is_running: B1  # otherwise the row is free
    request: I8
    handoff_id: I8
    sender: I8  # rank row of the prefill end
    receiver: I8  # rank row of the decode end
    work_ms: F8  # remaining at since_ms
    since_ms: F8  # last change of the rate
    rate: F8
    end_ms: F8
    fair_rate: F8  # new rate during a recomputation, negative until known


class LinkRow(Protocol):
    """The link of a rank, used only during a recomputation of the rates."""

    free_rate: F8  # not assigned yet
    num_open: I8  # transfers without a known rate
    share: F8  # free_rate / num_open


@kernel
def start_transfer(
    state: TransferSetRow,
    transfers: Table[TransferRow],
    request: int,
    handoff_id: int,
    sender: int,
    receiver: int,
    work_ms: float,
    now_ms: float,
) -> None:
    """Start a transfer between two ranks; the table must have a free row.

    Args:
        state: Modified in place, as is ``transfers``.
        transfers: All transfers.
        request: Row of its request.
        handoff_id: Orders transfers that end at the same instant.
        sender: Rank row of the prefill end.
        receiver: Rank row of the decode end.
        work_ms: Duration when alone on links of rate 1, > 0.
        now_ms: Start time.
    """
    at = 0
    while at < state.num_rows and transfers[at].is_running:
        at += 1
    if at >= len(transfers):
        raise TableFullError("transfers")
    state.num_rows = max(state.num_rows, at + 1)
    state.num_transfers += 1
    state.is_stale = True
    transfer = transfers[at]
    transfer.is_running = True
    transfer.request = request
    transfer.handoff_id = handoff_id
    transfer.sender = sender
    transfer.receiver = receiver
    transfer.work_ms = work_ms
    transfer.since_ms = now_ms
    transfer.rate = 0.0
    transfer.end_ms = math.inf


@kernel
def cancel_transfer(state: TransferSetRow, transfers: Table[TransferRow], request: int) -> bool:
    """Remove the transfer of a request, even if it is due; return whether there was one."""
    for i in range(state.num_rows):
        if transfers[i].is_running and transfers[i].request == request:
            _remove(state, transfers, i)
            return True
    return False


@kernel
def next_transfer_ms(state: TransferSetRow) -> float:
    """Return when the first transfer ends, +inf if there is none."""
    return state.next_end_ms if state.num_transfers > 0 else math.inf


@kernel
def pop_transfer(
    state: TransferSetRow, transfers: Table[TransferRow], links: Table[LinkRow], now_ms: float
) -> int:
    """Remove the transfer with the smallest handoff id that ends now; return its request or NONE.

    Args:
        state: Modified in place, as are ``transfers`` and ``links``.
        transfers: All transfers.
        links: Links by rank row.
        now_ms: Current time; no transfer ends earlier.
    """
    while state.is_stale or next_transfer_ms(state) <= now_ms:
        first = NONE
        for i in range(state.num_rows):
            if (
                transfers[i].is_running
                and transfers[i].end_ms <= now_ms
                and (first == NONE or transfers[i].handoff_id < transfers[first].handoff_id)
            ):
                first = i
        if first != NONE:
            _remove(state, transfers, first)
            return int(transfers[first].request)
        _share_links(state, transfers, links, now_ms)
    return NONE


@kernel
def _remove(state: TransferSetRow, transfers: Table[TransferRow], at: int) -> None:
    transfers[at].is_running = False
    state.num_transfers -= 1
    state.is_stale = True


@kernel
def _share_links(
    state: TransferSetRow, transfers: Table[TransferRow], links: Table[LinkRow], now_ms: float
) -> None:
    """Set the fair rate of every transfer; a changed rate moves its end."""
    _find_fair_rates(state, transfers, links)
    state.is_stale = False
    state.next_end_ms = math.inf
    for i in range(state.num_rows):
        transfer = transfers[i]
        if not transfer.is_running:
            continue
        if transfer.fair_rate != transfer.rate:
            done_ms = transfer.rate * (now_ms - transfer.since_ms)
            transfer.work_ms = max(transfer.work_ms - done_ms, 0.0)
            transfer.since_ms = now_ms
            transfer.rate = transfer.fair_rate
            transfer.end_ms = now_ms + transfer.work_ms / transfer.rate
        state.next_end_ms = min(state.next_end_ms, transfer.end_ms)


@kernel
def _find_fair_rates(
    state: TransferSetRow, transfers: Table[TransferRow], links: Table[LinkRow]
) -> None:
    """Fill in ``fair_rate`` by progressive filling.

    In each round, the links with the smallest share fix the rates of their transfers. These rates
    are subtracted from the links at the other ends.
    """
    _open_links(state, transfers, links)
    num_open = state.num_transfers
    while num_open > 0:
        least = _share_out(state, transfers, links)
        for i in range(state.num_rows):
            transfer = transfers[i]
            if not transfer.is_running or transfer.fair_rate >= 0.0:
                continue
            sending = links[transfer.sender]
            receiving = links[transfer.receiver]
            if sending.share == least or receiving.share == least:
                transfer.fair_rate = least
                sending.free_rate -= least
                receiving.free_rate -= least
                sending.num_open -= 1
                receiving.num_open -= 1
                num_open -= 1


@kernel
def _open_links(
    state: TransferSetRow, transfers: Table[TransferRow], links: Table[LinkRow]
) -> None:
    """Reset the links of all transfers to their full rate, and count their transfers."""
    for i in range(state.num_rows):
        links[transfers[i].sender].num_open = 0
        links[transfers[i].receiver].num_open = 0
    for i in range(state.num_rows):
        transfer = transfers[i]
        if not transfer.is_running:
            continue
        transfer.fair_rate = -1.0
        links[transfer.sender].free_rate = 1.0
        links[transfer.sender].num_open += 1
        links[transfer.receiver].free_rate = state.receive_rate
        links[transfer.receiver].num_open += 1


@kernel
def _share_out(
    state: TransferSetRow, transfers: Table[TransferRow], links: Table[LinkRow]
) -> float:
    """Divide the free rate of each link among its open transfers; return the smallest share."""
    least = math.inf
    for i in range(state.num_rows):
        transfer = transfers[i]
        if not transfer.is_running or transfer.fair_rate >= 0.0:
            continue
        sending = links[transfer.sender]
        receiving = links[transfer.receiver]
        sending.share = sending.free_rate / sending.num_open
        receiving.share = receiving.free_rate / receiving.num_open
        least = min(least, sending.share, receiving.share)
    return least

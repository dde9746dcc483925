"""Shared links: concurrent KV transfers share the links of their ranks max-min fairly.

Rules: replay-runtime.md §11.3. A prefill rank sends over a link of rate 1, a decode rank receives
over one of rate ``receive_rate``; links have the number of their rank. The work of a transfer is
what it takes alone on links of rate 1, in ms.

Every transfer keeps its own starting point: the last instant at which its rate changed, and the
work left then. Its end is computed from there once, so a transfer is not touched by what happens on
other links, and one that is alone on its links ends at exactly ``start + work / rate``.

What starts or is cancelled only makes the rates stale. They are found anew when the links are asked
next for a transfer that ends: once per instant, after all that end there are gone. Until then there
is no next end to ask for, so whoever changes the links must ask them at that very instant.
"""

import math
from typing import Protocol

from aisim_gym.engine.tables import NONE
from aisim_gym.errors import TableFullError
from aisim_gym.kernel import kernel
from aisim_gym.tables import B1, F8, I8, Table


class TransferSetRow(Protocol):
    """All transfers of a fleet."""

    receive_rate: F8  # of a decode rank relative to a prefill rank, +inf: unlimited
    next_end_ms: F8  # of the first transfer to end, +inf if there is none
    num_transfers: I8
    num_rows: I8  # of the table, as far as it was ever used
    is_stale: B1  # the rates are not yet those of the transfers that run


class TransferRow(Protocol):
    """One transfer."""

    is_running: B1  # else the row is free
    request: I8
    handoff_id: I8
    sender: I8  # rank row of the prefill end
    receiver: I8  # of the decode end
    work_ms: F8  # left at since_ms
    since_ms: F8  # when the rate changed last
    rate: F8
    end_ms: F8
    fair_rate: F8  # while rates are computed: the new one, negative if not known yet


class LinkRow(Protocol):
    """The link of a rank; used only while rates are computed."""

    free_rate: F8  # not given away yet
    num_open: I8  # transfers whose rate is not known yet
    share: F8  # free_rate for each of them


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
        state: Modified in place, like the table.
        transfers: All transfers.
        request: Row of its request.
        handoff_id: Orders transfers that end at one instant.
        sender: Rank row of the prefill end.
        receiver: Rank row of the decode end.
        work_ms: What it takes alone on links of rate 1, > 0.
        now_ms: Start.
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
    """Forget the transfer of a request, also if it is due; return whether there was one."""
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
    """Remove the transfer of the smallest handoff that ends now; return its request, else NONE.

    Args:
        state: Modified in place, like the others.
        transfers: All transfers.
        links: By rank row.
        now_ms: No transfer ended before.
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
    """Give every transfer its fair rate; a new rate moves its end."""
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

    In each round the links with the smallest share fix the rates of their transfers, which use up
    as much of the links at their other ends.
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
    """Give the links of all transfers their whole rate, and count who wants it."""
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
    """Divide what is left of each link among its open transfers; return the smallest share."""
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

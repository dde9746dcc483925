"""Generated traffic as request tables: whole, or in consecutive chunks of time.

Draws are made for segments of fixed length, independent of the chunk length, so that the
concatenated chunks equal the whole table, bit for bit. Arrivals, lengths and prompts have separate
random streams.
"""

import math
from collections.abc import Iterator

import numpy as np

from aisim_gym.errors import NoRequestsError, WorkloadError
from aisim_gym.number_text import number_text
from aisim_gym.spec.arrivals import ClientsArrivals
from aisim_gym.spec.prompts import SessionPrompts
from aisim_gym.spec.traffic import TrafficSpec
from aisim_gym.workload.request_table import DEFAULT_TRACE_BLOCK_SIZE, RequestTable
from aisim_gym.workload.traffic.arrival_segments import arrival_segments
from aisim_gym.workload.traffic.expectations import start_share, traffic_rate_rps
from aisim_gym.workload.traffic.rate_path import SEGMENT_S
from aisim_gym.workload.traffic.turns import IdCounter, Turns, mean_turns, turn_source

MOST_REQUESTS = 50_000_000
"""Maximum expected requests of a table, or of one segment of a stream."""


def generate_traffic(spec: TrafficSpec) -> RequestTable:
    """Return the requests of generated traffic, in order of arrival.

    Raises:
        WorkloadError: If no request arrives, or too many are expected.
    """
    _check_count(spec, spec.duration_s)
    turns = Turns.join([segment for _, segment in _segments(spec)])
    if turns.arrival_ms.size == 0:
        raise NoRequestsError(
            f"generator: no request arrives within duration_s {number_text(spec.duration_s)} at "
            f"{traffic_rate_rps(spec):.4g} requests/s (seed {spec.seed})"
        )
    return _table(spec, turns, 0)


def stream_requests(spec: TrafficSpec, chunk_s: float = 60.0) -> Iterator[RequestTable]:
    """Yield the requests that arrive in each ``chunk_s`` seconds, one table after the other.

    Concatenated, the tables equal ``generate_requests(spec)``, bit for bit. Arrivals and rows count
    from the start of the traffic, and a chunk without requests is an empty table. Memory holds a
    chunk or a 300 s segment of draws, whichever is longer, and the future turns of open sessions.

    Args:
        spec: The traffic.
        chunk_s: Length of a chunk, seconds, > 0; the last one may be shorter.

    Raises:
        ValueError: If ``chunk_s`` is not a finite number above 0.
        WorkloadError: If too many requests are expected in 300 s.
    """
    if not (math.isfinite(chunk_s) and chunk_s > 0.0):
        raise ValueError(f"chunk_s: got {number_text(chunk_s)}, allowed: a finite number > 0")
    _check_count(spec, min(spec.duration_s, SEGMENT_S))
    return _chunks(spec, chunk_s)


def _check_count(spec: TrafficSpec, at_once_s: float) -> None:
    rate_rps = traffic_rate_rps(spec)
    if not rate_rps * at_once_s <= MOST_REQUESTS:
        raise WorkloadError(
            f"generator: {rate_rps:.4g} requests/s for {number_text(at_once_s)} s are "
            f"{rate_rps * at_once_s:.4g} requests, allowed: at most {MOST_REQUESTS}"
        )


def _segments(spec: TrafficSpec) -> Iterator[tuple[float, Turns]]:
    """Yield the end and the turns, in order of arrival, of consecutive segments."""
    arrival_random, length_random, prompt_random = (
        np.random.Generator(np.random.PCG64(stream))
        for stream in np.random.SeedSequence(spec.seed).spawn(3)
    )
    parts = spec.request_classes
    class_random, *part_randoms = prompt_random.spawn(1 + len(parts))
    clients = spec.arrivals.clients if isinstance(spec.arrivals, ClientsArrivals) else 1
    ids = IdCounter()
    sources = [
        turn_source(part, clients, lengths, prompts, ids)
        for part, lengths, prompts in zip(
            parts, length_random.spawn(len(parts)), part_randoms, strict=True
        )
    ]
    start_weights = np.array([part.share / mean_turns(part) for part in parts])
    bounds = np.cumsum(start_weights / start_weights.sum())[:-1]
    start_s = -max(
        part.prompts.warmup_s if isinstance(part.prompts, SessionPrompts) else 0.0 for part in parts
    )
    ahead = Turns.none()
    factor = spec.rate_scale * start_share(spec)
    for segment in arrival_segments(spec.arrivals, start_s, factor, arrival_random):
        kind = np.zeros(segment.arrival_s.size, np.int64)
        if len(parts) > 1:
            kind = np.searchsorted(bounds, class_random.random(kind.size), side="right")
        begun = [
            source.turns(segment.arrival_s[kind == index], segment.client[kind == index])
            for index, source in enumerate(sources)
        ]
        turns = Turns.join([ahead, *begun])
        end_s = min(segment.end_s, spec.duration_s)
        order = np.argsort(turns.arrival_ms, kind="stable")
        first, last = np.searchsorted(turns.arrival_ms[order], [0.0, end_s * 1000.0])
        yield end_s, turns.take(order[first:last])
        if end_s == spec.duration_s:
            return
        ahead = turns.take(order[last:])


def _chunks(spec: TrafficSpec, chunk_s: float) -> Iterator[RequestTable]:
    collected = [Turns.none()]
    index = row = 0
    for segment_end_s, segment in _segments(spec):
        collected.append(segment)
        chunk_end_s = min((index + 1) * chunk_s, spec.duration_s)
        while chunk_end_s <= segment_end_s:
            turns = Turns.join(collected)
            size = int(np.searchsorted(turns.arrival_ms, chunk_end_s * 1000.0))
            yield _table(spec, turns.take(np.arange(size)), row)
            if chunk_end_s == spec.duration_s:
                return
            collected = [turns.take(np.arange(size, turns.arrival_ms.size))]
            index, row = index + 1, row + size
            chunk_end_s = min((index + 1) * chunk_s, spec.duration_s)


def _table(spec: TrafficSpec, turns: Turns, first_row: int) -> RequestTable:
    return RequestTable(
        row=np.arange(first_row, first_row + turns.arrival_ms.size),
        arrival_ms=turns.arrival_ms,
        input_tokens=turns.input_tokens,
        output_tokens=turns.output_tokens,
        prompt_ids=turns.prompts.flat,
        prompt_starts=turns.prompts.starts,
        trace_block_size=spec.block_tokens or DEFAULT_TRACE_BLOCK_SIZE,
    )

"""The tick history: the planner's view of the fleet and its decision at every tick."""

import math
from typing import NamedTuple

from aisim_gym.fleet.tick import KEEP
from aisim_gym.replay.snapshot import ScalingSnapshot


class TickRecord(NamedTuple):
    """One record of the tick history: the fleet at a tick and the decision."""

    tick_ordinal: int
    now_ms: float
    num_req: int
    completed: int
    avg_ttft_ms: float
    avg_itl_ms: float
    active_prefill: int
    starting_prefill: int
    draining_prefill: int
    active_decode: int
    starting_decode: int
    draining_decode: int
    target_prefill: int | None
    target_decode: int | None
    next_tick_ms: float | None


def tick_record(
    snapshot: ScalingSnapshot, target_prefill: int, target_decode: int, next_tick_ms: float
) -> TickRecord:
    """Return the record of an answered tick; targets and time as for :meth:`Replay.answer`."""
    traffic, prefill, decode = snapshot.traffic, snapshot.prefill, snapshot.decode
    return TickRecord(
        snapshot.tick_ordinal,
        snapshot.now_ms,
        traffic.num_req,
        traffic.shape_count,
        traffic.avg_ttft_ms,
        traffic.avg_itl_ms,
        len(prefill.active_ids),
        len(prefill.starting_ids),
        len(prefill.draining_ids),
        len(decode.active_ids),
        len(decode.starting_ids),
        len(decode.draining_ids),
        None if target_prefill == KEEP else target_prefill,
        None if target_decode == KEEP else target_decode,
        next_tick_ms if math.isfinite(next_tick_ms) else None,
    )

"""Worlds that have not started yet, for tests of fleet kernels."""

import math
from typing import Any

from support.fleets import arrivals, small_fleet

from aisim_gym.fleet.tables import DECODE, ROSTER_ACTIVE, ROSTER_LIVE
from aisim_gym.fleet.tick import APPLIED, KEEP, NO_ROOM, apply_decision
from aisim_gym.fleet.world_state import WorldState
from aisim_gym.replay.build import build_world


def new_world(**fleet: Any) -> WorldState:
    """Return a small fleet before its only request arrives at 0; lifecycle is captured."""
    return build_world(small_fleet(**fleet), arrivals([0.0]), 1e15)


def scale(
    state: WorldState, decode: int | None, prefill: int | None = None, at_ms: float | None = None
) -> None:
    """Apply targets as a planner would, and arm no tick."""
    if at_ms is not None:
        state.world.clock.now_ms = at_ms
    state.world.clock.tick_shown = True
    wanted, wanted_prefill = (KEEP if target is None else target for target in (decode, prefill))
    while (outcome := apply_decision(state.world, wanted_prefill, wanted, math.inf)) == NO_ROOM:
        state.grow()
    assert outcome == APPLIED


def worker_states(state: WorldState, pool_id: int = DECODE) -> dict[int, int]:
    """Return state by worker id, of all workers ever created in a pool."""
    rows = range(int(sum(state.world.pools["num_workers"])))
    workers = [state.world.workers[row] for row in rows]
    return {int(worker.id): int(worker.state) for worker in workers if worker.pool == pool_id}


def roster(state: WorldState, kind: int, pool_id: int = DECODE) -> list[int]:
    """Return the worker ids of ``ROSTER_LIVE`` or ``ROSTER_ACTIVE``."""
    pool = state.world.pools[pool_id]
    count = {ROSTER_LIVE: pool.live_count, ROSTER_ACTIVE: pool.active_count}[kind]
    rows = state.world.rosters[kind + pool_id, : int(count)].tolist()
    return [int(state.world.workers[row].id) for row in rows]

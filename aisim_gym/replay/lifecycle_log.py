"""Lifecycle operations in the reference's format, derived from the worker rows.

Rules: replay-runtime.md §8. A worker row stores time and operation of its creation, activation,
drain and removal. An operation is the batch of transitions with its ordinal.
"""

from typing import Any

from aisim_gym.engine.tables import NONE
from aisim_gym.fleet.tables import CAUSE_DRAINED, CAUSE_PLANNER, CAUSE_READY, PREFILL
from aisim_gym.fleet.world_state import WorldState

CAUSE_NAMES = {
    CAUSE_PLANNER: "planner_scale",
    CAUSE_READY: "worker_ready_event",
    CAUSE_DRAINED: "drain_settlement",
}

_ADDED, _DRAINING, _CANCELLED, _DRAINED = range(4)
"""Order of transitions in one operation; drains and cancellations go from the highest id down."""


def lifecycle_operations(state: WorldState) -> list[dict[str, Any]]:
    """Return one record per operation, in order, with the keys of the reference."""
    clock = state.world.clock
    count = int(clock.operation_count)
    by_operation: list[list[tuple[tuple[int, int], dict[str, Any]]]] = [[] for _ in range(count)]
    num_workers = int(sum(state.world.pools["num_workers"]))
    for worker in state.world.workers[:num_workers]:  # type: ignore[call-overload]
        for ordinal, order, transition in _transitions(worker):
            by_operation[ordinal].append((order, transition))
    states: dict[int, dict[str, set[int]]] = {
        pool_id: {"active": set(), "starting": set(), "draining": set()} for pool_id in range(2)
    }
    for worker in state.world.workers[:num_workers]:  # type: ignore[call-overload]
        if worker.created_operation == NONE:
            states[int(worker.pool)]["active"].add(int(worker.id))

    records = []
    for ordinal in range(count):
        operation = state.world.operations[ordinal]
        pool_id = int(operation.pool)
        transitions = [t for _, t in sorted(by_operation[ordinal], key=lambda item: item[0])]
        for transition in transitions:
            _follow(states[pool_id], transition)
        records.append(
            {
                "operation_ordinal": ordinal,
                "at_ms": float(operation.at_ms),
                "pool": _pool_name(pool_id, bool(state.world.options.is_disaggregated)),
                "cause": CAUSE_NAMES[int(operation.cause)],
                "planner_tick_ordinal": None
                if operation.tick_ordinal < 0
                else int(operation.tick_ordinal),
                "origin_operation_ordinal": _common_origin(int(operation.cause), transitions),
                "transitions": transitions,
                "state_after_batch": {name: sorted(ids) for name, ids in states[pool_id].items()},
                "topology_released_request_uuids": [],
            }
        )
    return records


def _pool_name(pool_id: int, is_disaggregated: bool) -> str:
    if not is_disaggregated:
        return "agg"
    return "prefill" if pool_id == PREFILL else "decode"


def _transitions(worker: Any) -> list[tuple[int, tuple[int, int], dict[str, Any]]]:
    """Return (operation, order within it, record) of each recorded transition of a worker."""
    worker_id = int(worker.id)
    created, ready = int(worker.created_operation), int(worker.ready_operation)
    draining, removed = int(worker.draining_operation), int(worker.removed_operation)
    result = []
    if created != NONE and created != ready:
        record = _record(worker_id, "worker_starting", None, "starting", created)
        result.append((created, (_ADDED, worker_id), record))
    if ready != NONE:
        prior = None if created == ready else "starting"
        record = _record(worker_id, "worker_ready", prior, "active", created)
        result.append((ready, (_ADDED, worker_id), record))
    if draining != NONE:
        record = _record(worker_id, "worker_draining", "active", "draining", draining)
        result.append((draining, (_DRAINING, -worker_id), record))
    if removed != NONE:
        if draining != NONE:
            record = _record(worker_id, "worker_removed", "draining", "removed", draining)
            result.append((removed, (_DRAINED, worker_id), record))
        else:
            record = _record(worker_id, "worker_removed", "starting", "removed", created)
            origin = record.pop("origin_operation_ordinal")
            record |= {"reason": "startup_cancelled", "origin_operation_ordinal": origin}
            result.append((removed, (_CANCELLED, -worker_id), record))
    return result


def _record(
    worker_id: int, transition: str, prior: str | None, state: str, origin: int
) -> dict[str, Any]:
    return {
        "worker_id": worker_id,
        "transition": transition,
        "prior_state": prior,
        "state": state,
        "origin_operation_ordinal": origin,
    }


def _follow(states: dict[str, set[int]], transition: dict[str, Any]) -> None:
    worker_id = transition["worker_id"]
    if transition["prior_state"] is not None:
        states[transition["prior_state"]].discard(worker_id)
    if transition["state"] != "removed":
        states[transition["state"]].add(worker_id)


def _common_origin(cause: int, transitions: list[dict[str, Any]]) -> int | None:
    """Return the common origin of the batch's settled startups or drains, or None (§8.4)."""
    if cause == CAUSE_PLANNER:
        transitions = [t for t in transitions if t.get("reason") == "startup_cancelled"]
    origins = {t["origin_operation_ordinal"] for t in transitions}
    return origins.pop() if len(origins) == 1 else None
